-- +goose NO TRANSACTION
-- +goose Up
-- Outcomes as counts rather than rates: counts can be added up, and integer division differs
-- between the databases. percentile_disc gives a value that occurred, and exists for intervals on
-- both.
CREATE OR REPLACE VIEW ledger.provider_health AS
SELECT
    a.provider,
    j.kind,
    count(*) AS attempts,
    count(*) FILTER (WHERE a.state = 'starting') AS starting,
    count(*) FILTER (WHERE a.state = 'running') AS running,
    count(*) FILTER (WHERE a.state = 'unknown') AS unknown,
    count(*) FILTER (WHERE a.state = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE a.state = 'failed') AS failed,
    count(*) FILTER (WHERE a.state = 'failed' AND a.executed) AS failed_executed,
    count(*) FILTER (WHERE a.state = 'unsent') AS unsent,
    count(*) FILTER (WHERE a.state = 'superseded') AS superseded,
    count(*) FILTER (WHERE a.state = 'expired') AS expired,
    count(*) FILTER (WHERE a.state = 'cancelled') AS cancelled,
    percentile_disc(0.5) WITHIN GROUP (ORDER BY a.finished_at - a.started_at NULLS LAST) AS p50,
    percentile_disc(0.95) WITHIN GROUP (ORDER BY a.finished_at - a.started_at NULLS LAST) AS p95,
    percentile_disc(0.99) WITHIN GROUP (ORDER BY a.finished_at - a.started_at NULLS LAST) AS p99,
    max(a.finished_at) AS last_finished_at
FROM ledger.attempts AS a
JOIN ledger.jobs AS j ON j.id = a.job_id
GROUP BY a.provider, j.kind;
