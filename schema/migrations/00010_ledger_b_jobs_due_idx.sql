-- +goose NO TRANSACTION
-- +goose Up
-- The clock asks twice a second what is due. The index holds only jobs that wait for a time, few
-- of all; the rows leave it as they are handled. It is an index on a time all the same, and so a
-- possible hot spot on CockroachDB: to be judged by measurement.
CREATE INDEX IF NOT EXISTS jobs_due_idx ON ledger_b.jobs (due_at)
    WHERE due_at IS NOT NULL;
