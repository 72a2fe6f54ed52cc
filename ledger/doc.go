// Package ledger is the pure core of the job ledger: identity, canonical form,
// the codec of entries, and the fold that decides every transition.
//
// The package performs no I/O, reads no clock and uses no randomness. The only
// "now" is the timestamp that the stream stored with an entry, so folding the
// same entries gives the same state on any machine at any time. The shells
// around it (publisher, projector, workers) append entries, run the fold,
// store what it says and carry out the effects that it returns.
//
// Three kinds of trouble are kept apart. A rejection is a value: a Decision
// with a Reason. Corruption (rules newer than this binary, a state that the
// fold cannot have produced) is an error, and whoever folds must stop. A
// programmer's mistake, such as folding an entry for a job that was not loaded,
// panics.
package ledger
