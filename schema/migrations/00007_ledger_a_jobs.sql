-- +goose NO TRANSACTION
-- +goose Up
-- One row per intent. The primary key is derived from owner and key; the unique constraint says
-- the same again, so that a bug in the derivation fails loudly instead of running an intent twice.
CREATE TABLE IF NOT EXISTS ledger_a.jobs (
    id               UUID        NOT NULL,
    owner_id         TEXT        NOT NULL,
    idempotency_key  TEXT        NOT NULL,
    kind             TEXT        NOT NULL,
    kind_seq         INT8        NOT NULL,
    fingerprint      BYTEA       NOT NULL,
    input            JSONB       NOT NULL,
    provider         TEXT,
    state            TEXT        NOT NULL,
    state_reason     TEXT,
    version          INT8        NOT NULL,
    completed_by     INT8,
    result           JSONB,
    failure_class    TEXT,
    failure_message  TEXT,
    failure_executed BOOL,
    attempt_count    INT8        NOT NULL,
    run_at           TIMESTAMPTZ,
    created_at       TIMESTAMPTZ NOT NULL,
    updated_at       TIMESTAMPTZ NOT NULL,
    completed_at     TIMESTAMPTZ,
    cancelled_at     TIMESTAMPTZ,
    cancelled_by     TEXT,
    due_at           TIMESTAMPTZ,
    requested_seq    INT8        NOT NULL,
    completed_seq    INT8,
    seqs             INT8[]      NOT NULL,
    CONSTRAINT jobs_pkey PRIMARY KEY (id),
    CONSTRAINT jobs_owner_key UNIQUE (owner_id, idempotency_key),
    CONSTRAINT jobs_state_known CHECK (state IN ('waiting', 'running', 'unknown', 'succeeded', 'failed', 'cancelled')),
    CONSTRAINT jobs_result_has_winner CHECK ((state = 'succeeded') = (completed_by IS NOT NULL))
);
