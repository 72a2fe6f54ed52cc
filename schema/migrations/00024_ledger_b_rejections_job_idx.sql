-- +goose NO TRANSACTION
-- +goose Up
-- The history of a job includes what was rejected about it. The id leads and is spread evenly, so
-- this is no hot spot.
CREATE INDEX IF NOT EXISTS rejections_job_idx ON ledger_b.rejections (job_id, seq)
    WHERE job_id IS NOT NULL;
