-- +goose NO TRANSACTION
-- +goose Up
-- Readers see exactly one generation. The condition stands outside the UNION ALL: a branch without
-- a WHERE of its own is flattened by PostgreSQL, so look-ups and ordered pages use the tables'
-- indexes, and the branch of the other generation is cut off by a one-time filter before it reads
-- anything.
CREATE OR REPLACE VIEW ledger.checkpoints AS
SELECT
    g.shard, g.seq, g.chain, g.chain_prev, g.effects_seq, g.epoch, g.rules, g.token, g.updated_at
FROM (
    SELECT 'ledger_a'::TEXT AS generation,
        shard, seq, chain, chain_prev, effects_seq, epoch, rules, token, updated_at
    FROM ledger_a.checkpoints
    UNION ALL
    SELECT 'ledger_b'::TEXT AS generation,
        shard, seq, chain, chain_prev, effects_seq, epoch, rules, token, updated_at
    FROM ledger_b.checkpoints
) AS g
WHERE g.generation = (SELECT a.name FROM ledger.active AS a WHERE a.id = 1);
