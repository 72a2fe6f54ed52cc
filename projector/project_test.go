package projector

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/internal/testenv/ledgerenv"
	"jobledger/ledger"
)

// world is a ledger of a test's own: tables, a stream, and ways to append.
type world struct {
	t      *testing.T
	pool   *pgxpool.Pool
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	prefix string
	url    string
}

func newWorld(t *testing.T, shards int) *world {
	t.Helper()
	l := ledgerenv.New(t)
	w := &world{t: t, nc: l.JS.Conn(), url: l.DatabaseURL, js: l.JS, prefix: l.Prefix}
	ctx := w.ctx()
	var err error
	w.pool, err = NewPool(ctx, w.url, 0)
	require.NoError(t, err)
	t.Cleanup(w.pool.Close)
	require.NoError(t, Initialize(ctx, w.pool, Meta{Stream: l.Stream, Prefix: w.prefix, Shards: shards}))
	w.stream, err = w.js.Stream(ctx, l.Stream)
	require.NoError(t, err)
	return w
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

// Append makes the world an Appender without any of the real one's virtues.
func (w *world) Append(ctx context.Context, m ledger.Message) (uint64, error) {
	msg := nats.NewMsg(w.prefix + "." + m.Subject)
	msg.Data = m.Data
	var opts []jetstream.PublishOpt
	if m.ID != "" {
		opts = append(opts, jetstream.WithMsgID(m.ID))
	}
	ack, err := w.js.PublishMsg(ctx, msg, opts...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

func (w *world) append(b ledger.Body) uint64 {
	w.t.Helper()
	seq, err := w.Append(w.ctx(), b.Message())
	require.NoError(w.t, err)
	return seq
}

// project runs a projector until the returned function is called.
func (w *world) project(opts ...func(*Options)) (stop func()) {
	w.t.Helper()
	o := Options{Pool: w.pool, Conn: w.nc, Stream: w.stream, Prefix: w.prefix, Appender: w, Log: slog.New(slog.NewTextHandler(w.t.Output(), nil))}
	for _, f := range opts {
		f(&o)
	}
	p, err := New(o)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = func() { cancel(); require.NoError(w.t, <-done); done <- nil }
	w.t.Cleanup(stop)
	return stop
}

// caughtUp waits until all shards have folded the entry at seq.
func (w *world) caughtUp(seq uint64) {
	w.t.Helper()
	q := NewQueries(w.pool)
	testenv.Eventually(w.t, 20*time.Second, func() (bool, string) {
		points, err := q.Checkpoints(w.ctx())
		for _, p := range points {
			if p < seq {
				return false, fmt.Sprintf("checkpoints %v, waiting for %d", points, seq)
			}
		}
		return err == nil, fmt.Sprint(err)
	})
}

func echoKind() *ledger.KindDefinition {
	k := ledger.DefaultKind()
	k.Name, k.Providers = "echo", []string{"primary", "fallback"}
	return &ledger.KindDefinition{Kind: k}
}

func TestOneLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.project()
	w.append(&ledger.Rules{Rules: 1})
	w.append(echoKind())
	req := &ledger.Request{Owner: "acme", Key: "order-17", Kind: "echo", Input: []byte(`{"b":1.0,"a":[1e2]}`)}
	seq := w.append(req)
	w.caughtUp(seq + 1) // the start follows
	m, err := w.stream.GetMsg(w.ctx(), seq+1)
	require.NoError(t, err)
	start, err := ledger.ParseStart("primary", m.Data)
	require.NoError(t, err)
	require.Equal(t, string(req.Input), string(start.Input), "the input is verbatim")
	w.append(&ledger.Claim{Job: start.Job, Attempt: 1, JobVersion: 1, Provider: "primary", Claim: "0123456789abcdef", Worker: "w", StartSeq: seq + 1})
	seq = w.append(&ledger.Completion{Job: start.Job, Attempt: 1, JobVersion: 1, Provider: "primary", Claim: "0123456789abcdef",
		Outcome: ledger.OutcomeSucceeded, Result: []byte(`{"ok":true}`)})
	w.caughtUp(seq)
	j, err := NewQueries(w.pool).Job(w.ctx(), start.Job)
	require.NoError(t, err)
	require.Equal(t, ledger.JobSucceeded, j.State)
	require.Equal(t, `{"ok": true}`, string(j.Result))
	require.Len(t, j.Attempts, 1)
	require.Equal(t, ledger.AttemptSucceeded, j.Attempts[0].State)
	require.Equal(t, []uint64{3, seq}, j.Seqs)
	w.verify()
}

// verify requires that the tables equal the fold of the stream.
func (w *world) verify() {
	w.t.Helper()
	r := w.compare()
	require.Zero(w.t, r.Found, "%v", r.Differences)
}

func (w *world) compare() *VerifyReport {
	w.t.Helper()
	r, err := Verify(w.ctx(), VerifyOptions{Pool: w.pool, Stream: w.stream, Prefix: w.prefix})
	require.NoError(w.t, err)
	return r
}

func TestVerifyFindsEveryChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	stop := w.project()
	w.append(echoKind())
	w.append(&ledger.ProviderDefinition{Name: "primary", Type: "exec", Definition: []byte(`{"a":1}`)})
	w.append(&ledger.Verification{Provider: "fallback", Kind: "echo", Passed: true, ExpiresAt: time.Now().Add(time.Hour)})
	req := &ledger.Request{Owner: "acme", Key: "order-17", Kind: "echo", Input: []byte(`{"b":1.0,"a":[1e2]}`)}
	w.append(req)
	req.Input = []byte(`2`)
	w.caughtUp(w.append(req))
	stop()
	w.verify()
	for _, c := range []struct{ change, table, column string }{
		{`UPDATE ledger_a.jobs SET input = '{"b":1.0,"a":[101]}'`, "jobs", "input"},
		{`UPDATE ledger_a.jobs SET version = version + 1`, "jobs", "version"},
		{`UPDATE ledger_a.jobs SET seqs = '{1}'`, "jobs", "seqs"},
		{`UPDATE ledger_a.attempts SET worker = 'x'`, "attempts", "worker"},
		{`UPDATE ledger_a.attempts SET requested_at = requested_at + '1 us'::interval`, "attempts", "requested_at"},
		{`UPDATE ledger_a.rejections SET detail = 'x'`, "rejections", "detail"},
		{`UPDATE ledger_a.kinds SET definition = '{}'`, "kinds", "definition"},
		{`UPDATE ledger_a.providers SET type = 'x'`, "providers", "type"},
		{`UPDATE ledger_a.provider_verifications SET passed = false`, "provider_verifications", "passed"},
		{`DELETE FROM ledger_a.jobs`, "jobs", ""},
		{`INSERT INTO ledger_a.providers SELECT 'other', seq, type, definition, digest, at, actor FROM ledger_a.providers`, "providers", ""},
	} {
		t.Run(c.change, func(t *testing.T) {
			tx, err := w.pool.Begin(w.ctx())
			require.NoError(t, err)
			_, err = tx.Exec(w.ctx(), c.change)
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(w.ctx())) }()
			v := &verifier{o: VerifyOptions{Stream: w.stream, Prefix: w.prefix, MaxDifferences: 9, Log: slog.New(slog.DiscardHandler)}, report: &VerifyReport{}}
			store, err := OpenStore(w.ctx(), w.pool)
			require.NoError(t, err)
			points, err := store.checkpointsIn(w.ctx(), tx)
			require.NoError(t, err)
			require.NoError(t, v.fold(w.ctx(), points))
			require.NoError(t, v.compare(w.ctx(), tx, store.generation))
			require.Equal(t, 1, v.report.Found, "%v", v.report.Differences)
			require.Equal(t, c.table, v.report.Differences[0].Table)
			require.Equal(t, c.column, v.report.Differences[0].Column)
		})
	}
}
