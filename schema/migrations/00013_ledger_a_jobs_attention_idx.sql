-- +goose NO TRANSACTION
-- +goose Up
-- Operators list and count what needs attention, and such jobs are few among many settled ones.
-- Jobs that run through without waiting never enter this index. Its second column is a time, so it
-- is to be judged by measurement as well.
CREATE INDEX IF NOT EXISTS jobs_attention_idx ON ledger_a.jobs (state, created_at, id)
    WHERE state IN ('waiting', 'unknown', 'failed');
