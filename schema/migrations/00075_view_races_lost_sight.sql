-- +goose NO TRANSACTION
-- +goose Up
-- One row per loser. What was at work when its job was settled by another has lost, however it
-- then ended: finished, failed, not sent, or told to stop and unknown, which is no end but all
-- that will be known of most. A cancelled attempt counts where it was called off by a sibling's
-- win; one that a person resolved counts only if its result came in after all, and was refused:
-- that is what the rejection tells, and when. A job that had failed before it was cancelled has a
-- completed_at, too: what settled it is the cancel.
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
    COALESCE(d.at, l.finished_at) AS loser_finished_at,
    COALESCE(d.at, l.finished_at, l.unknown_since)
        - CASE WHEN j.completed_by IS NULL THEN j.cancelled_at ELSE j.completed_at END AS late,
    EXTRACT(EPOCH FROM COALESCE(d.at, l.finished_at, l.unknown_since) - l.started_at)::NUMERIC AS loser_seconds,
    l.usage AS loser_usage
FROM ledger.attempts AS l
JOIN ledger.jobs AS j ON j.id = l.job_id
LEFT JOIN ledger.attempts AS w ON w.job_id = j.id AND w.number = j.completed_by
LEFT JOIN (
    SELECT r.job_id, r.attempt, max(r.at) AS at
    FROM ledger.rejections AS r
    WHERE r.entry = 'attempt.complete'
      AND r.reason IN ('attempt_ended', 'result_already_claimed', 'fenced')
    GROUP BY r.job_id, r.attempt
) AS d ON d.job_id = l.job_id AND d.attempt = l.number
WHERE l.state = 'superseded'
   OR (l.state = 'unknown'
       AND j.state IN ('succeeded', 'cancelled'))
   OR (l.state IN ('failed', 'unsent')
       AND l.resolved_at IS NULL
       AND j.state IN ('succeeded', 'cancelled')
       AND l.finished_at >= CASE WHEN j.completed_by IS NULL THEN j.cancelled_at ELSE j.completed_at END)
   OR (l.state = 'cancelled'
       AND l.resolved_at IS NULL
       AND j.completed_by IS NOT NULL
       AND l.number <> j.completed_by
       AND l.finished_at >= j.completed_at)
   OR (l.state IN ('cancelled', 'failed')
       AND l.resolved_at IS NOT NULL
       AND d.at IS NOT NULL
       AND j.completed_by IS NOT NULL
       AND l.number <> j.completed_by);
