-- Questions to the ledger's tables, as examples to start from.
--
--   psql "$DATABASE_URL" -f scripts/analysts.sql
--
-- They read the views in the schema ledger, which show one whole generation of
-- tables at every moment, and run on PostgreSQL and on CockroachDB. What a column
-- means is said in the database: \d+ ledger.jobs. Times are stored in UTC with
-- microseconds; date_trunc cuts at the session's time zone.

-- What needs a person now: attempts that nobody knows the end of, oldest first.
-- other_in_flight says whether something else still works on the job.
SELECT u.age, u.job_id, u.attempt, u.owner_id, u.idempotency_key, u.kind, u.provider, u.provider_ref,
    u.failure_class, u.failure_message, u.blocks_job, u.other_in_flight
FROM ledger.unknown_attempts AS u
ORDER BY u.since NULLS LAST, u.job_id, u.attempt
LIMIT 100;

-- Where jobs are: by state, and for waiting ones by what they wait for. Held jobs
-- wait for a person, failover-unverified ones for a provider's verification.
SELECT j.kind, j.state, j.state_reason, count(*) AS jobs, min(j.updated_at) AS longest_untouched
FROM ledger.jobs AS j
WHERE j.state NOT IN ('succeeded', 'cancelled')
GROUP BY j.kind, j.state, j.state_reason
ORDER BY j.kind, j.state, j.state_reason NULLS FIRST;

-- Races: who won, who lost, how much too late, and what the loser cost.
SELECT r.job_id, r.kind, r.winner_attempt, r.winner_provider, r.loser_attempt, r.loser_provider, r.loser_state,
    r.late, r.loser_seconds, r.loser_usage
FROM ledger.races AS r
ORDER BY r.loser_finished_at DESC NULLS LAST, r.job_id, r.loser_attempt
LIMIT 100;

-- What racing costs: seconds of work whose results were dropped, by loser.
SELECT r.kind, r.loser_provider, count(*) AS lost, sum(r.loser_seconds) AS seconds
FROM ledger.races AS r
GROUP BY r.kind, r.loser_provider
ORDER BY sum(r.loser_seconds) DESC NULLS LAST;

-- Providers' health: outcomes as shares of the attempts that ended, and durations
-- from claim to end.
SELECT h.provider, h.kind, h.attempts, h.starting, h.running, h.unknown,
    round(h.succeeded * 100.0 / NULLIF(h.succeeded + h.failed + h.unsent + h.superseded, 0), 1) AS succeeded_percent,
    round(h.failed * 100.0 / NULLIF(h.succeeded + h.failed + h.unsent + h.superseded, 0), 1) AS failed_percent,
    h.p50, h.p95, h.p99, h.last_finished_at
FROM ledger.provider_health AS h
ORDER BY h.provider, h.kind;

-- Why attempts failed in the last day. executed: the provider did the work.
SELECT a.provider, a.failure_class, a.failure_reach, a.executed, count(*) AS attempts, max(a.finished_at) AS latest
FROM ledger.attempts AS a
WHERE a.state IN ('failed', 'unsent', 'expired') AND a.finished_at > now() - INTERVAL '1 day'
GROUP BY a.provider, a.failure_class, a.failure_reach, a.executed
ORDER BY count(*) DESC, a.provider, a.failure_class NULLS LAST;

-- Jobs per hour of the last week: accepted, and what has become of them.
SELECT date_trunc('hour', j.created_at) AS hour, j.kind, count(*) AS jobs,
    count(*) FILTER (WHERE j.state = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE j.state = 'failed') AS failed,
    count(*) FILTER (WHERE j.state = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE j.state = 'unknown') AS unknown,
    percentile_disc(0.5) WITHIN GROUP (ORDER BY j.completed_at - j.created_at NULLS LAST) AS median_to_end
FROM ledger.jobs AS j
WHERE j.created_at > now() - INTERVAL '7 days'
GROUP BY date_trunc('hour', j.created_at), j.kind
ORDER BY 1 DESC, 2;

-- What was not accepted in the last day, and why.
SELECT r.entry, r.decision, r.reason, r.actor, count(*) AS times, max(r.at) AS latest
FROM ledger.rejections AS r
WHERE r.at > now() - INTERVAL '1 day'
GROUP BY r.entry, r.decision, r.reason, r.actor
ORDER BY count(*) DESC, r.entry, r.reason;

-- Second clicks that would have been second jobs: wishes for another attempt while
-- one was in flight, by kind, and keys that were used again for another intent.
SELECT r.reason, r.kind, r.owner_id, count(*) AS times
FROM ledger.rejections AS r
WHERE r.reason IN ('attempt_in_flight', 'idempotency_conflict')
GROUP BY r.reason, r.kind, r.owner_id
ORDER BY count(*) DESC, r.reason, r.kind NULLS LAST, r.owner_id NULLS LAST
LIMIT 100;

-- Malformed entries, with the first 200 bytes of what was sent. The stream keeps
-- the whole entry at this sequence.
SELECT r.seq, r.at, r.entry, r.reason, r.detail, substring(r.raw FROM 1 FOR 200) AS begins_with
FROM ledger.rejections AS r
WHERE r.decision = 'malformed'
ORDER BY r.at DESC, r.seq DESC
LIMIT 50;

-- One job with its attempts: put your owner and key in.
SELECT j.id, j.state, j.state_reason, j.version, j.completed_by, a.number, a.provider, a.state AS attempt_state,
    a.reason, a.worker, a.started_at, a.finished_at, a.failure_class, a.failure_message, a.provider_ref,
    a.resolved_by, a.resolution_reason
FROM ledger.jobs AS j
JOIN ledger.attempts AS a ON a.job_id = j.id
WHERE j.owner_id = 'acme' AND j.idempotency_key = 'order-17'
ORDER BY a.number;

-- The history of one job: the sequences of all entries that touched it or its
-- attempts, or were refused about it, in the order in which they happened.
SELECT h.seq, h.what
FROM (
    SELECT unnest(j.seqs) AS seq, 'job' AS what
    FROM ledger.jobs AS j
    WHERE j.owner_id = 'acme' AND j.idempotency_key = 'order-17'
    UNION ALL
    SELECT unnest(a.seqs) AS seq, 'attempt ' || a.number::TEXT AS what
    FROM ledger.jobs AS j
    JOIN ledger.attempts AS a ON a.job_id = j.id
    WHERE j.owner_id = 'acme' AND j.idempotency_key = 'order-17'
    UNION ALL
    SELECT r.seq, r.decision || ': ' || r.reason AS what
    FROM ledger.jobs AS j
    JOIN ledger.rejections AS r ON r.job_id = j.id
    WHERE j.owner_id = 'acme' AND j.idempotency_key = 'order-17'
) AS h
ORDER BY h.seq, h.what;

-- The definition of each kind that holds now.
SELECT k.name, k.seq, k.at, k.actor, k.definition
FROM ledger.kinds AS k
WHERE k.seq = (SELECT max(l.seq) FROM ledger.kinds AS l WHERE l.name = k.name)
ORDER BY k.name;

-- The latest verification of each provider for each kind, and until when it holds.
SELECT v.name AS provider, v.kind, v.passed, v.at, v.expires_at, v.actor
FROM ledger.provider_verifications AS v
WHERE v.seq = (SELECT max(w.seq) FROM ledger.provider_verifications AS w WHERE w.name = v.name AND w.kind = v.kind)
ORDER BY v.name, v.kind;

-- How far the tables are: one row for each shard. effects_seq is up to where the
-- effects are known to be done.
SELECT c.shard, c.seq, c.effects_seq, c.epoch, c.rules, now() - c.updated_at AS since_last_commit
FROM ledger.checkpoints AS c
ORDER BY c.shard;
