-- +goose NO TRANSACTION
-- +goose Up
-- The brake of a provider. Putting it on is a row of its own: the definition of before, paused.
ALTER TABLE ledger_b.providers ADD COLUMN IF NOT EXISTS paused BOOL NOT NULL DEFAULT false;
