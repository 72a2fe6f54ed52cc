// Package workers carries out attempts: it takes an attempt's start from the
// stream, claims the attempt through the ledger, calls the provider once and
// records how that ended.
//
// A [Provider] is one way to have work done; [HTTP] calls an endpoint and
// [Exec] a program. A [Worker] runs the protocol for one provider.
//
// Two rules govern everything here. A provider is called at most once for an
// attempt, on the wire, whatever is redelivered, restarted or retried by a
// library on the way. And what is not known is never called a failure: an
// ending that is not proved to be something else is unknown.
package workers
