-- +goose NO TRANSACTION
-- +goose Up
-- Definitions are never updated: a job keeps the version under which it was accepted, and a shard
-- that folds an older entry must not see a newer one.
CREATE TABLE IF NOT EXISTS ledger_b.kinds (
    name       TEXT        NOT NULL,
    seq        INT8        NOT NULL,
    definition JSONB       NOT NULL,
    digest     BYTEA       NOT NULL,
    at         TIMESTAMPTZ NOT NULL,
    actor      TEXT,
    CONSTRAINT kinds_pkey PRIMARY KEY (name, seq)
);
