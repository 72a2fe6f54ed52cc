-- +goose NO TRANSACTION
-- +goose Up
-- What was not accepted. A key of `seq` alone would grow with time and make the end of the table a
-- hot spot; sixteen buckets spread it, and a list in order of time merges sixteen short reads.
CREATE TABLE IF NOT EXISTS ledger_a.rejections (
    bucket          INT8        NOT NULL,
    seq             INT8        NOT NULL,
    at              TIMESTAMPTZ NOT NULL,
    entry           TEXT        NOT NULL,
    actor           TEXT,
    owner_id        TEXT,
    idempotency_key TEXT,
    kind            TEXT,
    provider        TEXT,
    job_id          UUID,
    attempt         INT8,
    decision        TEXT        NOT NULL,
    reason          TEXT        NOT NULL,
    detail          TEXT,
    raw             BYTEA,
    CONSTRAINT rejections_pkey PRIMARY KEY (bucket, seq),
    CONSTRAINT rejections_bucket_of_seq CHECK (bucket = seq % 16),
    CONSTRAINT rejections_decision_known CHECK (decision IN ('conflict', 'refused', 'malformed')),
    CONSTRAINT rejections_raw_bounded CHECK (length(raw) <= 4096)
);
