package projector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv/ledgerenv"
	"jobledger/ledger"
)

// startLog is an Appender that keeps the starts which it is given, and stores
// nothing.
type startLog struct {
	mu     sync.Mutex
	starts []string
}

func (l *startLog) Append(_ context.Context, m ledger.Message) (uint64, error) {
	if kind, provider, _ := ledger.ParseSubject(m.Subject); kind == ledger.AttemptStart {
		start, err := ledger.ParseStart(provider, m.Data)
		if err != nil {
			return 0, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.starts = append(l.starts, attemptName(start.Job, start.Attempt)+" "+string(start.Input))
	}
	return 1, nil
}

func (l *startLog) sorted() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(slices.Values(l.starts))
}

// TestRestoredTablesStartNothingAgain: tables that come from an older backup,
// here from before the first entry, are folded up without appending again the
// starts that are in the stream; only those that nobody ever appended are.
func TestRestoredTablesStartNothingAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	stop := w.project()
	w.append(echoKind())
	var last uint64
	for i := range 50 {
		last = w.append(request(fmt.Sprint("started ", i)))
	}
	w.settled(last)
	stop()
	require.Len(t, w.starts(), 50)
	var missing []string
	for i := range 20 {
		key := fmt.Sprint("new ", i)
		last = w.append(request(key))
		missing = append(missing, attemptName(ledger.JobID("acme", key), 1)+fmt.Sprintf(` {"key": %q}`, key))
	}

	restored := w.onDatabase(t, ledgerenv.Database(t), 2)
	log := &startLog{}
	stop = restored.project(appendTo(log))
	restored.settled(last)
	stop()
	slices.Sort(missing)
	require.Equal(t, missing, log.sorted())
}

// TestHeldStarts: what is held back is not taken for done.
func TestHeldStarts(t *testing.T) {
	t.Parallel()
	h := newHeldStarts(100)
	start := func(n int) []ledger.Effect {
		return []ledger.Effect{{Kind: ledger.StartAttempt, Job: uuid.UUID{1}, Attempt: n, Start: &ledger.Start{Input: []byte("1")}}}
	}
	require.Empty(t, h.add(10, start(1), nil))
	require.Empty(t, h.add(20, start(2), nil))
	require.Empty(t, h.add(30, start(3), nil))
	stop := ledger.Effect{Kind: ledger.StopAttempt}
	require.Equal(t, []ledger.Effect{stop}, h.add(35, []ledger.Effect{stop}, nil), "what is no start is not held")
	require.Empty(t, h.release(40))
	require.EqualValues(t, 9, h.doneUpTo(40))
	h.appended(attemptKey{uuid.UUID{1}, 1})
	h.appended(attemptKey{uuid.UUID{9}, 9})
	require.Empty(t, h.release(50))
	require.EqualValues(t, 19, h.doneUpTo(50))

	h.most = 1
	require.Equal(t, []heldStart{{20, start(2)[0], ""}}, h.release(60), "beyond the bound the oldest goes")
	require.EqualValues(t, 29, h.doneUpTo(60))
	require.Equal(t, []heldStart{{30, start(3)[0], ""}}, h.release(100))
	require.EqualValues(t, 100, h.doneUpTo(100))
	require.Equal(t, start(4), h.add(101, start(4), nil), "what came later is not held")
	require.Zero(t, h.bytes)
	require.Empty(t, maps.Collect(maps.All(h.by)))
}

type traceKey struct{}

// TestTraceGoesFromRequestToStart: the trace context of a request is handed to
// the Appender of each of its starts, in the batch of the request and later.
func TestTraceGoesFromRequestToStart(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	w := newWorld(t, 2)
	seen := make(chan string, 10)
	stop := w.project(
		func(o *Options) {
			o.WithTrace = func(ctx context.Context, traceparent string) context.Context {
				return context.WithValue(ctx, traceKey{}, traceparent)
			}
		},
		appendTo(appenderFunc(func(ctx context.Context, m ledger.Message) (uint64, error) {
			if kind, _, _ := ledger.ParseSubject(m.Subject); kind == ledger.AttemptStart {
				got, _ := ctx.Value(traceKey{}).(string)
				seen <- got
			}
			return w.Append(ctx, m)
		})))
	w.append(echoKind(func(k *ledger.Kind) { k.Backoff = ledger.BackoffPolicy{InitialMS: 1, MaxMS: 1, FactorMilli: 1000} }))
	m := request("traced").Message()
	msg := nats.NewMsg(w.prefix + "." + m.Subject)
	msg.Data = m.Data
	msg.Header.Set(TraceHeader, trace)
	_, err := w.js.PublishMsg(w.ctx(), msg, jetstream.WithMsgID(m.ID))
	require.NoError(t, err)
	require.Equal(t, trace, receive(t, seen, "the first start"))

	id := ledger.JobID("acme", "traced")
	w.append(claimOf(id, 1))
	failed := completionOf(id, 1, ledger.OutcomeFailed)
	failed.Failure = ledger.Failure{Class: "refused", Executed: false}
	w.append(failed)
	require.Equal(t, trace, receive(t, seen, "the start after the back-off"))

	w.append(request("not traced"))
	require.Empty(t, receive(t, seen, "the start of a request without a trace"))
	stop()
}

type appenderFunc func(ctx context.Context, m ledger.Message) (uint64, error)

func (f appenderFunc) Append(ctx context.Context, m ledger.Message) (uint64, error) { return f(ctx, m) }

// TestHeldStartsSurviveTheirProjector: a projector that dies while it holds back
// the starts of a backlog has not taken them for done; the next one appends them,
// each with its trace.
func TestHeldStartsSurviveTheirProjector(t *testing.T) {
	t.Parallel()
	const jobs = 600
	w := newWorld(t, 1)
	w.append(echoKind())
	for i := range jobs {
		m := request(fmt.Sprint("job ", i)).Message()
		msg := nats.NewMsg(w.prefix + "." + m.Subject)
		msg.Data = m.Data
		msg.Header.Set(TraceHeader, fmt.Sprint("trace ", i))
		_, err := w.js.PublishMsgAsync(msg)
		require.NoError(t, err)
	}
	<-w.js.PublishAsyncComplete()
	last := w.last()

	g := newGate() // the first comes half the way, and dies there
	g.open(last / 2)
	first := &startLog{}
	stop := w.project(appendTo(first), func(o *Options) { o.Stream = gatedStream{w.stream, g} })
	w.caughtUp(last / 2)
	stop()
	require.Empty(t, first.sorted(), "it held them back")

	var mu sync.Mutex
	traces := map[string]int{}
	second := &startLog{}
	stop = w.project(appendTo(appenderFunc(func(ctx context.Context, m ledger.Message) (uint64, error) {
		mu.Lock()
		got, _ := ctx.Value(traceKey{}).(string)
		traces[got]++
		mu.Unlock()
		return second.Append(ctx, m)
	})), func(o *Options) {
		o.WithTrace = func(ctx context.Context, traceparent string) context.Context {
			return context.WithValue(ctx, traceKey{}, traceparent)
		}
	})
	w.settled(last)
	stop()
	require.Len(t, second.sorted(), jobs)
	require.Len(t, traces, jobs)
	require.NotContains(t, traces, "")
}
