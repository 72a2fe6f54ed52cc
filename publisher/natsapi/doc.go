// Package natsapi offers the ledger to NATS clients as a micro service: the
// operations of package httpapi on <prefix>.api.<operation>, with the same
// verdicts and problems. `nats micro ls`, `info` and `stats` find it; the
// endpoints' metadata hold JSON Schemas of their bodies. Processes that offer
// it share the requests, as one queue group.
//
// Who may act for whom is said by NATS' permissions: whoever may call a subject
// is trusted for the owners that it names, and whoever may call
// <prefix>.api.attempt.resolve is an operator.
package natsapi
