-- +goose NO TRANSACTION
-- +goose Up
-- The view gets the columns that its tables got. New columns of a view come last.
CREATE OR REPLACE VIEW ledger.providers AS
SELECT
    g.name, g.seq, g.type, g.definition, g.digest, g.at, g.actor,
    g.paused, g.pause_reason
FROM (
    SELECT 'ledger_a'::TEXT AS generation,
        name, seq, type, definition, digest, at, actor, paused, pause_reason
    FROM ledger_a.providers
    UNION ALL
    SELECT 'ledger_b'::TEXT AS generation,
        name, seq, type, definition, digest, at, actor, paused, pause_reason
    FROM ledger_b.providers
) AS g
WHERE g.generation = (SELECT a.name FROM ledger.active AS a WHERE a.id = 1);
