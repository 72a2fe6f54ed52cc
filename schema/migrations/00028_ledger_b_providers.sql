-- +goose NO TRANSACTION
-- +goose Up
-- Definitions are never updated, as with kinds.
CREATE TABLE IF NOT EXISTS ledger_b.providers (
    name       TEXT        NOT NULL,
    seq        INT8        NOT NULL,
    type       TEXT        NOT NULL,
    definition JSONB       NOT NULL,
    digest     BYTEA       NOT NULL,
    at         TIMESTAMPTZ NOT NULL,
    actor      TEXT,
    CONSTRAINT providers_pkey PRIMARY KEY (name, seq)
);
