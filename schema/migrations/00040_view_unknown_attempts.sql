-- +goose NO TRANSACTION
-- +goose Up
-- What an operator has to find out. The state is in the partial index of attempts in flight.
CREATE OR REPLACE VIEW ledger.unknown_attempts AS
SELECT
    now() - a.unknown_since AS age,
    a.job_id,
    a.number AS attempt,
    j.owner_id,
    j.idempotency_key,
    j.kind,
    a.provider,
    a.provider_ref,
    a.unknown_since AS since,
    a.deadline,
    a.worker,
    a.failure_class,
    a.failure_message,
    j.state AS job_state,
    j.state NOT IN ('succeeded', 'failed', 'cancelled') AS blocks_job,
    j.attempt_count - 1 AS other_attempts,
    (SELECT count(*) FROM ledger.attempts AS o
     WHERE o.job_id = a.job_id AND o.number <> a.number
       AND o.state IN ('starting', 'running', 'unknown')) AS other_in_flight
FROM ledger.attempts AS a
JOIN ledger.jobs AS j ON j.id = a.job_id
WHERE a.state = 'unknown';
