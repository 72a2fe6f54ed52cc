package workers

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

const testTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A spanBook is a Tracer that writes spans down. The traceparent of a span is its
// name.
type spanBook struct {
	mu    sync.Mutex
	lines []string
}

type spanKey struct{}

func (b *spanBook) Begin(ctx context.Context, span, parent string, a Traced) (context.Context, string, func(string)) {
	return context.WithValue(ctx, spanKey{}, span), span, func(outcome string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lines = append(b.lines, fmt.Sprintf("%s/%s %s/%d %s: %s", parent, span, a.Kind, a.Attempt, a.Provider, outcome))
	}
}

// ended waits until n spans have ended and returns them.
func (b *spanBook) ended(t *testing.T, n int) []string {
	t.Helper()
	var lines []string
	testenv.Eventually(t, ample, func() (bool, string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		lines = append([]string(nil), b.lines...)
		return len(lines) >= n, fmt.Sprintf("%d spans of %d: %q", len(lines), n, lines)
	})
	return lines
}

// publishTraced is publish with a trace.
func (r *rig) publishTraced(key string) *ledger.Start {
	r.t.Helper()
	start := &ledger.Start{
		Job: ledger.JobID("acme", key), Attempt: 1, JobVersion: 1, Owner: "acme", Kind: "echo", KindSeq: 1,
		Provider: testProvider, Input: []byte(`{"n":1}`), TimeoutMS: r.timeoutMS,
	}
	m := start.Message()
	_, err := r.js.PublishMsg(context.Background(), &nats.Msg{
		Subject: r.prefix + "." + m.Subject, Data: m.Data, Header: nats.Header{TraceHeader: {testTrace}},
	})
	require.NoError(r.t, err)
	return start
}

// TestSpansOfAnAttempt: each step is a span below the attempt's, which is below
// the start's trace; the provider and whoever appends get their own step's.
func TestSpansOfAnAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		impl    func(Call) (Result, error)
		outcome string
	}{
		"succeeded": {func(Call) (Result, error) { return Result{Body: []byte(`1`)}, nil }, "succeeded"},
		"unknown":   {func(Call) (Result, error) { return Result{}, context.DeadlineExceeded }, "unknown"},
		"panics":    {func(Call) (Result, error) { panic("the provider is broken") }, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls []string
			r := newRig(t, 1, providerFunc(func(ctx context.Context, call Call) (Result, error) {
				calls = append(calls, fmt.Sprint(ctx.Value(spanKey{}), " ", call.Traceparent))
				return c.impl(call)
			}))
			var decided []any
			r.onDecide = func(ctx context.Context, _ int, _ *ledger.Claim) error {
				decided = append(decided, ctx.Value(spanKey{}))
				return nil
			}
			book := &spanBook{}
			r.w.o.Tracer = book
			r.start().publishTraced("traced")
			require.Equal(t, []string{
				"attempt/claim echo/1 primary: won",
				"attempt/call echo/1 primary: " + c.outcome,
				"attempt/complete echo/1 primary: " + c.outcome,
				testTrace + "/attempt echo/1 primary: " + c.outcome,
			}, book.ended(t, 4))
			require.Equal(t, []string{"call call"}, calls)
			require.Equal(t, []any{SpanClaim}, decided)
			require.Zero(t, r.w.Calls())
		})
	}
}

// TestSpanOfALostClaim: a start that is delivered again leaves the span of the
// claim that was refused, and no call.
func TestSpanOfALostClaim(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, providerFunc(func(context.Context, Call) (Result, error) { return Result{Body: []byte(`1`)}, nil }))
	book := &spanBook{}
	r.w.o.Tracer = book
	r.claimants[attemptID{ledger.JobID("acme", "taken"), 1}] = "somebody else's"
	r.start().publishTraced("taken")
	require.Equal(t, []string{
		"attempt/claim echo/1 primary: lost",
		testTrace + "/attempt echo/1 primary: not_claimed",
	}, book.ended(t, 2))
}

// TestTraceIsHandedOnWithoutATracer: the provider gets the start's.
func TestTraceIsHandedOnWithoutATracer(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	r := newRig(t, 1, providerFunc(func(_ context.Context, c Call) (Result, error) {
		got <- c.Traceparent
		return Result{Body: []byte(`1`)}, nil
	}))
	r.start().publishTraced("handed on")
	r.completed(1)
	require.Equal(t, testTrace, <-got)
}

// TestExecGetsTheTrace: in its environment, and only if it is one line.
func TestExecGetsTheTrace(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{testTrace: testTrace, "": "none", "a\nX=1": "none"} {
		c := testCall()
		c.Traceparent = given
		result, err := shell(t, `printf '"%s"' "${TRACEPARENT-none}"`).Call(callContext(t, ample), c)
		require.NoError(t, err)
		require.Equal(t, `"`+want+`"`, string(result.Body))
	}
	_, err := NewExec(ExecOptions{Command: []string{"cat"}, EnvPass: []string{"TRACEPARENT"}})
	require.ErrorContains(t, err, "TRACEPARENT")
}
