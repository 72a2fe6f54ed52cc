-- +goose NO TRANSACTION
-- +goose Up
-- The clock's index of before, without the jobs whose provider is paused: those are due at once
-- and for ever, there may be very many, and the clock must not step over them twice a second.
CREATE INDEX IF NOT EXISTS jobs_timed_idx ON ledger_b.jobs (due_at)
    WHERE due_at IS NOT NULL AND state_reason IS DISTINCT FROM 'provider-paused';
