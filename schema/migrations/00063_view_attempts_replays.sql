-- +goose NO TRANSACTION
-- +goose Up
-- The view gets the columns that its tables got. New columns of a view come last.
CREATE OR REPLACE VIEW ledger.attempts AS
SELECT
    g.job_id, g.number, g.provider, g.state, g.reason, g.job_version, g.idempotency_key,
    g.worker, g.claim_hash, g.start_by, g.deadline, g.due_at, g.requested_at,
    g.started_at, g.unknown_since, g.finished_at, g.failure_class, g.failure_message,
    g.failure_reach, g.executed, g.provider_ref, g.usage, g.completion_digest,
    g.resolved_at, g.resolved_by, g.resolution_reason, g.start_seq, g.seqs,
    g.replays
FROM (
    SELECT 'ledger_a'::TEXT AS generation,
        job_id, number, provider, state, reason, job_version, idempotency_key, worker,
        claim_hash, start_by, deadline, due_at, requested_at, started_at, unknown_since,
        finished_at, failure_class, failure_message, failure_reach, executed,
        provider_ref, usage, completion_digest, resolved_at, resolved_by,
        resolution_reason, start_seq, seqs, replays
    FROM ledger_a.attempts
    UNION ALL
    SELECT 'ledger_b'::TEXT AS generation,
        job_id, number, provider, state, reason, job_version, idempotency_key, worker,
        claim_hash, start_by, deadline, due_at, requested_at, started_at, unknown_since,
        finished_at, failure_class, failure_message, failure_reach, executed,
        provider_ref, usage, completion_digest, resolved_at, resolved_by,
        resolution_reason, start_seq, seqs, replays
    FROM ledger_b.attempts
) AS g
WHERE g.generation = (SELECT a.name FROM ledger.active AS a WHERE a.id = 1);
