-- +goose NO TRANSACTION
-- +goose Up
-- Readers see exactly one generation. The condition stands outside the UNION ALL: a branch without
-- a WHERE of its own is flattened by PostgreSQL, so look-ups and ordered pages use the tables'
-- indexes, and the branch of the other generation is cut off by a one-time filter before it reads
-- anything.
CREATE OR REPLACE VIEW ledger.kinds AS
SELECT
    g.name, g.seq, g.definition, g.digest, g.at, g.actor
FROM (
    SELECT 'ledger_a'::TEXT AS generation,
        name, seq, definition, digest, at, actor
    FROM ledger_a.kinds
    UNION ALL
    SELECT 'ledger_b'::TEXT AS generation,
        name, seq, definition, digest, at, actor
    FROM ledger_b.kinds
) AS g
WHERE g.generation = (SELECT a.name FROM ledger.active AS a WHERE a.id = 1);
