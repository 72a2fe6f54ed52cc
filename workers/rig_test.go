package workers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

const testProvider = "primary"

// providerFunc makes a function a provider.
type providerFunc func(ctx context.Context, c Call) (Result, error)

func (f providerFunc) Call(ctx context.Context, c Call) (Result, error) { return f(ctx, c) }

// A fakeFold is a ledger in memory that decides claims as the fold does. Its
// hooks run before anything else and may fail in its place.
type fakeFold struct {
	t         testing.TB
	timeoutMS int64
	onDecide  func(ctx context.Context, n int, c *ledger.Claim) error // before it is stored
	onDecided func(ctx context.Context, n int, c *ledger.Claim) error // after it was
	onAppend  func(n int, c *ledger.Completion) error

	replays bool // claims that replay are accepted

	mu          sync.Mutex
	claims      []*ledger.Claim
	appends     int
	completions []*ledger.Completion
	claimants   map[attemptID]string
	ended       map[attemptID]bool
}

func (f *fakeFold) decode(m ledger.Message) ledger.Body {
	e := ledger.Decode(1, time.Now(), m.Subject, m.Data)
	if e.Fault != nil {
		f.t.Errorf("the worker appended an entry that the ledger does not accept: %+v: %s", *e.Fault, m.Data)
		return nil
	}
	return e.Body
}

func (f *fakeFold) Decide(ctx context.Context, m ledger.Message) (ledger.Answer, error) {
	c, ok := f.decode(m).(*ledger.Claim)
	if !ok {
		return ledger.Answer{}, fmt.Errorf("%s is no claim", m.Subject)
	}
	f.mu.Lock()
	f.claims = append(f.claims, c)
	n := len(f.claims)
	f.mu.Unlock()
	if f.onDecide != nil {
		if err := f.onDecide(ctx, n, c); err != nil {
			return ledger.Answer{}, err
		}
	}
	answer := f.claim(c)
	if f.onDecided != nil {
		if err := f.onDecided(ctx, n, c); err != nil {
			return ledger.Answer{}, err
		}
	}
	return answer, nil
}

func (f *fakeFold) claim(c *ledger.Claim) ledger.Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := attemptID{c.Job, c.Attempt}
	answer := ledger.Answer{Job: c.Job, Attempt: c.Attempt, Decision: ledger.Refused, TimeoutMS: f.timeoutMS}
	switch holder := f.claimants[id]; {
	case f.ended[id]:
		answer.Reason = ledger.AttemptEnded
	case holder == "" || c.Replay && f.replays:
		f.claimants[id] = c.Claim
		answer.Decision = ledger.Accepted
	case holder == c.Claim:
		answer.Decision = ledger.Duplicate
	default:
		answer.Reason = ledger.AlreadyClaimed
	}
	return answer
}

func (f *fakeFold) Append(ctx context.Context, m ledger.Message) (uint64, error) {
	c, ok := f.decode(m).(*ledger.Completion)
	if !ok {
		return 0, fmt.Errorf("%s is no completion", m.Subject)
	}
	f.mu.Lock()
	f.appends++
	n := f.appends
	f.mu.Unlock()
	if f.onAppend != nil {
		if err := f.onAppend(n, c); err != nil {
			return 0, err
		}
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.completions = append(f.completions, c)
	f.ended[attemptID{c.Job, c.Attempt}] = c.Outcome != ledger.OutcomeUnknown
	return uint64(n), nil
}

// A rig is a worker with a stream of its own and a ledger that the test governs.
type rig struct {
	*fakeFold
	js             jetstream.JetStream
	stream, prefix string
	w              *Worker
	cancel         context.CancelFunc
	done           chan error
}

// newRig prepares a worker; start runs it.
func newRig(t testing.TB, concurrency int, impl Provider) *rig {
	t.Helper()
	js, stream, prefix := testenv.Stream(t)
	r := &rig{js: js, stream: stream, prefix: prefix, done: make(chan error, 1), fakeFold: &fakeFold{
		t: t, timeoutMS: 60_000, claimants: map[attemptID]string{}, ended: map[attemptID]bool{},
	}}
	r.w = r.worker(concurrency, impl)
	return r
}

func (r *rig) worker(concurrency int, impl Provider) *Worker {
	r.t.Helper()
	w, err := New(Options{
		Provider: testProvider, Impl: impl, Concurrency: concurrency, Ledger: r.fakeFold, JetStream: r.js,
		Stream: r.stream, SubjectPrefix: r.prefix, Name: "worker under test", Grace: ample,
		Log: slog.New(slog.NewTextHandler(r.t.Output(), nil)),
	})
	require.NoError(r.t, err)
	w.timing.retry, w.timing.retryMax = time.Millisecond, 20*time.Millisecond
	w.timing.redeliver = 10 * time.Millisecond
	return w
}

// start runs the worker until the test ends or stop is called.
func (r *rig) start() *rig {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.done <- r.w.Run(ctx) }()
	r.t.Cleanup(func() {
		if cancel(); r.done != nil {
			require.NoError(r.t, r.stopped())
		}
	})
	return r
}

// stopped waits for Run's end and returns its error.
func (r *rig) stopped() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		r.done = nil
		return err
	case <-time.After(ample):
		r.t.Fatal("the worker does not end")
		return nil
	}
}

// publish appends the start of attempt 1 of a new job, and returns it.
func (r *rig) publish(key string) *ledger.Start {
	r.t.Helper()
	start := &ledger.Start{
		Job: ledger.JobID("acme", key), Attempt: 1, JobVersion: 1, Owner: "acme", Kind: "echo", KindSeq: 1,
		Provider: testProvider, Input: []byte(`{"n":1}`), TimeoutMS: r.timeoutMS,
	}
	m := start.Message()
	_, err := r.js.Publish(context.Background(), r.prefix+"."+m.Subject, m.Data)
	require.NoError(r.t, err)
	return start
}

// completed waits for n completions and returns them.
func (r *rig) completed(n int) []*ledger.Completion {
	r.t.Helper()
	var found []*ledger.Completion
	testenv.Eventually(r.t, ample, func() (bool, string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		found = append(found[:0], r.completions...)
		return len(found) >= n, fmt.Sprintf("%d completions of %d", len(found), n)
	})
	require.Len(r.t, found, n)
	return found
}

// settled waits until the server has an acknowledgement for every start.
func (r *rig) settled() {
	r.t.Helper()
	r.pending(0, 0)
}

// pending waits until so many starts are delivered without acknowledgement, and
// so many not delivered.
func (r *rig) pending(unacknowledged int, undelivered uint64) {
	r.t.Helper()
	testenv.Eventually(r.t, ample, func() (bool, string) {
		ctx, cancel := context.WithTimeout(context.Background(), ample)
		defer cancel()
		consumer, err := r.js.Consumer(ctx, r.stream, ConsumerName(testProvider))
		if err != nil {
			return false, err.Error()
		}
		info := consumer.CachedInfo()
		return info.NumAckPending == unacknowledged && info.NumPending == undelivered,
			fmt.Sprintf("%d unacknowledged, %d not delivered", info.NumAckPending, info.NumPending)
	})
}

func (r *rig) claimCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.claims)
}
