-- +goose NO TRANSACTION
-- +goose Up
-- How often an unknown attempt was claimed again. A reconciler must not go on for ever.
ALTER TABLE ledger_a.attempts ADD COLUMN IF NOT EXISTS replays INT8 NOT NULL DEFAULT 0;
