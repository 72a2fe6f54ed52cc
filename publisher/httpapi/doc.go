// Package httpapi serves the ledger to producers and operators over HTTP.
//
// Writing means appending an entry and waiting for the decision on it; reading
// means asking the tables. The package decides nothing itself: what a request
// may say is checked by the fold's own decoder before it is appended, so that
// the edge and the fold can never disagree, and what is accepted is the fold's
// word. Every error is an RFC 9457 problem.
package httpapi
