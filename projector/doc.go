// Package projector folds the stream into the tables and carries out what
// follows from it.
//
// One reader reads the whole stream in order, checks that nothing is missing
// and computes the hash chain. Entries go to shards by job id. A shard folds a
// batch in memory, writes the difference and its checkpoint in one transaction,
// and only then performs the effects: it appends attempt starts and answers
// whoever waits. The three stages of a shard (load and fold, commit, effects)
// overlap, so that one batch is folded while the one before it commits.
//
// Whatever goes wrong with the database or the stream, the answer is the same:
// drop all memory, read the checkpoints again, carry out once more the effects
// that may be missing, and go on from there. An ambiguous commit needs no case
// of its own, and two projectors on one ledger do no harm: the checkpoint's
// compare-and-swap lets one of them through, and the other stands by until the
// checkpoint stops moving.
package projector
