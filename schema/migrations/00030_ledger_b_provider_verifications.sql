-- +goose NO TRANSACTION
-- +goose Up
-- Verifications are never updated; the newest decides.
CREATE TABLE IF NOT EXISTS ledger_b.provider_verifications (
    name            TEXT        NOT NULL,
    seq             INT8        NOT NULL,
    kind            TEXT        NOT NULL,
    contract        TEXT,
    provider_digest BYTEA       NOT NULL,
    passed          BOOL        NOT NULL,
    report          JSONB,
    expires_at      TIMESTAMPTZ,
    at              TIMESTAMPTZ NOT NULL,
    actor           TEXT,
    CONSTRAINT provider_verifications_pkey PRIMARY KEY (name, seq)
);
