package workers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// counted is a provider that succeeds and counts.
func counted(calls *atomic.Int64) Provider {
	return providerFunc(func(_ context.Context, c Call) (Result, error) {
		calls.Add(1)
		return Result{Body: c.Input}, nil
	})
}

// untilEnd is a provider that tells when it is called and returns its context's
// end.
func untilEnd(called chan<- Call) Provider {
	return providerFunc(func(ctx context.Context, c Call) (Result, error) {
		called <- c
		<-ctx.Done()
		return Result{ProviderRef: "ref-1"}, ctx.Err()
	})
}

func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(ample):
		t.Fatal("nothing came in time")
		panic("unreachable")
	}
}

func TestWorkerCarriesOutAnAttempt(t *testing.T) {
	t.Parallel()
	called := make(chan Call, 1)
	ended := make(chan string, 1)
	r := newRig(t, 1, providerFunc(func(_ context.Context, c Call) (Result, error) {
		called <- c
		return Result{Body: []byte(" {\"ok\":true}\n"), ProviderRef: "ref", Usage: []byte(`{"tokens":3}`)}, nil
	}))
	r.w.o.Ended = func(kind string, outcome ledger.Outcome, took time.Duration) {
		ended <- fmt.Sprint(kind, " ", outcome, " ", took > 0)
	}
	r.start()
	start := r.publish("k")

	c := r.completed(1)[0]
	require.Equal(t, ledger.OutcomeSucceeded, c.Outcome)
	require.Equal(t, `{"ok":true}`, string(c.Result))
	require.Equal(t, "ref", c.ProviderRef)
	require.Equal(t, `{"tokens":3}`, string(c.Usage))
	require.Equal(t, start.JobVersion, c.JobVersion)
	require.Equal(t, "echo succeeded true", receive(t, ended))

	claim := r.claims[0]
	require.Equal(t, c.Claim, claim.Claim)
	require.Regexp(t, "^[0-9a-f]{32}$", claim.Claim)
	require.Equal(t, "worker under test", claim.Worker)
	require.EqualValues(t, 1, claim.StartSeq)

	call := receive(t, called)
	require.WithinDuration(t, time.Now().Add(time.Minute), call.Deadline, ample)
	call.Deadline = time.Time{}
	require.Equal(t, Call{JobID: start.Job, Attempt: 1, Kind: "echo", Input: []byte(`{"n":1}`), IdempotencyKey: start.Job.String()}, call)
	r.settled()
}

func TestWorkerCarriesOutMany(t *testing.T) {
	t.Parallel()
	const n = 500
	var calls atomic.Int64
	r := newRig(t, 16, counted(&calls)).start()
	for i := range n {
		r.publish(fmt.Sprint(i))
	}
	r.completed(n)
	require.EqualValues(t, n, calls.Load())
	r.settled()
}

func TestWorkerForgetsAnAttemptThatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, counted(&calls))
	id := attemptID{ledger.JobID("acme", "k"), 1}
	r.claimants[id] = "somebody else"
	r.start()
	r.publish("k")
	testenv.Eventually(t, ample, func() (bool, string) { return r.claimCount() == 1, "no claim" })
	r.settled()
	r.publish("another")
	r.completed(1)
	require.EqualValues(t, 1, calls.Load())
}

// The decision is lost on its way: the same claim again is still ours.
func TestWorkerRepeatsAClaimWithoutDecision(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, counted(&calls))
	r.w.timing.claimTry = 20 * time.Millisecond
	r.onDecided = func(ctx context.Context, n int, _ *ledger.Claim) error {
		switch n {
		case 1, 2:
			<-ctx.Done()
			return fmt.Errorf("no decision: %w", ctx.Err())
		case 3:
			return errors.New("the connection broke")
		}
		return nil
	}
	r.start()
	r.publish("k")
	require.Equal(t, ledger.OutcomeSucceeded, r.completed(1)[0].Outcome)
	require.EqualValues(t, 1, calls.Load())
	require.Len(t, r.claims, 4)
	for _, c := range r.claims {
		require.Equal(t, r.claims[0], c)
	}
}

// There is no decision at all for as long as the attempt could begin.
func TestWorkerGivesUpAClaim(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, counted(&calls))
	r.w.timing.claimTry, r.w.timing.claimPatience = 10*time.Millisecond, 100*time.Millisecond
	var first atomic.Pointer[ledger.Claim]
	r.onDecided = func(ctx context.Context, _ int, c *ledger.Claim) error {
		if first.CompareAndSwap(nil, c); first.Load().Claim != c.Claim {
			return nil
		}
		<-ctx.Done()
		return fmt.Errorf("no decision: %w", ctx.Err())
	}
	r.start()
	r.publish("k")
	c := r.completed(1)[0]
	require.Equal(t, ledger.OutcomeUnsent, c.Outcome)
	require.Equal(t, "claim_undecided", c.Failure.Class)
	require.Equal(t, first.Load().Claim, c.Claim)
	// The start comes again. By then the first claim was accepted, and the
	// attempt has ended: the second claim is refused.
	r.settled()
	require.NotEqual(t, first.Load().Claim, r.claims[len(r.claims)-1].Claim)
	require.Zero(t, calls.Load())
}

// The decision comes, but too late for the provider to be called.
func TestWorkerDoesNotSendLate(t *testing.T) {
	t.Parallel()
	for name, advance := range map[string]func(wall, mono *atomic.Int64){
		"the machine slept":           func(wall, _ *atomic.Int64) { wall.Store(int64(57 * time.Second)) },
		"the wall clock was set back": func(wall, mono *atomic.Int64) { wall.Store(int64(-time.Hour)); mono.Store(int64(59 * time.Second)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls, wall, mono atomic.Int64
			base := time.Now().Round(0)
			r := newRig(t, 1, counted(&calls))
			r.w.o.Margin = 3 * time.Second
			r.w.clock = clock{
				wall: func() time.Time { return base.Add(time.Duration(wall.Load())) },
				mono: func() time.Duration { return time.Duration(mono.Load()) },
			}
			r.onDecided = func(context.Context, int, *ledger.Claim) error { advance(&wall, &mono); return nil }
			r.start()
			r.publish("k")
			c := r.completed(1)[0]
			require.Equal(t, ledger.OutcomeUnsent, c.Outcome)
			require.Equal(t, "too_late", c.Failure.Class)
			require.Zero(t, calls.Load())
			r.settled()
		})
	}
}

// Starts that are delivered again while their attempt runs.
func TestWorkerCallsOnceThoughTheStartComesAgain(t *testing.T) {
	t.Parallel()
	called, release := make(chan Call, 10), make(chan struct{})
	r := newRig(t, 4, providerFunc(func(_ context.Context, c Call) (Result, error) {
		called <- c
		<-release
		return Result{Body: []byte("1")}, nil
	}))
	r.w.timing.ackWait = 50 * time.Millisecond
	r.start()
	start := r.publish("k")
	receive(t, called)
	m := start.Message()
	for range 3 { // as a redelivery, but certain
		_, err := r.js.Publish(t.Context(), r.prefix+"."+m.Subject, m.Data)
		require.NoError(t, err)
	}
	testenv.Eventually(t, ample, func() (bool, string) { return r.claimCount() >= 4, "no further claims" })
	close(release)
	r.completed(1)
	r.settled()
	require.Empty(t, called)
}

// Progress is reported, so that a start does not come again while it is worked
// on.
func TestWorkerReportsProgress(t *testing.T) {
	t.Parallel()
	called := make(chan Call, 10)
	r := newRig(t, 1, untilEnd(called))
	r.w.timing.ackWait = 600 * time.Millisecond
	r.timeoutMS = 2_500 // four ack waits
	r.start()
	r.publish("k")
	c := r.completed(1)[0]
	require.Equal(t, ledger.OutcomeUnknown, c.Outcome)
	require.Equal(t, "timeout", c.Failure.Class)
	require.Equal(t, "ref-1", c.ProviderRef)
	require.Len(t, called, 1)
	r.settled()
	require.Equal(t, 1, r.claimCount())
}

func TestWorkerStopsWhatItIsToldTo(t *testing.T) {
	t.Parallel()
	called := make(chan Call, 2)
	r := newRig(t, 2, untilEnd(called)).start()
	first, _ := r.publish("a"), r.publish("b")
	receive(t, called)
	receive(t, called)
	nc := testenv.NATS(t)
	for _, body := range []string{"rubbish", `{"job":"` + first.Job.String() + `","attempt":2}`, `{"job":"` + first.Job.String() + `","attempt":1}`} {
		require.NoError(t, nc.Publish(r.prefix+"."+ledger.StopSubject(testProvider), []byte(body)))
	}
	c := r.completed(1)[0]
	require.Equal(t, first.Job, c.Job)
	require.Equal(t, ledger.OutcomeUnknown, c.Outcome)
	require.Equal(t, "stopped", c.Failure.Class)
	r.pending(1, 0)
	r.w.o.Grace = time.Millisecond
	r.cancel()
	require.NoError(t, r.stopped())
}

// When the worker has to exit, what runs may finish, and what was fetched ahead
// goes back.
func TestWorkerDrains(t *testing.T) {
	t.Parallel()
	called, release := make(chan Call, 10), make(chan struct{})
	r := newRig(t, 2, providerFunc(func(_ context.Context, c Call) (Result, error) {
		called <- c
		<-release
		return Result{Body: []byte("1")}, nil
	}))
	r.w.timing.fullFor = ample
	r.start()
	for i := range 6 {
		r.publish(fmt.Sprint(i))
	}
	receive(t, called)
	receive(t, called)
	r.cancel()
	// Another worker gets the other four while the first one's calls still run.
	var calls atomic.Int64
	other := r.worker(4, counted(&calls))
	otherCtx, cancelOther := context.WithCancel(context.Background())
	otherDone := make(chan error, 1)
	go func() { otherDone <- other.Run(otherCtx) }()
	r.completed(4)
	require.EqualValues(t, 4, calls.Load())
	select {
	case err := <-r.done:
		t.Fatalf("Run returned while calls were running: %v", err)
	default:
	}
	close(release)
	require.NoError(t, r.stopped())
	for _, c := range r.completed(6) {
		require.Equal(t, ledger.OutcomeSucceeded, c.Outcome)
	}
	r.settled()
	cancelOther()
	require.NoError(t, receive(t, otherDone))
	require.Empty(t, called)
}

// What has not finished within the grace period is unknown.
func TestWorkerEndsCallsAfterTheGrace(t *testing.T) {
	t.Parallel()
	called := make(chan Call, 2)
	r := newRig(t, 2, untilEnd(called))
	r.w.o.Grace = 10 * time.Millisecond
	r.start()
	r.publish("a")
	r.publish("b")
	receive(t, called)
	receive(t, called)
	r.cancel()
	require.NoError(t, r.stopped())
	for _, c := range r.completed(2) {
		require.Equal(t, ledger.OutcomeUnknown, c.Outcome)
		require.Equal(t, "stopped", c.Failure.Class)
		require.Equal(t, "ref-1", c.ProviderRef)
	}
	r.settled()
}

// A claim that waits for its decision when the worker has to exit.
func TestWorkerExitsDuringAClaim(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, counted(&calls))
	waiting := make(chan struct{}, 1)
	r.onDecided = func(ctx context.Context, _ int, _ *ledger.Claim) error {
		waiting <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	r.start()
	r.publish("k")
	receive(t, waiting)
	r.cancel()
	require.NoError(t, r.stopped())
	require.Equal(t, ledger.OutcomeUnsent, r.completed(1)[0].Outcome)
	require.Zero(t, calls.Load())
}

func TestWorkerRetriesACompletion(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, counted(&calls))
	r.onAppend = func(n int, _ *ledger.Completion) error {
		if n < 8 {
			return errors.New("no responders")
		}
		return nil
	}
	r.start()
	r.publish("k")
	r.completed(1)
	require.EqualValues(t, 1, calls.Load())
	r.settled()
}

func TestWorkerSaysWhatItCouldNotRecord(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 2, counted(&calls))
	r.w.o.Grace, r.w.timing.overrun, r.w.timing.recordWait = time.Millisecond, 50*time.Millisecond, time.Millisecond
	tried := make(chan struct{}, 100)
	r.onAppend = func(int, *ledger.Completion) error {
		select {
		case tried <- struct{}{}:
		default:
		}
		return errors.New("no responders")
	}
	r.start()
	start := r.publish("k")
	receive(t, tried)
	r.cancel()
	err := r.stopped()
	require.ErrorContains(t, err, "job "+start.Job.String()+" attempt 1 ended as succeeded, which could not be recorded: no responders")
	r.pending(1, 0)
}

func TestWorkerSurvivesAPanic(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, providerFunc(func(context.Context, Call) (Result, error) {
		if calls.Add(1) == 1 {
			panic("boom")
		}
		return Result{Body: []byte("1")}, nil
	})).start()
	r.publish("a")
	r.publish("b")
	c := r.completed(2)
	require.Equal(t, ledger.OutcomeUnknown, c[0].Outcome)
	require.Equal(t, ledger.Failure{Class: "panic", Message: "the provider panicked: boom", Executed: true}, c[0].Failure)
	require.Equal(t, ledger.OutcomeSucceeded, c[1].Outcome)
	r.settled()
}

// A provider that ignores its context loses its slot, but only as many slots
// again as there are; what it says in the end is recorded late.
func TestWorkerGoesOnWithoutAProviderThatHangs(t *testing.T) {
	t.Parallel()
	called, release := make(chan Call, 10), make(chan struct{})
	r := newRig(t, 1, providerFunc(func(_ context.Context, c Call) (Result, error) {
		called <- c
		<-release
		return Result{Body: []byte("1")}, nil
	}))
	r.w.timing.overrun = 20 * time.Millisecond
	r.timeoutMS = 300
	r.start()
	for i := range 3 {
		r.publish(fmt.Sprint(i))
	}
	for _, c := range r.completed(2) {
		require.Equal(t, ledger.OutcomeUnknown, c.Outcome)
		require.Equal(t, "timeout", c.Failure.Class)
	}
	require.Len(t, called, 2, "one call with a slot, one whose slot was freed, and no third")
	r.w.mu.Lock()
	require.Empty(t, r.w.held)
	r.w.mu.Unlock()
	close(release)
	succeeded := map[string]int{}
	for _, c := range r.completed(5) {
		if c.Outcome == ledger.OutcomeSucceeded {
			succeeded[c.Job.String()]++
		}
	}
	require.Len(t, succeeded, 3)
	r.settled()
}

func TestWorkerEndsThoughAProviderHangs(t *testing.T) {
	t.Parallel()
	called, release := make(chan Call, 1), make(chan struct{})
	returned := make(chan struct{})
	r := newRig(t, 1, providerFunc(func(_ context.Context, c Call) (Result, error) {
		called <- c
		<-release
		close(returned)
		return Result{}, nil
	}))
	r.w.o.Grace, r.w.timing.overrun, r.w.timing.recordWait = time.Millisecond, 20*time.Millisecond, 500*time.Millisecond
	r.start()
	r.publish("k")
	receive(t, called)
	r.cancel()
	require.ErrorContains(t, r.stopped(), "the provider ignores them")
	require.Equal(t, ledger.OutcomeUnknown, r.completed(1)[0].Outcome)
	close(release)
	receive(t, returned)
	r.w.wg.Wait()
}

func TestWorkerRecordsOnlyWhatTheLedgerTakes(t *testing.T) {
	t.Parallel()
	big := `"` + strings.Repeat("x", ledger.MaxResultBytes-2) + `"`
	for name, c := range map[string]struct {
		result Result
		class  string
	}{
		"no JSON":          {Result{Body: []byte("Sorry, I cannot do that.")}, "invalid_result"},
		"nothing":          {Result{}, "invalid_result"},
		"not a number":     {Result{Body: []byte(`{"score":NaN}`)}, "invalid_result"},
		"two values":       {Result{Body: []byte(`1 2`)}, "invalid_result"},
		"a named twice":    {Result{Body: []byte(`{"a":1,"a":2}`)}, "invalid_result"},
		"a long reference": {Result{Body: []byte(big + "\n"), Usage: []byte("}"), ProviderRef: strings.Repeat("\x01", 1<<20)}, ""},
		"one byte beyond":  {Result{Body: []byte(big[:1] + "x" + big[1:])}, "result_too_large"},
		"as large as may":  {Result{Body: []byte(big)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 1, providerFunc(func(context.Context, Call) (Result, error) { return c.result, nil })).start()
			r.publish("k")
			completion := r.completed(1)[0]
			require.Equal(t, c.class, completion.Failure.Class)
			require.Equal(t, c.class != "", completion.Failure.Executed)
			require.LessOrEqual(t, len(completion.Message().Data), ledger.MaxPayloadBytes-headerReserveBytes)
			r.settled()
		})
	}
}

// A server with a smaller limit than the ledger assumes must not leave an
// attempt that cannot end.
func TestWorkerShrinksWhatTheServerDoesNotTake(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, counted(&calls))
	r.onAppend = func(_ int, c *ledger.Completion) error {
		if c.Result != nil {
			return fmt.Errorf("publish: %w", nats.ErrMaxPayload)
		}
		return nil
	}
	r.start()
	r.publish("k")
	require.Equal(t, "result_too_large", r.completed(1)[0].Failure.Class)
}

// A full worker lets others have what it has fetched ahead.
func TestWorkerGivesBackWhatItCannotBeginSoon(t *testing.T) {
	t.Parallel()
	called := make(chan Call, 10)
	r := newRig(t, 1, untilEnd(called))
	r.w.timing.fullFor = 20 * time.Millisecond
	r.w.o.Grace = time.Millisecond
	r.start()
	r.publish("a")
	r.publish("b")
	receive(t, called)
	var calls atomic.Int64
	other := r.worker(1, counted(&calls))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- other.Run(ctx) }()
	require.Equal(t, ledger.OutcomeSucceeded, r.completed(1)[0].Outcome)
	cancel()
	require.NoError(t, receive(t, done))
}

func TestWorkerPullsAgainAfterTheConsumerWasDeleted(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, counted(&calls)).start()
	r.publish("a")
	r.completed(1)
	r.settled()
	require.NoError(t, r.js.DeleteConsumer(t.Context(), r.stream, ConsumerName(testProvider)))
	r.publish("b")
	r.completed(2)
	require.EqualValues(t, 2, calls.Load())
}

func TestWorkerLeavesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, counted(&calls)).start()
	_, err := r.js.Publish(t.Context(), r.prefix+".attempt.start."+testProvider, []byte(`{"v":2}`))
	require.NoError(t, err)
	r.publish("a")
	r.completed(1)
	r.pending(1, 0)
}

func TestWorkerNeedsTheStream(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, counted(&calls))
	r.w.o.Stream = "NO_SUCH_STREAM"
	err := r.w.Run(t.Context())
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
	require.ErrorContains(t, r.w.Run(t.Context()), "Run was called before")
}

func TestOptions(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	good := newRig(t, 1, counted(&calls)).w.o
	for expected, spoil := range map[string]func(*Options){
		"Options.Provider":      func(o *Options) { o.Provider = "a.b" },
		"Options.Impl":          func(o *Options) { o.Impl = nil },
		"Options.Concurrency":   func(o *Options) { o.Concurrency = 0 },
		"Options.Ledger":        func(o *Options) { o.Ledger = nil },
		"Options.JetStream":     func(o *Options) { o.JetStream = nil },
		"Options.Stream":        func(o *Options) { o.Stream = "" },
		"Options.SubjectPrefix": func(o *Options) { o.SubjectPrefix = "ledger.>" },
		"Options.Name":          func(o *Options) { o.Name = "\xff" },
		"Options.Margin":        func(o *Options) { o.Margin = -1 },
		"Options.Grace":         func(o *Options) { o.Grace = -1 },
	} {
		o := good
		spoil(&o)
		_, err := New(o)
		require.ErrorContains(t, err, expected)
	}
	require.Equal(t, 2*time.Second, (&Options{}).margin(time.Minute))
	require.Equal(t, 50*time.Millisecond, (&Options{}).margin(time.Second))
	require.Equal(t, 5*time.Millisecond, (&Options{}).margin(10*time.Millisecond))
	require.Equal(t, time.Second, (&Options{Margin: time.Minute}).margin(2*time.Second))
}

// BenchmarkWorker carries out attempts of a provider that does nothing.
func BenchmarkWorker(b *testing.B) {
	var calls atomic.Int64
	r := newRig(b, 256, counted(&calls))
	var wg sync.WaitGroup
	wg.Add(b.N)
	r.w.o.Ended = func(string, ledger.Outcome, time.Duration) { wg.Done() }
	for i := range b.N {
		start := &ledger.Start{Job: ledger.JobID("acme", fmt.Sprint(i)), Attempt: 1, JobVersion: 1, Owner: "acme", Kind: "echo",
			KindSeq: 1, Provider: testProvider, Input: []byte(`{"n":1}`), TimeoutMS: 60_000}
		m := start.Message()
		_, err := r.js.PublishAsync(r.prefix+"."+m.Subject, m.Data)
		require.NoError(b, err)
	}
	<-r.js.PublishAsyncComplete()
	b.ReportAllocs()
	b.ResetTimer()
	r.start()
	wg.Wait()
	b.StopTimer()
}
