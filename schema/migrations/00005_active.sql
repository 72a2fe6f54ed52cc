-- +goose NO TRANSACTION
-- +goose Up
-- Generations are swapped by this pointer row and not by renaming: a rename is DDL, takes
-- exclusive locks and commits an open transaction on CockroachDB.
CREATE TABLE IF NOT EXISTS ledger.active (
    id          INT8        NOT NULL,
    name        TEXT        NOT NULL,
    epoch       INT8        NOT NULL,
    switched_at TIMESTAMPTZ NOT NULL,
    CONSTRAINT active_pkey PRIMARY KEY (id),
    CONSTRAINT active_single_row CHECK (id = 1),
    CONSTRAINT active_name_known CHECK (name IN ('ledger_a', 'ledger_b'))
);
