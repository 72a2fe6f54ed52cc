-- +goose NO TRANSACTION
-- +goose Up
-- Several statements in one file, against the rule of one per file: COMMENT ON is idempotent and
-- depends on nothing, so a file that stopped half way is simply applied again.
COMMENT ON VIEW ledger.provider_health IS 'Each provider''s attempts by kind: outcomes as counts, and how long they took. Reads every attempt: for analysts, not for dashboards that refresh.';
COMMENT ON COLUMN ledger.provider_health.provider IS 'The provider.';
COMMENT ON COLUMN ledger.provider_health.kind IS 'The kind of work.';
COMMENT ON COLUMN ledger.provider_health.attempts IS 'All attempts, of every state.';
COMMENT ON COLUMN ledger.provider_health.starting IS 'Attempts that wait for a worker.';
COMMENT ON COLUMN ledger.provider_health.running IS 'Attempts that a worker has claimed.';
COMMENT ON COLUMN ledger.provider_health.unknown IS 'Attempts whose outcome nobody knows.';
COMMENT ON COLUMN ledger.provider_health.succeeded IS 'Attempts whose result their job has.';
COMMENT ON COLUMN ledger.provider_health.failed IS 'Attempts that ended without a usable result.';
COMMENT ON COLUMN ledger.provider_health.failed_executed IS 'Those of failed that are known to have executed.';
COMMENT ON COLUMN ledger.provider_health.unsent IS 'Attempts that were provably never sent.';
COMMENT ON COLUMN ledger.provider_health.superseded IS 'Attempts whose result was dropped.';
COMMENT ON COLUMN ledger.provider_health.expired IS 'Attempts that no worker claimed in time.';
COMMENT ON COLUMN ledger.provider_health.cancelled IS 'Attempts that were called off, or resolved as such.';
COMMENT ON COLUMN ledger.provider_health.p50 IS 'Median time from the claim to the end, over the attempts that have both. NULL: none has.';
COMMENT ON COLUMN ledger.provider_health.p95 IS '95th percentile of that time.';
COMMENT ON COLUMN ledger.provider_health.p99 IS '99th percentile of that time.';
COMMENT ON COLUMN ledger.provider_health.last_finished_at IS 'When an attempt ended last. NULL: none has ended.';
