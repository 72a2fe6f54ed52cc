// Package reconcile finds out what became of attempts whose end nobody knows.
//
// A [Reconciler] goes through the unknown attempts of the providers that say how
// the truth can be had: by a look-up, which is asked what became of an attempt,
// or by a replay, which sends the same request again to a provider that honours
// idempotency keys. What it learns it says in the ledger by the same entry as a
// person would, with its own name and what the provider answered. The fold
// decides, so that any number of reconcilers and people may do so at once.
//
// It believes nothing that is not said of the very attempt, and it takes no
// silence for an answer: what it cannot learn stays unknown.
package reconcile
