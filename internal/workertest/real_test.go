package workertest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/internal/testenv/ledgerenv"
	"jobledger/ledger"
	"jobledger/projector"
	"jobledger/publisher"
)

// The attempts of the real ledger's kinds may take so long.
const (
	shortMS = 4_000
	longMS  = ample
)

// A realLedger has a projector and tables, and no service besides.
type realLedger struct {
	*bench
	pool *pgxpool.Pool
}

// newRealLedger makes a ledger with the kinds short and long, which differ in
// their attempts' timeout, and projects it until the test ends.
func newRealLedger(t *testing.T, command, environment []string) *realLedger {
	t.Helper()
	made := ledgerenv.New(t)
	l := &ledgerPlay{t: t, nc: made.JS.Conn(), js: made.JS, stream: made.Stream, prefix: made.Prefix, url: testenv.NATSURL(t)}
	r := &realLedger{bench: &bench{
		ledgerPlay: l, endpoint: newEndpoint(t), proxy: testenv.NewProxy(t, l.url),
		command: command, environment: environment, concurrency: 4, graceMS: ample,
	}}
	var err error
	r.pool, err = projector.NewPool(l.ctx(), made.DatabaseURL, 4)
	require.NoError(t, err)
	t.Cleanup(r.pool.Close)
	require.NoError(t, projector.Initialize(l.ctx(), r.pool, projector.Meta{Stream: made.Stream, Prefix: made.Prefix, Shards: 1}))
	appender, err := publisher.NewAppender(l.nc, publisher.Options{Stream: made.Stream, SubjectPrefix: made.Prefix})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, appender.Close(l.ctx())) })
	client, err := publisher.NewClient(l.nc, appender, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	r.project(client)

	r.define(client, &ledger.ProviderDefinition{Name: provider, Type: "http", Definition: []byte(`{}`)})
	for name, timeoutMS := range map[string]int64{"short": shortMS, "long": longMS} {
		kind := ledger.DefaultKind()
		kind.Name, kind.Providers, kind.AttemptTimeoutMS = name, []string{provider}, timeoutMS
		r.define(client, &ledger.KindDefinition{Kind: kind})
	}
	return r
}

func (r *realLedger) project(client *publisher.Client) {
	r.t.Helper()
	stream, err := r.js.Stream(r.ctx(), r.stream)
	require.NoError(r.t, err)
	p, err := projector.New(projector.Options{
		Pool: r.pool, Conn: r.nc, Stream: stream, Prefix: r.prefix, Appender: client,
		Log: slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		require.NoError(r.t, <-done)
	})
}

func (r *realLedger) define(client *publisher.Client, b ledger.Body) {
	r.t.Helper()
	answer, err := client.Decide(r.ctx(), b.Message())
	require.NoError(r.t, err)
	require.Equal(r.t, ledger.Accepted, answer.Decision, answer.Detail)
}

// submit publishes a request with nothing but a NATS client. It returns the
// first attempt's id.
func (r *realLedger) submit(key, kind, do string) (id string) {
	r.t.Helper()
	body := fmt.Sprintf(`{"v":1,"owner":"acme","key":%q,"kind":%q,"input":{"do":%q}}`, key, kind, do)
	_, err := r.js.PublishMsg(r.ctx(), &nats.Msg{Subject: r.prefix + ".job.request", Data: []byte(body)})
	require.NoError(r.t, err)
	return attemptID(ledger.JobID("acme", key), 1)
}

// becomes waits until the job under a key, and its only attempt, are in a state.
func (r *realLedger) becomes(key, state string) {
	r.t.Helper()
	expected := state + " 1 " + state
	testenv.Eventually(r.t, patience, func() (bool, string) {
		var found string
		err := r.pool.QueryRow(r.ctx(), `SELECT coalesce(max(j.state || ' ' || a.number || ' ' || a.state), 'not there')
			FROM ledger.jobs AS j JOIN ledger.attempts AS a ON a.job_id = j.id WHERE j.id = $1`, ledger.JobID("acme", key)).Scan(&found)
		require.NoError(r.t, err)
		return found == expected, fmt.Sprintf("job %s, attempt and its state: %s; expected %s", key, found, expected)
	})
}

// firstStart returns the only start in the stream.
func (r *realLedger) firstStart() *begun {
	r.t.Helper()
	stream, err := r.js.Stream(r.ctx(), r.stream)
	require.NoError(r.t, err)
	msg, err := stream.GetLastMsgForSubject(r.ctx(), r.prefix+".attempt.start."+provider)
	require.NoError(r.t, err)
	return &begun{seq: msg.Sequence}
}

func (r *realLedger) rejections() (n int) {
	r.t.Helper()
	require.NoError(r.t, r.pool.QueryRow(r.ctx(), "SELECT count(*) FROM ledger.rejections").Scan(&n))
	return n
}

// withRealLedger are stories that the real fold tells, tables and all.
var withRealLedger = map[string]func(r *realLedger){
	"finishes a job":                          finishesAJob,
	"settles what has become unknown":         settlesLate,
	"leaves it unknown what a crash cut off":  leavesItUnknown,
	"ends as unknown what exceeds its time":   becomesUnknown,
	"makes unsent attempts that are repeated": becomesUnsent,
}

func finishesAJob(r *realLedger) {
	r.run()
	id := r.submit("order", "long", "answer")
	require.Equal(r.t, id, r.submit("order", "long", "answer"), "a double click")
	r.becomes("order", "succeeded")
	var found string
	require.NoError(r.t, r.pool.QueryRow(r.ctx(), "SELECT result::text FROM ledger.jobs").Scan(&found))
	require.JSONEq(r.t, result, found)
	require.Contains(r.t, found, "9007199254740993")
	r.settled()
	require.Equal(r.t, 1, r.endpoint.count(id))
	require.Zero(r.t, r.rejections())
}

// The broker is away from the worker when the call ends. The attempt's time runs
// out; then the worker comes back and knows better.
func settlesLate(r *realLedger) {
	r.run()
	id := r.submit("order", "short", "stall")
	r.endpoint.called(id)
	r.proxy.Cut()
	r.endpoint.releaseAll()
	r.becomes("order", "unknown")
	r.proxy.Restore()
	r.becomes("order", "succeeded")
	r.settled()
	require.Equal(r.t, 1, r.endpoint.count(id))
}

func leavesItUnknown(r *realLedger) {
	p := r.run()
	id := r.submit("order", "short", "stall")
	r.endpoint.called(id)
	r.crash(p)
	r.run()
	r.redeliver(r.firstStart())
	r.settled()
	require.Equal(r.t, 1, r.rejections(), "the claim of the second life is refused")
	r.becomes("order", "unknown")
	require.Equal(r.t, 1, r.endpoint.count(id))
}

func becomesUnknown(r *realLedger) {
	r.run()
	id := r.submit("order", "short", "stall")
	r.endpoint.called(id)
	r.endpoint.givenUp(id)
	r.becomes("order", "unknown")
	r.settled()
	require.Equal(r.t, 1, r.endpoint.count(id))
}

// Nothing was sent, so that the ledger tries again by itself, with an attempt of
// its own.
func becomesUnsent(r *realLedger) {
	url := r.endpoint.url
	r.endpoint.url = fmt.Sprintf("http://127.0.0.1:%d/run", testenv.FreePort(r.t))
	p := r.run()
	first := r.submit("order", "long", "answer")
	testenv.Eventually(r.t, patience, func() (bool, string) {
		var n int
		err := r.pool.QueryRow(r.ctx(), "SELECT count(*) FROM ledger.attempts WHERE state = 'unsent' AND NOT executed").Scan(&n)
		return err == nil && n > 0, fmt.Sprint("no attempt is unsent: ", err)
	})
	p.kill()
	r.endpoint.url = url
	r.run()
	testenv.Eventually(r.t, patience, func() (bool, string) {
		var state string
		err := r.pool.QueryRow(r.ctx(), "SELECT state FROM ledger.jobs").Scan(&state)
		return err == nil && state == "succeeded", fmt.Sprintf("the job is %s: %v", state, err)
	})
	require.Zero(r.t, r.endpoint.count(first))
	require.Equal(r.t, 1, r.endpoint.total())
}
