package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

var generations = []string{GenerationA, GenerationB}

// generationTables are the tables that each generation has, and ledger a view
// of.
var generationTables = []string{
	"attempts", "checkpoints", "jobs", "kinds", "provider_verifications", "providers", "rejections",
}

// job is what a test says about a job; the rest is filler.
type job struct {
	generation, id, owner, key, state string
	completedBy                       *int64
}

const (
	idA = "932e6392-de75-5f3a-ac8f-94870d967406"
	idB = "8d219186-b90f-51e6-9cec-d904373c26c5"

	// epoch0 is the time that the tests' rows count their seconds from.
	epoch0 = "TIMESTAMPTZ '2025-01-02 03:04:00Z'"
)

func insertJob(t *testing.T, conn *pgx.Conn, j job) error {
	t.Helper()
	_, err := conn.Exec(testContext(t), `INSERT INTO `+j.generation+`.jobs
		(id, owner_id, idempotency_key, kind, kind_seq, fingerprint, input, state, version, completed_by,
		 attempt_count, created_at, updated_at, completed_at, requested_seq, seqs)
		VALUES ($1, $2, $3, 'echo', 1, '\x00', '{}', $4, 1, $5, 1, `+epoch0+`, `+epoch0+`,
		 CASE WHEN $4 IN ('succeeded', 'failed') THEN `+epoch0+` + interval '10 seconds' END, 2, ARRAY[2])`,
		j.id, j.owner, j.key, j.state, j.completedBy)
	return err
}

func requireCode(t *testing.T, err error, code, constraint string) {
	t.Helper()
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	require.True(t, ok, "want SQLSTATE %s, got %v", code, err)
	require.Equal(t, code, pgErr.Code, "%v", err)
	require.Equal(t, constraint, pgErr.ConstraintName)
}

func TestOneJobForOwnerAndKey(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	for _, g := range generations {
		first := job{generation: g, id: idA, owner: "acme", key: "order-17", state: "waiting"}
		require.NoError(t, insertJob(t, conn, first), g)

		again := first
		again.id = idB // a bug that derives another id must not get through
		requireCode(t, insertJob(t, conn, again), "23505", "jobs_owner_key")

		for _, other := range []job{
			{generation: g, id: "00000000-0000-0000-0000-000000000001", owner: "Acme", key: "order-17", state: "waiting"},
			{generation: g, id: "00000000-0000-0000-0000-000000000002", owner: "acme", key: "Order-17", state: "waiting"},
			{generation: g, id: "00000000-0000-0000-0000-000000000003", owner: "acme", key: "é", state: "waiting"},
			{generation: g, id: "00000000-0000-0000-0000-000000000004", owner: "acme", key: "e\u0301", state: "waiting"},
		} {
			require.NoError(t, insertJob(t, conn, other), "text compares by bytes: %+v", other)
		}
	}
}

func TestConstraintsHold(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	won := int64(1)
	for _, g := range generations {
		requireCode(t, insertJob(t, conn, job{generation: g, id: idA, owner: "a", key: "1", state: "done"}),
			"23514", "jobs_state_known")
		requireCode(t, insertJob(t, conn, job{generation: g, id: idA, owner: "a", key: "2", state: "succeeded"}),
			"23514", "jobs_result_has_winner")
		requireCode(t, insertJob(t, conn, job{generation: g, id: idA, owner: "a", key: "3", state: "failed", completedBy: &won}),
			"23514", "jobs_result_has_winner")

		for constraint, values := range map[string]string{
			"attempts_state_known":   "1, 'done', 'initial', NULL, now()",
			"attempts_reason_known":  "1, 'running', 'boredom', NULL, NULL",
			"attempts_reach_known":   "1, 'failed', 'initial', 'world', now()",
			"attempts_end_has_time":  "1, 'succeeded', 'initial', NULL, NULL",
			"attempts_number_counts": "0, 'running', 'initial', NULL, NULL",
		} {
			_, err := conn.Exec(testContext(t), fmt.Sprintf(`INSERT INTO %s.attempts
				(job_id, provider, job_version, requested_at, seqs, number, state, reason, failure_reach, finished_at)
				VALUES ('%s', 'p', 1, now(), ARRAY[2], %s)`, g, idA, values))
			requireCode(t, err, "23514", constraint)
		}
		for constraint, values := range map[string]string{
			"rejections_bucket_of_seq":  "2, 17, 'refused', NULL",
			"rejections_decision_known": "1, 17, 'maybe', NULL",
			"rejections_raw_bounded":    "1, 17, 'malformed', decode(repeat('00', 4097), 'hex')",
		} {
			_, err := conn.Exec(testContext(t), fmt.Sprintf(`INSERT INTO %s.rejections
				(at, entry, reason, bucket, seq, decision, raw) VALUES (now(), 'job.request', 'r', %s)`, g, values))
			requireCode(t, err, "23514", constraint)
		}
	}
	_, err := conn.Exec(testContext(t), "UPDATE ledger.active SET name = 'public'")
	requireCode(t, err, "23514", "active_name_known")
	_, err = conn.Exec(testContext(t), "INSERT INTO ledger.active (id, name, epoch, switched_at) VALUES (2, 'ledger_b', 1, now())")
	requireCode(t, err, "23514", "active_single_row")
}

const (
	columnsOf = `SELECT c.table_name || '.' || c.column_name || ' ' || c.ordinal_position || ' ' || c.udt_name
		|| CASE c.is_nullable WHEN 'NO' THEN ' NOT NULL' ELSE '' END || ' ' || COALESCE(c.column_default, '')
		FROM information_schema.columns AS c WHERE c.table_schema = $1 ORDER BY 1`
	indexesOf = `SELECT replace(i.indexdef, $1 || '.', '') FROM pg_indexes AS i WHERE i.schemaname = $1 ORDER BY 1`

	constraintsOf = `SELECT r.relname || '.' || c.conname || ' ' || pg_get_constraintdef(c.oid)
		FROM pg_constraint AS c JOIN pg_class AS r ON r.oid = c.conrelid JOIN pg_namespace AS n ON n.oid = r.relnamespace
		WHERE n.nspname = $1 ORDER BY 1`
	tablesOf = `SELECT t.table_name::TEXT FROM information_schema.tables AS t WHERE t.table_schema = $1 ORDER BY 1`

	commentsOf = `SELECT r.relname || COALESCE('.' || a.attname, '') || ' ' || d.description
		FROM pg_description AS d JOIN pg_class AS r ON r.oid = d.objoid AND d.classoid = 'pg_class'::regclass
		JOIN pg_namespace AS n ON n.oid = r.relnamespace
		LEFT JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum = d.objsubid AND d.objsubid > 0
		WHERE n.nspname = $1 AND r.relname = ANY ($2) ORDER BY 1`
)

func TestGenerationsAreAlike(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	for name, query := range map[string]string{
		"columns": columnsOf, "indexes": indexesOf, "constraints": constraintsOf, "tables": tablesOf,
	} {
		a, b := lines(t, conn, query, GenerationA), lines(t, conn, query, GenerationB)
		require.NotEmpty(t, a, name)
		require.Equal(t, a, b, name)
	}
	require.Equal(t, generationTables, lines(t, conn, tablesOf, GenerationA))

	comments := lines(t, conn, commentsOf, GenerationA, generationTables)
	require.Equal(t, comments, lines(t, conn, commentsOf, GenerationB, generationTables), "comments")
	require.Equal(t, comments, lines(t, conn, commentsOf, schemaName, generationTables), "comments on the views")
}

func TestEverythingIsCommented(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	const without = `
		SELECT n.nspname || '.' || r.relname || COALESCE('.' || a.attname, '') FROM pg_class AS r
		JOIN pg_namespace AS n ON n.oid = r.relnamespace
		LEFT JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE n.nspname IN ('ledger', 'ledger_a', 'ledger_b') AND r.relkind IN ('r', 'v', 'p', 'm')
		  AND (obj_description(r.oid, 'pg_class') IS NULL OR col_description(r.oid, a.attnum) IS NULL)
		UNION ALL
		SELECT n.nspname FROM pg_namespace AS n
		WHERE n.nspname LIKE 'ledger%' AND obj_description(n.oid, 'pg_namespace') IS NULL`
	require.Empty(t, lines(t, conn, without), "tables, views, columns or schemas without a comment")

	exec(t, conn, "COMMENT ON COLUMN ledger.races.late IS NULL")
	exec(t, conn, "CREATE TABLE ledger_a.forgotten (id INT8 PRIMARY KEY)")
	missing := lines(t, conn, without)
	require.ElementsMatch(t, []string{"ledger.races.late", "ledger_a.forgotten.id"}, missing, "the check can fail")
}

// The tables hold what the contract promises to people who write SQL.
func TestContractColumns(t *testing.T) {
	t.Parallel()
	conn := migrated(t)
	promised := map[string]string{
		"jobs": `id owner_id idempotency_key kind kind_seq fingerprint input provider state state_reason version
			completed_by result failure_class failure_message attempt_count run_at created_at updated_at completed_at
			cancelled_at cancelled_by due_at requested_seq completed_seq seqs`,
		"attempts": `job_id number provider state reason job_version idempotency_key worker claim_hash start_by deadline
			due_at requested_at started_at unknown_since finished_at failure_class failure_message executed provider_ref
			usage completion_digest resolved_at resolved_by resolution_reason start_seq seqs`,
		"rejections": `bucket seq at entry actor owner_id idempotency_key kind provider job_id attempt decision reason
			detail raw`,
		"kinds": "name seq", "providers": "name seq", "provider_verifications": "name seq",
		"checkpoints": "shard seq chain effects_seq epoch token",
		"ledger_meta": "shards", "active": "name",
		"unknown_attempts": "age", "races": "loser_seconds loser_usage", "provider_health": "provider kind attempts",
	}
	for relation, columns := range promised {
		got := lines(t, conn, `SELECT c.column_name::TEXT FROM information_schema.columns AS c
			WHERE c.table_schema = 'ledger' AND c.table_name = $1`, relation)
		require.Subset(t, got, strings.Fields(columns), relation)
	}
}
