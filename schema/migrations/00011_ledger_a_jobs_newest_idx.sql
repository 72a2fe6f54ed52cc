-- +goose NO TRANSACTION
-- +goose Up
-- Lists of jobs are read newest first, page by page from (created_at, id); without this index each
-- page would sort all jobs. An index on a time is a hot spot on CockroachDB (all inserts go to its
-- end) and costs a write per job everywhere: it is here because lists are unusable without it, and
-- is to be judged by measurement.
CREATE INDEX IF NOT EXISTS jobs_newest_idx ON ledger_a.jobs (created_at, id);
