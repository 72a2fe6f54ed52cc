-- +goose NO TRANSACTION
-- +goose Up
-- Readers see exactly one generation. The condition stands outside the UNION ALL: a branch without
-- a WHERE of its own is flattened by PostgreSQL, so look-ups and ordered pages use the tables'
-- indexes, and the branch of the other generation is cut off by a one-time filter before it reads
-- anything.
CREATE OR REPLACE VIEW ledger.provider_verifications AS
SELECT
    g.name, g.seq, g.kind, g.contract, g.provider_digest, g.passed, g.report,
    g.expires_at, g.at, g.actor
FROM (
    SELECT 'ledger_a'::TEXT AS generation,
        name, seq, kind, contract, provider_digest, passed, report, expires_at, at, actor
    FROM ledger_a.provider_verifications
    UNION ALL
    SELECT 'ledger_b'::TEXT AS generation,
        name, seq, kind, contract, provider_digest, passed, report, expires_at, at, actor
    FROM ledger_b.provider_verifications
) AS g
WHERE g.generation = (SELECT a.name FROM ledger.active AS a WHERE a.id = 1);
