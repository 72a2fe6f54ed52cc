// Package schema holds the ledger's tables: the SQL that makes them, and the
// code that brings a database up to date with it.
//
// # Two generations and a pointer
//
// Everything that is folded from the stream exists twice, in the schemas
// ledger_a and ledger_b, with the same columns, constraints and indexes. One
// generation is live: the one that the single row of ledger.active names. The
// other is there to be folded into from the stream while the system works;
// moving the row then makes it the live one. No command does that yet. Readers use the views in the schema ledger, which follow that row:
// a statement sees one whole generation, before and after the switch.
// Generations are never renamed or truncated inside a transaction: on
// CockroachDB any DDL commits the transaction that it stands in.
//
// # Tables, in both generations, each with a view of the same name in ledger
//
//   - jobs: one row per intent, unique by owner and key.
//   - attempts: one row per try at a job on one provider.
//   - rejections: what was conflicting, refused or malformed, and why. Its key
//     is led by sequence mod 16, because a key that grows with time makes the
//     end of a table hot.
//   - kinds, providers, provider_verifications: definitions and proofs,
//     append-only, keyed by name and stream sequence.
//   - checkpoints: how far each shard of the projection has come. It moves in
//     the transaction that writes the rows.
//
// # Outside the generations, in ledger
//
//   - ledger_meta: what init fixed for ever, a single row (none before init).
//   - active: the pointer, a single row, which Migrate puts on ledger_a.
//   - schema_version, schema_lock: what has been migrated, and the lock that
//     lets one migration run at a time. Both are goose's.
//
// # For analysts, in ledger
//
//   - unknown_attempts: what nobody knows the outcome of, and what it blocks.
//   - races: who won, who lost, how late and at what cost.
//   - provider_health: outcomes as counts and durations as percentiles, by
//     provider and kind.
//
// Every table, view and column carries a comment in the database, so \d+ in
// psql answers what a column means.
//
// # Rules for migrations
//
// The SQL is for PostgreSQL and CockroachDB alike. A file in migrations is one
// idempotent DDL statement outside a transaction, because CockroachDB has no
// transactional DDL: a file that was applied but not recorded is applied again.
// Files of COMMENT ON statements hold several, which are as idempotent together
// as one by one. A file that has been released never changes, and there are no
// migrations backwards: the tables can be folded again from the stream, so going
// back means an older binary on a fresh database. A change to a table is made in
// both generations and in the view, with comments; tests compare them.
package schema
