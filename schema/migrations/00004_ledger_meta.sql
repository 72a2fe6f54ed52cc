-- +goose NO TRANSACTION
-- +goose Up
-- Belongs to no generation: a rebuild must not be able to change the number of shards.
CREATE TABLE IF NOT EXISTS ledger.ledger_meta (
    id             INT8        NOT NULL,
    stream_name    TEXT        NOT NULL,
    subject_prefix TEXT        NOT NULL,
    shards         INT8        NOT NULL,
    first_chain    BYTEA,
    created_at     TIMESTAMPTZ NOT NULL,
    CONSTRAINT ledger_meta_pkey PRIMARY KEY (id),
    CONSTRAINT ledger_meta_single_row CHECK (id = 1),
    CONSTRAINT ledger_meta_shards_counts CHECK (shards >= 1)
);
