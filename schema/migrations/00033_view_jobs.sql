-- +goose NO TRANSACTION
-- +goose Up
-- Readers see exactly one generation. The condition stands outside the UNION ALL: a branch without
-- a WHERE of its own is flattened by PostgreSQL, so look-ups and ordered pages use the tables'
-- indexes, and the branch of the other generation is cut off by a one-time filter before it reads
-- anything.
CREATE OR REPLACE VIEW ledger.jobs AS
SELECT
    g.id, g.owner_id, g.idempotency_key, g.kind, g.kind_seq, g.fingerprint, g.input,
    g.provider, g.state, g.state_reason, g.version, g.completed_by, g.result,
    g.failure_class, g.failure_message, g.failure_executed, g.attempt_count, g.run_at,
    g.created_at, g.updated_at, g.completed_at, g.cancelled_at, g.cancelled_by, g.due_at,
    g.requested_seq, g.completed_seq, g.seqs
FROM (
    SELECT 'ledger_a'::TEXT AS generation,
        id, owner_id, idempotency_key, kind, kind_seq, fingerprint, input, provider,
        state, state_reason, version, completed_by, result, failure_class,
        failure_message, failure_executed, attempt_count, run_at, created_at, updated_at,
        completed_at, cancelled_at, cancelled_by, due_at, requested_seq, completed_seq,
        seqs
    FROM ledger_a.jobs
    UNION ALL
    SELECT 'ledger_b'::TEXT AS generation,
        id, owner_id, idempotency_key, kind, kind_seq, fingerprint, input, provider,
        state, state_reason, version, completed_by, result, failure_class,
        failure_message, failure_executed, attempt_count, run_at, created_at, updated_at,
        completed_at, cancelled_at, cancelled_by, due_at, requested_seq, completed_seq,
        seqs
    FROM ledger_b.jobs
) AS g
WHERE g.generation = (SELECT a.name FROM ledger.active AS a WHERE a.id = 1);
