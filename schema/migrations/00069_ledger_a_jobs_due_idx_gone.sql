-- +goose NO TRANSACTION
-- +goose Up
-- The index jobs_timed_idx has taken its place; what nobody reads would still be paid for with
-- every row that waits.
DROP INDEX IF EXISTS ledger_a.jobs_due_idx;
