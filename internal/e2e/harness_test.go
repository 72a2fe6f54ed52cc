package e2e_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/internal/testenv/ledgerenv"
	"jobledger/workers/presence"
)

const (
	commandTimeout = time.Minute
	// patience bounds what must happen in the end; usually it is there at once.
	patience = time.Minute
)

// A setup says what a world is made of. Its zero value is an empty ledger on the
// tests' shared servers.
type setup struct {
	// yaml holds the kinds, the providers and whatever else the configuration
	// has besides nats and api.
	yaml string
	// nats and database are URLs of servers to use instead of the shared ones.
	// The database is empty.
	nats, database string
	shards         int
	replicas       int    // of the stream; 0: 1
	tokens         string // the content of api.tokens_file; "": no tokens
}

// A world is a ledger of a test's own, and the processes that serve it.
type world struct {
	t        testing.TB
	dir      string
	config   string // path
	nats     string // URL
	database string // URL

	js     jetstream.JetStream // a connection of the test's own
	stream string
	prefix string
	pool   *pgxpool.Pool // connects when first used

	processes []*process
	stubs     []*stub

	// binary is what the world runs from now on; nil: program.
	binary func() (string, error)
}

// newWorld makes a ledger with `jobledger init`. Nothing serves it yet.
func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), nats: s.nats, database: s.database}
	if w.nats == "" {
		w.nats = testenv.NATSURL(t)
	}
	if w.database == "" {
		w.database = ledgerenv.Database(t)
	}
	w.name()
	w.writeConfig(s)
	args := []string{"init"}
	if s.shards > 0 {
		args = append(args, "--shards", fmt.Sprint(s.shards))
	}
	if s.replicas > 0 {
		args = append(args, "--replicas", fmt.Sprint(s.replicas))
	}
	w.run(args...).is(t, 0)
	w.openPool()
	t.Cleanup(w.stopAll)
	return w
}

// startWorld makes a ledger, serves all roles in one process, and defines what
// the YAML says.
func startWorld(t testing.TB, yaml string) (*world, *client) {
	t.Helper()
	w := newWorld(t, setup{yaml: yaml})
	p := w.serve("api,projector,worker")
	w.apply()
	return w, p.client("acme")
}

// name finds names that no other test uses.
func (w *world) name() {
	w.t.Helper()
	var err error
	w.js, err = jetstream.New(testenv.Connect(w.t, w.nats))
	require.NoError(w.t, err)
	w.prefix = "e" + strings.ToLower(rand.Text()[:12])
	w.stream = "E2E_" + w.prefix
	w.t.Cleanup(w.deleteStream)
}

func (w *world) deleteStream() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if w.js.Conn().IsClosed() || !w.js.Conn().IsConnected() {
		return // the test took its own server away
	}
	err := w.js.DeleteStream(ctx, w.stream)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		w.t.Errorf("delete the test's stream: %v", err)
	}
	err = w.js.DeleteKeyValue(ctx, presence.Bucket(w.stream))
	if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
		w.t.Errorf("delete the bucket of the test's workers: %v", err)
	}
}

func (w *world) writeConfig(s setup) {
	w.t.Helper()
	w.config = filepath.Join(w.dir, "jobledger.yaml")
	tokens := ""
	if s.tokens != "" {
		tokens = ", tokens_file: tokens"
		require.NoError(w.t, os.WriteFile(filepath.Join(w.dir, "tokens"), []byte(s.tokens), 0o600))
	}
	text := fmt.Sprintf("nats: {url: %q, stream: %s, subject_prefix: %s}\napi: {listen: \"127.0.0.1:0\", metrics: \"\"%s}\n%s",
		w.nats, w.stream, w.prefix, tokens, s.yaml)
	require.NoError(w.t, os.WriteFile(w.config, []byte(text), 0o600))
}

func (w *world) openPool() {
	w.t.Helper()
	cfg, err := pgxpool.ParseConfig(w.database)
	require.NoError(w.t, err)
	cfg.MaxConns = 4
	w.pool, err = pgxpool.NewWithConfig(w.ctx(), cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(w.pool.Close)
}

// ctx bounds a step of the test. It outlives the test's own context, so that
// cleanups can use it.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	w.t.Cleanup(cancel)
	return ctx
}

// environment is what the program gets to see.
func (w *world) environment(database string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "JOBLEDGER_") {
			env = append(env, v)
		}
	}
	return append(env, "JOBLEDGER_CONFIG="+w.config, "JOBLEDGER_DATABASE="+database)
}

// An output is what a run of the program said.
type output struct {
	args           []string
	stdout, stderr string
	code           int
}

func (o output) is(t testing.TB, code int) output {
	t.Helper()
	require.Equal(t, code, o.code, "exit status of jobledger %s\n%s%s", strings.Join(o.args, " "), o.stdout, o.stderr)
	return o
}

// run runs a command of the program to its end.
func (w *world) run(args ...string) output {
	w.t.Helper()
	path, err := w.executable()
	require.NoError(w.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = w.dir, w.environment(w.database)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("run jobledger %v: %v", args, err)
	}
	return output{args, stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// executable is the path of what the world runs.
func (w *world) executable() (string, error) {
	if w.binary != nil {
		return w.binary()
	}
	return program()
}

// apply defines the kinds and providers of the configuration. A projector must
// be running.
func (w *world) apply() {
	w.t.Helper()
	w.run("kind", "apply", w.config).is(w.t, 0)
}

// number returns the one number that the query gives, over the schema ledger.
func (w *world) number(sql string, args ...any) int {
	w.t.Helper()
	return queried[int](w, sql, args)
}

// text returns the one value that the query gives, as text.
func (w *world) text(sql string, args ...any) string {
	w.t.Helper()
	return queried[string](w, sql, args)
}

func queried[T any](w *world, sql string, args []any) (v T) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(w.t, w.pool.QueryRow(ctx, sql, args...).Scan(&v), sql)
	return v
}

// eventually waits until the query gives n.
func (w *world) eventually(n int, sql string, args ...any) {
	w.t.Helper()
	testenv.Eventually(w.t, patience, func() (bool, string) {
		found := w.number(sql, args...)
		return found == n, fmt.Sprintf("%s gives %d, expected %d", sql, found, n)
	})
}

// streamEnd returns the stream's last sequence.
func (w *world) streamEnd() uint64 {
	w.t.Helper()
	s, err := w.js.Stream(w.ctx(), w.stream)
	require.NoError(w.t, err)
	return s.CachedInfo().State.LastSeq
}

// caughtUp waits until the tables have reached the stream's end.
func (w *world) caughtUp() {
	w.t.Helper()
	testenv.Eventually(w.t, 2*patience, func() (bool, string) {
		end := w.streamEnd()
		seq := w.number("SELECT min(seq) FROM ledger.checkpoints")
		return uint64(seq) == end, fmt.Sprintf("the tables are at %d of %d entries", seq, end)
	})
}

// verify is the judge of every test: the tables have caught up and are the fold
// of the stream, cell by cell; nothing breaks an invariant; and no attempt was
// sent to a provider twice.
func (w *world) verify() {
	w.t.Helper()
	w.caughtUp()
	w.run("verify").is(w.t, 0)
	for sql, what := range invariants {
		require.Zero(w.t, w.number(sql), what)
	}
	for _, s := range w.stubs {
		for call, n := range s.perAttempt() {
			require.Equal(w.t, 1, n, "wire calls of %s to provider %s", call, s.name)
		}
	}
}

// invariants are queries that count what must not be.
var invariants = map[string]string{
	`SELECT count(*) FROM (SELECT 1 FROM ledger.attempts WHERE state = 'succeeded' GROUP BY job_id HAVING count(*) > 1) AS x`: "jobs with two winners",
	`SELECT count(*) FROM ledger.jobs AS j WHERE j.state = 'succeeded' AND NOT EXISTS
		(SELECT 1 FROM ledger.attempts AS a WHERE a.job_id = j.id AND a.number = j.completed_by AND a.state = 'succeeded')`: "succeeded jobs without a winner",
	`SELECT count(*) FROM ledger.jobs WHERE (state = 'succeeded') <> (completed_by IS NOT NULL) OR (state = 'succeeded') <> (result IS NOT NULL)`: "jobs whose state and result disagree",
	`SELECT count(*) FROM (SELECT 1 FROM ledger.attempts AS a JOIN ledger.jobs AS j ON j.id = a.job_id
		JOIN ledger.kinds AS k ON k.name = j.kind AND k.seq = j.kind_seq
		WHERE a.state IN ('starting', 'running', 'unknown') AND k.definition->>'mode' = 'exclusive'
		GROUP BY a.job_id HAVING count(*) > 1) AS x`: "exclusive jobs with two attempts in flight",
}
