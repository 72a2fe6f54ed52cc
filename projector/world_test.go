package projector

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
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
	name   string // of the stream
	prefix string
	url    string
}

func newWorld(t *testing.T, shards int) *world {
	t.Helper()
	return newWorldOn(t, ledgerenv.Database(t), shards)
}

// newWorldOn returns a world with tables that are empty.
func newWorldOn(t *testing.T, url string, shards int) *world {
	t.Helper()
	js, name, prefix := testenv.Stream(t)
	w := &world{t: t, nc: js.Conn(), url: url, js: js, name: name, prefix: prefix}
	var err error
	w.stream, err = w.js.Stream(w.ctx(), name)
	require.NoError(t, err)
	w.initialize(shards)
	return w
}

// onDatabase returns a world with the same stream and tables of its own.
func (w *world) onDatabase(t *testing.T, url string, shards int) *world {
	t.Helper()
	other := *w
	other.t, other.url = t, url
	other.initialize(shards)
	return &other
}

func (w *world) initialize(shards int) {
	w.t.Helper()
	w.pool = w.openPool(w.url)
	require.NoError(w.t, Initialize(w.ctx(), w.pool, Meta{Stream: w.name, Prefix: w.prefix, Shards: shards}))
}

// reset empties the tables, so that a test can use them again.
func reset(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	for _, table := range append(slices.Collect(maps.Keys(tables)), "checkpoints") {
		_, err := conn.Exec(t.Context(), "DELETE FROM ledger_a."+table+" WHERE true")
		require.NoError(t, err)
	}
	_, err = conn.Exec(t.Context(), "DELETE FROM ledger.ledger_meta WHERE true")
	require.NoError(t, err)
}

// openPool opens a pool, like NewPool, until the test ends.
func (w *world) openPool(url string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	w.t.Helper()
	pool, err := NewPool(w.ctx(), url, 0)
	require.NoError(w.t, err)
	if len(change) > 0 {
		cfg := pool.Config()
		pool.Close()
		for _, f := range change {
			f(cfg)
		}
		pool, err = pgxpool.NewWithConfig(w.ctx(), cfg)
		require.NoError(w.t, err)
	}
	w.t.Cleanup(pool.Close)
	return pool
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

// put appends a body as it stands, without a message id.
func (w *world) put(subject, data string) uint64 {
	w.t.Helper()
	seq, err := w.Append(w.ctx(), ledger.Message{Subject: subject, Data: []byte(data)})
	require.NoError(w.t, err)
	return seq
}

// ask appends an entry that wants its decision on a subject.
func (w *world) ask(b ledger.Body, reply string) uint64 {
	w.t.Helper()
	m := b.Message()
	msg := nats.NewMsg(w.prefix + "." + m.Subject)
	msg.Data = m.Data
	msg.Header.Set(ledger.ReplyHeader, reply)
	ack, err := w.js.PublishMsg(w.ctx(), msg)
	require.NoError(w.t, err)
	return ack.Sequence
}

// run starts a projector. Its error comes when Run returns; cancel ends it.
func (w *world) run(opts ...func(*Options)) (p *Projector, cancel context.CancelFunc, done <-chan error) {
	w.t.Helper()
	o := Options{Pool: w.pool, Conn: w.nc, Stream: w.stream, Prefix: w.prefix, Appender: w, Log: slog.New(slog.NewTextHandler(w.t.Output(), nil))}
	for _, f := range opts {
		f(&o)
	}
	p, err := New(o)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		result <- p.Run(ctx)
	}()
	w.t.Cleanup(func() { cancel(); <-ended })
	return p, cancel, result
}

// project runs a projector until the returned function is called.
func (w *world) project(opts ...func(*Options)) (stop func()) {
	w.t.Helper()
	_, cancel, done := w.run(opts...)
	stopped := false
	return func() {
		w.t.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		require.NoError(w.t, receive(w.t, done, "the projector's end"))
	}
}

// receive waits for a value.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(40 * time.Second):
		require.FailNow(t, "nothing came", what)
		panic("unreachable")
	}
}

// caughtUp waits until all shards have folded the entry at seq.
func (w *world) caughtUp(seq uint64) {
	w.t.Helper()
	q := NewQueries(w.pool)
	testenv.Eventually(w.t, 40*time.Second, func() (bool, string) {
		points, err := q.Checkpoints(w.ctx())
		for _, p := range points {
			if p < seq {
				return false, fmt.Sprintf("checkpoints %v, waiting for %d", points, seq)
			}
		}
		return err == nil, fmt.Sprint(err)
	})
}

// settled waits until the effects of all entries up to seq are noted as done.
func (w *world) settled(seq uint64) {
	w.t.Helper()
	testenv.Eventually(w.t, 40*time.Second, func() (bool, string) {
		var least uint64
		err := w.pool.QueryRow(w.ctx(), "SELECT min(effects_seq) FROM ledger.checkpoints").Scan(&least)
		return err == nil && least >= seq, fmt.Sprintf("effects_seq %d of %d, %v", least, seq, err)
	})
}

// last returns the sequence of the stream's last entry.
func (w *world) last() uint64 {
	w.t.Helper()
	info, err := w.stream.Info(w.ctx())
	require.NoError(w.t, err)
	return info.State.LastSeq
}

func (w *world) job(owner, key string) *ledger.Job {
	w.t.Helper()
	j, err := NewQueries(w.pool).Job(w.ctx(), ledger.JobID(owner, key))
	require.NoError(w.t, err)
	require.NotNil(w.t, j, "job %s of %s", key, owner)
	return j
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

// tables are the tables of a generation, with what orders their rows.
var tables = map[string]string{
	"jobs": "id", "attempts": "job_id, number", "rejections": "seq",
	"kinds": "seq", "providers": "seq", "provider_verifications": "seq",
}

// dump returns all rows of the first generation as text, a table each.
func (w *world) dump() map[string]string { return w.dumpOf("ledger_a") }

// dumpOf returns all rows of a generation as text, a table each.
func (w *world) dumpOf(generation string) map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for table, order := range tables {
		rows, err := w.pool.Query(w.ctx(), "SELECT t::text FROM "+generation+"."+table+" AS t ORDER BY "+order)
		require.NoError(w.t, err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(w.t, err)
		all[table] = strings.Join(list, "\n")
	}
	return all
}

// starts counts the starts in the stream, by job and attempt.
func (w *world) starts() map[string]int {
	w.t.Helper()
	count := map[string]int{}
	for seq := uint64(1); seq <= w.last(); seq++ {
		m, err := w.stream.GetMsg(w.ctx(), seq)
		require.NoError(w.t, err)
		subject := strings.TrimPrefix(m.Subject, w.prefix+".")
		if kind, provider, _ := ledger.ParseSubject(subject); kind == ledger.AttemptStart {
			start, err := ledger.ParseStart(provider, m.Data)
			require.NoError(w.t, err)
			count[attemptName(start.Job, start.Attempt)]++
		}
	}
	return count
}

func attemptName(job uuid.UUID, attempt int) string { return fmt.Sprintf("%s/%d", job, attempt) }

func echoKind(change ...func(*ledger.Kind)) *ledger.KindDefinition {
	k := ledger.DefaultKind()
	k.Name, k.Providers = "echo", []string{"primary", "fallback"}
	for _, f := range change {
		f(&k)
	}
	return &ledger.KindDefinition{Kind: k}
}

func request(key string) *ledger.Request {
	return &ledger.Request{Owner: "acme", Key: key, Kind: "echo", Input: []byte(`{"key": "` + key + `"}`)}
}

func claimOf(job uuid.UUID, attempt int) *ledger.Claim {
	return &ledger.Claim{
		Job: job, Attempt: attempt, JobVersion: 1, Provider: "primary", Claim: fmt.Sprintf("claim-%012d", attempt),
		Worker: "w", StartSeq: 1,
	}
}

func completionOf(job uuid.UUID, attempt int, outcome ledger.Outcome) *ledger.Completion {
	c := &ledger.Completion{
		Job: job, Attempt: attempt, JobVersion: 1, Provider: "primary", Claim: fmt.Sprintf("claim-%012d", attempt),
		Outcome: outcome,
	}
	if outcome == ledger.OutcomeSucceeded {
		c.Result = []byte(`{"n": 1.50}`)
	}
	return c
}

// silent is an Appender that forgets: for tables that are projected aside.
type silent struct{}

func (silent) Append(context.Context, ledger.Message) (uint64, error) { return 1, nil }

func appendTo(a Appender) func(*Options) { return func(o *Options) { o.Appender = a } }
