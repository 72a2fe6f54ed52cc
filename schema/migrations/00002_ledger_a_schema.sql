-- +goose NO TRANSACTION
-- +goose Up
-- The first of two generations of the projected tables. A rebuild fills the one that is not live.
CREATE SCHEMA IF NOT EXISTS ledger_a;
