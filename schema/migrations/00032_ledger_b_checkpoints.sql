-- +goose NO TRANSACTION
-- +goose Up
-- The projector's place in the stream, per generation, written in the transaction that writes the
-- rows.
CREATE TABLE IF NOT EXISTS ledger_b.checkpoints (
    shard       INT8        NOT NULL,
    seq         INT8        NOT NULL,
    chain       BYTEA       NOT NULL,
    chain_prev  BYTEA,
    effects_seq INT8        NOT NULL,
    epoch       INT8        NOT NULL,
    rules       INT8        NOT NULL,
    token       UUID,
    updated_at  TIMESTAMPTZ NOT NULL,
    CONSTRAINT checkpoints_pkey PRIMARY KEY (shard),
    CONSTRAINT checkpoints_effects_follow CHECK (effects_seq <= seq)
);
