package schema

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// fill puts one row into each table of a generation, with mark in it, and
// returns for each table the query that reads the mark through its view.
func fill(t *testing.T, conn *pgx.Conn, generation, mark, id string) map[string]string {
	t.Helper()
	require.NoError(t, insertJob(t, conn, job{generation: generation, id: id, owner: mark, key: "k", state: "running"}))
	for _, statement := range []string{
		`attempts (job_id, number, provider, state, reason, job_version, requested_at, seqs)
			VALUES ('` + id + `', 1, '%s', 'running', 'initial', 1, now(), ARRAY[2])`,
		`rejections (bucket, seq, at, entry, decision, reason) VALUES (1, 1, now(), '%s', 'refused', 'fenced')`,
		`kinds (name, seq, definition, digest, at) VALUES ('%s', 1, '{}', '\x00', now())`,
		`providers (name, seq, type, definition, digest, at) VALUES ('%s', 1, 'exec', '{}', '\x00', now())`,
		`provider_verifications (name, seq, kind, provider_digest, passed, at) VALUES ('%s', 1, 'k', '\x00', true, now())`,
		`checkpoints (shard, seq, chain, effects_seq, epoch, rules, updated_at) VALUES (0, 1, '%s', 0, 1, 1, now())`,
	} {
		exec(t, conn, "INSERT INTO "+generation+"."+fmt.Sprintf(statement, mark))
	}
	return map[string]string{
		"jobs": "owner_id", "attempts": "provider", "rejections": "entry", "kinds": "name", "providers": "name",
		"provider_verifications": "name", "checkpoints": "convert_from(chain, 'UTF8')",
	}
}

func TestViewsShowOneGeneration(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	marks := fill(t, conn, GenerationA, "in-a", idA)
	fill(t, conn, GenerationB, "in-b", idB)
	require.Len(t, marks, len(generationTables))

	shows := func(want string) {
		for table, mark := range marks {
			require.Equal(t, []string{want}, lines(t, conn, "SELECT "+mark+" FROM ledger."+table), table)
		}
		require.Equal(t, []string{want}, lines(t, conn, "SELECT h.provider FROM ledger.provider_health AS h"))
	}
	shows("in-a")
	exec(t, conn, "UPDATE ledger.active SET name = 'ledger_b', epoch = epoch + 1")
	shows("in-b")
	exec(t, conn, "UPDATE ledger.active SET name = 'ledger_a', epoch = epoch + 1")
	shows("in-a")
}

// A view has the columns of its tables, of the same types and in their order.
func TestViewsHaveTheTablesColumns(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	const query = `SELECT c.table_name || '.' || c.column_name || ' ' || c.ordinal_position || ' ' || c.udt_name
		FROM information_schema.columns AS c WHERE c.table_schema = $1 AND c.table_name = ANY ($2) ORDER BY 1`
	require.Equal(t, lines(t, conn, query, GenerationA, generationTables), lines(t, conn, query, schemaName, generationTables))
}

// What is read often is read by an index, and only in the live generation.
func TestViewsUseIndexesOfTheLiveGeneration(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	if conn.PgConn().ParameterStatus("crdb_version") != "" {
		t.Skip("skipped: the plans are read in PostgreSQL's words")
	}
	for _, g := range generations {
		manyRows(t, conn, g)
	}
	exec(t, conn, "ANALYZE")
	id := lines(t, conn, "SELECT j.id::TEXT FROM ledger.jobs AS j WHERE j.idempotency_key = '7'")[0]
	for name, c := range map[string]struct{ index, sql string }{
		"job by id":      {"jobs_pkey", "SELECT id, result FROM ledger.jobs WHERE id = '" + id + "'"},
		"jobs by ids":    {"jobs_pkey", "SELECT id, result FROM ledger.jobs WHERE id = ANY (ARRAY['" + id + "'::UUID])"},
		"job by key":     {"jobs_owner_key", "SELECT id FROM ledger.jobs WHERE owner_id = 'o7' AND idempotency_key = '7'"},
		"attempts of it": {"attempts_pkey", "SELECT number FROM ledger.attempts WHERE job_id = '" + id + "' ORDER BY number"},
		"newest jobs":    {"jobs_newest_idx", "SELECT id FROM ledger.jobs ORDER BY created_at DESC, id DESC LIMIT 50"},
		"next page": {"jobs_newest_idx", `SELECT id FROM ledger.jobs
			WHERE (created_at, id) < (` + epoch0 + ` + interval '1 hour', '` + id + `') ORDER BY created_at DESC, id DESC LIMIT 50`},
		"unknown jobs": {"jobs_attention_idx", `SELECT id FROM ledger.jobs WHERE state = 'unknown'
			ORDER BY created_at DESC, id DESC LIMIT 50`},
		"due jobs":             {"jobs_timed_idx", "SELECT id FROM ledger.jobs WHERE state_reason IS DISTINCT FROM 'provider-paused' AND due_at <= " + epoch0 + " ORDER BY due_at LIMIT 50"},
		"due attempts":         {"attempts_due_idx", "SELECT number FROM ledger.attempts WHERE due_at <= " + epoch0 + " ORDER BY due_at LIMIT 50"},
		"unknown attempts":     {"attempts_in_flight_idx", "SELECT age FROM ledger.unknown_attempts"},
		"job behind an answer": {"jobs_pkey", "SELECT age FROM ledger.unknown_attempts"},
		"rejections of a job":  {"rejections_job_idx", "SELECT seq FROM ledger.rejections WHERE job_id = '" + id + "' ORDER BY seq"},
	} {
		plan := strings.Join(lines(t, conn, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) "+c.sql), "\n")
		require.Regexp(t, `(using|on) `+c.index+`\b`, plan, name)
		require.NotRegexp(t, `Seq Scan on (jobs|attempts|rejections)`, plan, name)
		// PostgreSQL counts aliases of the second branch: jobs, jobs_1.
		require.Contains(t, plan, "One-Time Filter: ('ledger_b'::text =", name)
		require.Contains(t, plan, "(never executed)", name)
	}
}

func manyRows(t *testing.T, conn *pgx.Conn, generation string) {
	t.Helper()
	exec(t, conn, `INSERT INTO `+generation+`.jobs (id, owner_id, idempotency_key, kind, kind_seq, fingerprint, input, state,
		version, completed_by, attempt_count, created_at, updated_at, due_at, requested_seq, seqs)
		SELECT ('00000000-0000-0000-0000-' || lpad(to_hex(i), 12, '0'))::UUID, 'o' || i % 10, i::TEXT, 'echo', 1, '\x00', '{}',
		CASE WHEN i % 500 = 0 THEN 'unknown' ELSE 'succeeded' END, 1, CASE WHEN i % 500 = 0 THEN NULL ELSE 1 END, 1,
		`+epoch0+` + i * interval '1 second', `+epoch0+`, CASE WHEN i % 500 = 0 THEN `+epoch0+` END, i, ARRAY[i]
		FROM generate_series(1, 10000) AS i`)
	exec(t, conn, `INSERT INTO `+generation+`.attempts (job_id, number, provider, state, reason, job_version, due_at,
		requested_at, unknown_since, finished_at, seqs)
		SELECT j.id, 1, 'p', j.state, 'initial', 1, j.due_at, j.created_at,
		CASE j.state WHEN 'unknown' THEN j.created_at END, CASE j.state WHEN 'succeeded' THEN j.created_at END, j.seqs
		FROM `+generation+`.jobs AS j`)
	exec(t, conn, `INSERT INTO `+generation+`.rejections (bucket, seq, at, entry, decision, reason, job_id)
		SELECT j.requested_seq % 16, j.requested_seq, j.created_at, 'attempt.claim', 'refused', 'already_claimed', j.id
		FROM `+generation+`.jobs AS j`)
}

// insertAttempt takes times as seconds after epoch0, -1 for none.
func insertAttempt(t *testing.T, conn *pgx.Conn, job string, number int, provider, state string, started, unknown, finished int) {
	t.Helper()
	at := func(seconds int) string {
		if seconds < 0 {
			return "NULL"
		}
		return fmt.Sprintf("%s + interval '%d seconds'", epoch0, seconds)
	}
	exec(t, conn, fmt.Sprintf(`INSERT INTO ledger_a.attempts (job_id, number, provider, state, reason, job_version,
		requested_at, started_at, unknown_since, finished_at, usage, worker, seqs)
		VALUES ('%s', %d, '%s', '%s', 'initial', 1, %s, %s, %s, %s, '{"tokens": 5}', 'w1', ARRAY[3])`,
		job, number, provider, state, at(0), at(started), at(unknown), at(finished)))
}

func TestRaces(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	won := int64(1)
	require.NoError(t, insertJob(t, conn, job{generation: GenerationA, id: idA, owner: "a", key: "1", state: "succeeded", completedBy: &won}))
	insertAttempt(t, conn, idA, 1, "quick", "succeeded", 1, -1, 10)
	insertAttempt(t, conn, idA, 2, "slow", "superseded", 2, -1, 14)
	insertAttempt(t, conn, idA, 3, "third", "cancelled", -1, -1, 10) // called off by the win
	insertAttempt(t, conn, idA, 4, "before", "cancelled", 1, -1, 5)  // resolved before the win: no race
	insertAttempt(t, conn, idA, 5, "broken", "failed", 1, -1, 5)
	insertAttempt(t, conn, idA, 6, "stopped", "unknown", 2, 11, -1)
	insertAttempt(t, conn, idA, 7, "overdue", "unknown", 2, 7, -1) // before the win: it lost all the same
	insertAttempt(t, conn, idA, 8, "refuses", "failed", 2, -1, 12) // after it
	exec(t, conn, "UPDATE ledger_a.attempts SET resolved_at = now(), resolved_by = 'ops' WHERE number = 4")

	require.NoError(t, insertJob(t, conn, job{generation: GenerationA, id: idB, owner: "a", key: "2", state: "cancelled"}))
	exec(t, conn, "UPDATE ledger_a.jobs SET cancelled_at = "+epoch0+" + interval '3 seconds' WHERE id = $1", idB)
	insertAttempt(t, conn, idB, 1, "slow", "superseded", 1, -1, 4)
	// It had failed before it was cancelled: its attempts lost to nobody.
	idC := "00000000-0000-0000-0000-00000000000c"
	require.NoError(t, insertJob(t, conn, job{generation: GenerationA, id: idC, owner: "a", key: "3", state: "cancelled"}))
	exec(t, conn, "UPDATE ledger_a.jobs SET completed_at = "+epoch0+" + interval '2 seconds', cancelled_at = "+epoch0+" + interval '3 seconds' WHERE id = $1", idC)
	insertAttempt(t, conn, idC, 1, "broken", "failed", 1, -1, 2)

	require.Equal(t, []string{
		"1 1 quick beats 2 slow: superseded, late 00:00:04, 12.000000 s, 5 tokens",
		"1 1 quick beats 3 third: cancelled, late 00:00:00, - s, 5 tokens",
		"1 1 quick beats 6 stopped: unknown, late 00:00:01, 9.000000 s, 5 tokens",
		"1 1 quick beats 7 overdue: unknown, late -00:00:03, 5.000000 s, 5 tokens",
		"1 1 quick beats 8 refuses: failed, late 00:00:02, 10.000000 s, 5 tokens",
		"2 - - beats 1 slow: superseded, late 00:00:01, 3.000000 s, 5 tokens",
	}, lines(t, conn, `SELECT format('%s %s %s beats %s %s: %s, late %s, %s s, %s tokens',
		j.idempotency_key, COALESCE(r.winner_attempt::TEXT, '-'), COALESCE(r.winner_provider, '-'), r.loser_attempt,
		r.loser_provider, r.loser_state, r.late, COALESCE(r.loser_seconds::TEXT, '-'), r.loser_usage->>'tokens')
		FROM ledger.races AS r JOIN ledger.jobs AS j ON j.id = r.job_id ORDER BY j.idempotency_key, r.loser_attempt`))
}

func TestUnknownAttempts(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	won := int64(2)
	require.NoError(t, insertJob(t, conn, job{generation: GenerationA, id: idA, owner: "a", key: "1", state: "unknown"}))
	insertAttempt(t, conn, idA, 1, "p", "unknown", 1, 5, -1)
	require.NoError(t, insertJob(t, conn, job{generation: GenerationA, id: idB, owner: "a", key: "2", state: "succeeded", completedBy: &won}))
	insertAttempt(t, conn, idB, 1, "p", "unknown", 1, 5, -1)
	insertAttempt(t, conn, idB, 2, "p", "succeeded", 1, -1, 5)
	insertAttempt(t, conn, idB, 3, "p", "running", 1, -1, -1)
	exec(t, conn, "UPDATE ledger_a.jobs SET attempt_count = 3 WHERE id = $1", idB)

	require.Equal(t, []string{
		"1 unknown blocks t others 0 in flight 0 by w1",
		"2 succeeded blocks f others 2 in flight 1 by w1",
	}, lines(t, conn, `SELECT format('%s %s blocks %s others %s in flight %s by %s', u.idempotency_key, u.job_state,
		u.blocks_job, u.other_attempts, u.other_in_flight, u.worker) FROM ledger.unknown_attempts AS u
		WHERE u.age > interval '1 hour' ORDER BY u.idempotency_key`))
}

func TestProviderHealth(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	require.NoError(t, insertJob(t, conn, job{generation: GenerationA, id: idA, owner: "a", key: "1", state: "running"}))
	for number := 1; number <= 100; number++ {
		insertAttempt(t, conn, idA, number, "p", "failed", 0, -1, number)
	}
	insertAttempt(t, conn, idA, 101, "p", "expired", -1, -1, 5) // never started: no duration
	insertAttempt(t, conn, idA, 102, "p", "running", 1, -1, -1)
	insertAttempt(t, conn, idA, 103, "q", "starting", -1, -1, -1)
	require.Equal(t, []string{
		"p echo: 102 attempts, 100 failed, 1 expired, 1 running, p50 00:00:50, p95 00:01:35, p99 00:01:39",
		"q echo: 1 attempts, 0 failed, 0 expired, 0 running, p50 , p95 , p99 ",
	}, lines(t, conn, `SELECT format('%s %s: %s attempts, %s failed, %s expired, %s running, p50 %s, p95 %s, p99 %s', h.provider,
		h.kind, h.attempts, h.failed, h.expired, h.running, h.p50, h.p95, h.p99) FROM ledger.provider_health AS h ORDER BY h.provider`))
}
