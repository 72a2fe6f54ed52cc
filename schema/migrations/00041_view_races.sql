-- +goose NO TRANSACTION
-- +goose Up
-- One row per loser. A cancelled attempt counts where it was called off by a sibling's win, not
-- where a person resolved it (resolved_at).
CREATE OR REPLACE VIEW ledger.races AS
SELECT
    j.id AS job_id,
    j.owner_id,
    j.kind,
    j.completed_by AS winner_attempt,
    w.provider AS winner_provider,
    w.finished_at AS winner_finished_at,
    l.number AS loser_attempt,
    l.provider AS loser_provider,
    l.state AS loser_state,
    l.finished_at AS loser_finished_at,
    l.finished_at - COALESCE(j.completed_at, j.cancelled_at) AS late,
    EXTRACT(EPOCH FROM l.finished_at - l.started_at)::NUMERIC AS loser_seconds,
    l.usage AS loser_usage
FROM ledger.attempts AS l
JOIN ledger.jobs AS j ON j.id = l.job_id
LEFT JOIN ledger.attempts AS w ON w.job_id = j.id AND w.number = j.completed_by
WHERE l.state = 'superseded'
   OR (l.state = 'cancelled'
       AND l.resolved_at IS NULL
       AND j.completed_by IS NOT NULL
       AND l.number <> j.completed_by
       AND l.finished_at >= j.completed_at);
