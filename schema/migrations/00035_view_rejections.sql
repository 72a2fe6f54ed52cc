-- +goose NO TRANSACTION
-- +goose Up
-- Readers see exactly one generation. The condition stands outside the UNION ALL: a branch without
-- a WHERE of its own is flattened by PostgreSQL, so look-ups and ordered pages use the tables'
-- indexes, and the branch of the other generation is cut off by a one-time filter before it reads
-- anything.
CREATE OR REPLACE VIEW ledger.rejections AS
SELECT
    g.bucket, g.seq, g.at, g.entry, g.actor, g.owner_id, g.idempotency_key, g.kind,
    g.provider, g.job_id, g.attempt, g.decision, g.reason, g.detail, g.raw
FROM (
    SELECT 'ledger_a'::TEXT AS generation,
        bucket, seq, at, entry, actor, owner_id, idempotency_key, kind, provider, job_id,
        attempt, decision, reason, detail, raw
    FROM ledger_a.rejections
    UNION ALL
    SELECT 'ledger_b'::TEXT AS generation,
        bucket, seq, at, entry, actor, owner_id, idempotency_key, kind, provider, job_id,
        attempt, decision, reason, detail, raw
    FROM ledger_b.rejections
) AS g
WHERE g.generation = (SELECT a.name FROM ledger.active AS a WHERE a.id = 1);
