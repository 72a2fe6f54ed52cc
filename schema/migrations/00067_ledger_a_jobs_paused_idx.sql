-- +goose NO TRANSACTION
-- +goose Up
-- The jobs whose provider is paused, for the clock once some provider has changed.
CREATE INDEX IF NOT EXISTS jobs_paused_idx ON ledger_a.jobs (due_at)
    WHERE state_reason = 'provider-paused';
