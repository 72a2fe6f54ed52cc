-- +goose NO TRANSACTION
-- +goose Up
-- The second generation; its tables are those of ledger_a.
CREATE SCHEMA IF NOT EXISTS ledger_b;
