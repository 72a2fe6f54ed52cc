-- +goose NO TRANSACTION
-- +goose Up
-- Why the brake is on or off, as the operator says.
ALTER TABLE ledger_a.providers ADD COLUMN IF NOT EXISTS pause_reason TEXT;
