// Package proof finds out whether a provider keeps a kind's contract: it has the
// provider carry out the contract's cases, and inputs that were submitted before,
// several times each, and judges what comes back as a worker would.
//
// It knows nothing of the ledger. Its calls belong to no job: their idempotency
// keys are their own, and start with [KeyPrefix] so that whoever reads the
// provider's logs can tell them.
package proof
