package scripts_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/internal/testenv/ledgerenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// sampleRows are enough for every example to have an answer: a raced job with a
// loser, an unknown attempt, a refusal.
const sampleRows = `
INSERT INTO ledger_a.jobs (id, owner_id, idempotency_key, kind, kind_seq, fingerprint, input, state, version,
    completed_by, attempt_count, created_at, updated_at, completed_at, requested_seq, completed_seq, seqs)
VALUES ('932e6392-de75-5f3a-ac8f-94870d967406', 'acme', 'order-17', 'summarize', 2, '\x00', '{}', 'succeeded', 2,
    1, 3, now(), now(), now(), 3, 9, ARRAY[3, 9]);
INSERT INTO ledger_a.attempts (job_id, number, provider, state, reason, job_version, requested_at, started_at,
    unknown_since, finished_at, seqs)
VALUES ('932e6392-de75-5f3a-ac8f-94870d967406', 1, 'primary', 'succeeded', 'initial', 1, now(), now(), NULL, now(), ARRAY[3, 9]),
    ('932e6392-de75-5f3a-ac8f-94870d967406', 2, 'fallback', 'superseded', 'hedge', 1, now(), now(), NULL, now(), ARRAY[5, 10]),
    ('932e6392-de75-5f3a-ac8f-94870d967406', 3, 'third', 'unknown', 'hedge', 1, now(), now(), now(), NULL, ARRAY[6, 11]),
    ('932e6392-de75-5f3a-ac8f-94870d967406', 4, 'third', 'failed', 'hedge', 1, now(), now(), NULL, now(), ARRAY[6, 11]);
INSERT INTO ledger_a.jobs (id, owner_id, idempotency_key, kind, kind_seq, fingerprint, input, state, state_reason, version,
    attempt_count, created_at, updated_at, requested_seq, seqs)
VALUES ('8d219186-b90f-51e6-9cec-d904373c26c5', 'a', 'bc', 'summarize', 2, '\x00', '{}', 'waiting', 'held', 1,
    0, now(), now(), 12, ARRAY[12]);
INSERT INTO ledger_a.rejections (bucket, seq, at, entry, owner_id, kind, job_id, decision, reason, raw)
VALUES (10, 10, now(), 'attempt.request', 'acme', 'summarize', '932e6392-de75-5f3a-ac8f-94870d967406', 'refused', 'attempt_in_flight', NULL),
    (13, 13, now(), 'job.request', NULL, NULL, NULL, 'malformed', 'bad_entry', 'nonsense');
INSERT INTO ledger_a.kinds (name, seq, definition, digest, at) VALUES ('summarize', 2, '{}', '\x00', now());
INSERT INTO ledger_a.provider_verifications (name, seq, kind, provider_digest, passed, at)
VALUES ('fallback', 14, 'summarize', '\x00', true, now());
INSERT INTO ledger_a.checkpoints (shard, seq, chain, effects_seq, epoch, rules, updated_at)
VALUES (0, 14, '\x00', 14, 1, 1, now());`

var comment = regexp.MustCompile(`(?m)^--.*$`)

// Every example runs on an empty ledger, and has an answer where there are rows.
func TestAnalystsExamplesRun(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("analysts.sql")
	require.NoError(t, err)
	var examples []string
	for statement := range strings.SplitSeq(comment.ReplaceAllString(string(text), ""), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			examples = append(examples, statement)
		}
	}
	require.Len(t, examples, 15)
	for name, sample := range map[string]string{"empty": "", "with rows": sampleRows} {
		conn, err := pgx.Connect(t.Context(), ledgerenv.Database(t))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
		_, err = conn.Exec(t.Context(), sample)
		require.NoError(t, err)
		for _, example := range examples {
			rows, err := conn.Query(t.Context(), example)
			require.NoError(t, err, example)
			found := 0
			for rows.Next() {
				_, err := rows.Values()
				require.NoError(t, err, example)
				found++
			}
			require.NoError(t, rows.Err(), "%s: %s", name, example)
			require.Equal(t, sample != "", found > 0, "%s: %s", name, example)
		}
	}
}
