-- +goose NO TRANSACTION
-- +goose Up
-- The clock asks twice a second what is due: start deadlines and attempt deadlines. Only attempts
-- in flight are in it. A possible hot spot, as with jobs: to be judged by measurement.
CREATE INDEX IF NOT EXISTS attempts_due_idx ON ledger_a.attempts (due_at)
    WHERE due_at IS NOT NULL;
