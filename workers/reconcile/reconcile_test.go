package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// A world is tables and a fold in memory, with providers that the test governs.
type world struct {
	t *testing.T

	mu       sync.Mutex
	attempts []*ledger.Attempt // the unknown ones
	jobs     map[uuid.UUID]*ledger.Job
	said     []*ledger.Resolution
	refuse   ledger.Reason // what resolutions are refused with; "": they are not
	lookups  map[string]int
	replays  map[string]int
	outcomes map[Outcome]int
	clock    time.Time
	noClock  bool
	pages    int
	judge    func(context.Context, *ledger.Attempt, []byte) (string, error) // nil: every result will do
}

func newWorld(t *testing.T) *world {
	return &world{t: t, jobs: map[uuid.UUID]*ledger.Job{}, lookups: map[string]int{}, replays: map[string]int{},
		outcomes: map[Outcome]int{}, clock: time.Unix(1000, 0)}
}

// lose adds an unknown attempt that the clock's owner has not given up yet.
func (w *world) lose(provider, key string) *ledger.Attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := &ledger.Attempt{
		Job: ledger.JobID("acme", key), Number: 1, Provider: provider, State: ledger.AttemptUnknown, JobVersion: 1,
		RequestedAt: time.Unix(int64(len(w.attempts)), 0), UnknownSince: time.Unix(900, 0), Deadline: time.Unix(2000, 0), StartSeq: 7,
	}
	w.attempts = append(w.attempts, a)
	w.jobs[a.Job] = &ledger.Job{ID: a.Job, State: ledger.JobUnknown, Version: 1, Attempts: []*ledger.Attempt{a}}
	return a
}

func (w *world) Attempts(_ context.Context, f ledger.AttemptFilter) ([]*ledger.Attempt, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pages++; w.pages%4 == 0 {
		return nil, errors.New("the tables are away")
	}
	var page []*ledger.Attempt
	for _, a := range w.attempts {
		if (f.Provider == "" || f.Provider == a.Provider) && a.RequestedAt.After(f.After.At) && len(page) < f.Limit {
			row := *a
			page = append(page, &row)
		}
	}
	return page, nil
}

func (w *world) Job(_ context.Context, id uuid.UUID) (*ledger.Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.jobs[id], nil
}

func (w *world) Decide(_ context.Context, m ledger.Message) (ledger.Answer, error) {
	e := ledger.Decode(1, time.Now(), m.Subject, m.Data)
	r, ok := e.Body.(*ledger.Resolution)
	if !ok {
		w.t.Errorf("the ledger does not accept what was said: %+v: %s", e.Fault, m.Data)
		return ledger.Answer{}, errors.New("no resolution")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, r)
	if w.refuse != "" {
		return ledger.Answer{Decision: ledger.Refused, Reason: w.refuse}, nil
	}
	w.endLocked(r.Job)
	return ledger.Answer{Decision: ledger.Accepted}, nil
}

func (w *world) endLocked(job uuid.UUID) {
	w.attempts = slices.DeleteFunc(w.attempts, func(a *ledger.Attempt) bool { return a.Job == job })
}

func (w *world) now(context.Context) (time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.noClock {
		return time.Time{}, errors.New("the stream is away")
	}
	return w.clock, nil
}

// A lookupFunc makes a function a look-up.
type lookupFunc func(ctx context.Context, job uuid.UUID, attempt int) (Finding, error)

func (f lookupFunc) Ask(ctx context.Context, job uuid.UUID, attempt int) (Finding, error) {
	return f(ctx, job, attempt)
}

// lookup is one that counts and answers as told.
func (w *world) lookup(f Finding, err error) Lookup {
	return lookupFunc(func(_ context.Context, job uuid.UUID, _ int) (Finding, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lookups[job.String()]++
		return f, err
	})
}

// A replayFunc makes a function a replayer.
type replayFunc func(ctx context.Context, a *ledger.Attempt) (ledger.Answer, error)

func (f replayFunc) Replay(ctx context.Context, a *ledger.Attempt) (ledger.Answer, error) {
	return f(ctx, a)
}

// replayer is one that counts, and whose attempts then have the given answer.
func (w *world) replayer(answer ledger.Answer, ends bool) Replayer {
	return replayFunc(func(_ context.Context, a *ledger.Attempt) (ledger.Answer, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.replays[a.Job.String()]++
		if answer.Decision == ledger.Accepted {
			for _, row := range w.attempts {
				if row.Job == a.Job {
					row.Replays++
				}
			}
		}
		if ends {
			w.endLocked(a.Job)
		}
		return answer, nil
	})
}

// provider gives a provider waits of tests.
func quick(p Provider) Provider {
	p.Initial, p.Max = time.Millisecond, 4*time.Millisecond
	return p
}

// reconcile runs a reconciler until the test ends or stop is called.
func (w *world) reconcile(providers map[string]Provider) (stop func()) {
	w.t.Helper()
	r, err := New(Options{
		Judge: w.judge,
		Name:  "here", Providers: providers, Reader: w, Ledger: w, Now: w.now, Log: slog.New(slog.DiscardHandler),
		Observe: func(_ string, what Outcome) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.outcomes[what]++
		},
	})
	require.NoError(w.t, err)
	r.pause = time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.t.Cleanup(stop)
	return stop
}

// await waits until something holds in the world.
func (w *world) await(what string, condition func() bool) {
	w.t.Helper()
	testenv.Eventually(w.t, ample, func() (bool, string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return condition(), fmt.Sprintf("%s; the outcomes are %v, said was %d", what, w.outcomes, len(w.said))
	})
}

func (w *world) awaitOutcomes(what Outcome, n int) {
	w.t.Helper()
	w.await(string(what)+" is missing", func() bool { return w.outcomes[what] >= n })
}

func TestWhatTheLookupKnowsIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		finding Finding
		want    ledger.Resolution
	}{
		"succeeded": {
			Finding{Attempt: 1, Status: Succeeded, Result: []byte(`{"n":1}`)},
			ledger.Resolution{As: ledger.OutcomeSucceeded, Result: []byte(`{"n":1}`), Reason: "provider main answered the look-up: succeeded"},
		},
		"failed": {
			Finding{Attempt: 1, Status: Failed, Executed: true, Message: "no money"},
			ledger.Resolution{As: ledger.OutcomeFailed, Reason: "provider main answered the look-up: failed: no money", Failure: ledger.Failure{
				Class: "lookup_failed", Message: "provider main answered the look-up: failed: no money", Executed: true, Reach: ledger.ReachTransient}},
		},
		"failed without effect": {
			Finding{Attempt: 1, Status: Failed},
			ledger.Resolution{As: ledger.OutcomeFailed, Reason: "provider main answered the look-up: failed", Failure: ledger.Failure{
				Class: "lookup_failed", Message: "provider main answered the look-up: failed", Reach: ledger.ReachTransient}},
		},
	} {
		w := newWorld(t)
		a := w.lose("main", "order")
		w.lose("other", "nobody asks for this one")
		w.reconcile(map[string]Provider{"main": quick(Provider{Lookup: w.lookup(c.finding, nil)})})
		w.awaitOutcomes(Settled, 1)
		require.Len(t, w.said, 1, name)
		c.want.Job, c.want.Attempt, c.want.Actor, c.want.IfUnknown = a.Job, 1, "reconciler/here", true
		require.Equal(t, c.want, *w.said[0], name)
		require.Equal(t, 1, w.lookups[a.Job.String()], name)
	}
}

// TestFoundResultsAreJudged: a result that a look-up found wins no more than one
// that came by itself.
func TestFoundResultsAreJudged(t *testing.T) {
	t.Parallel()
	lookup := Finding{Attempt: 1, Status: Succeeded, Result: []byte(`{"n":1}`)}
	w := newWorld(t)
	w.judge = func(_ context.Context, a *ledger.Attempt, result []byte) (string, error) {
		require.Equal(t, 1, a.Number)
		return "schema: " + string(result), nil
	}
	a := w.lose("main", "order")
	w.reconcile(map[string]Provider{"main": quick(Provider{Lookup: w.lookup(lookup, nil)})})
	w.awaitOutcomes(Settled, 1)
	require.Equal(t, ledger.Resolution{
		Job: a.Job, Attempt: 1, As: ledger.OutcomeFailed, Actor: "reconciler/here", IfUnknown: true,
		Reason:  "provider main answered the look-up: succeeded, with a result that breaks the contract",
		Failure: ledger.Failure{Class: "contract", Message: `schema: {"n":1}`, Executed: true, Reach: ledger.ReachTransient},
	}, *w.said[0])

	w = newWorld(t)
	w.judge = func(context.Context, *ledger.Attempt, []byte) (string, error) {
		return "", errors.New("another contract")
	}
	w.lose("main", "order")
	stop := w.reconcile(map[string]Provider{"main": quick(Provider{Lookup: w.lookup(lookup, nil)})})
	w.awaitOutcomes(NoAnswer, 3)
	stop()
	require.Empty(t, w.said)
}

func TestWhatTheLookupDoesNotKnowChangesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		finding Finding
		err     error
		failed  bool // not_found: failed
		want    Outcome
	}{
		"another attempt":                {finding: Finding{Attempt: 2, Status: Succeeded, Result: []byte("1")}, want: OtherAttempt},
		"running":                        {finding: Finding{Attempt: 1, Status: Running}, want: StillRunning},
		"not found":                      {finding: Finding{Attempt: 1, Status: NotFound}, want: Unclear},
		"not found before the deadline":  {finding: Finding{Attempt: 1, Status: NotFound}, failed: true, want: Unclear},
		"another attempt is not found":   {finding: Finding{Attempt: 2, Status: NotFound}, failed: true, want: OtherAttempt},
		"no answer":                      {err: errors.New("gone"), failed: true, want: NoAnswer},
		"an answer that is no answer":    {err: malformed("prose"), failed: true, want: BadAnswer},
		"a wrapped one of the same kind": {err: fmt.Errorf("x: %w", malformed("prose")), want: BadAnswer},
	} {
		w := newWorld(t)
		w.lose("main", "order")
		stop := w.reconcile(map[string]Provider{"main": quick(Provider{Lookup: w.lookup(c.finding, c.err), NotFoundFailed: c.failed})})
		w.awaitOutcomes(c.want, 3)
		stop()
		require.Empty(t, w.said, name)
		require.Len(t, w.outcomes, 1, "%s: %v", name, w.outcomes)
	}
}

// That an attempt is not found is the truth if the provider promises it and no
// request can be under way any more, by the clock that made the deadline.
func TestNotFoundAfterTheDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.lose("main", "order")
	w.noClock = true
	w.reconcile(map[string]Provider{"main": quick(Provider{Lookup: w.lookup(Finding{Attempt: 1, Status: NotFound}, nil), NotFoundFailed: true})})
	w.awaitOutcomes(Unclear, 2)
	w.mu.Lock()
	require.Empty(t, w.said)
	w.noClock, w.clock = false, a.Deadline
	n := w.outcomes[Unclear]
	w.mu.Unlock()
	w.awaitOutcomes(Unclear, n+2)
	w.mu.Lock()
	require.Empty(t, w.said)
	w.clock = a.Deadline.Add(time.Microsecond)
	w.mu.Unlock()
	w.awaitOutcomes(Settled, 1)
	require.Equal(t, ledger.OutcomeFailed, w.said[0].As)
	require.Equal(t, "not_found", w.said[0].Failure.Class)
	require.False(t, w.said[0].Failure.Executed)

	late := newWorld(t) // it became unknown at its deadline: no clock is needed
	late.noClock = true
	late.lose("main", "order").UnknownSince = time.Unix(2000, 0)
	late.reconcile(map[string]Provider{"main": quick(Provider{Lookup: late.lookup(Finding{Attempt: 1, Status: NotFound}, nil), NotFoundFailed: true})})
	late.awaitOutcomes(Settled, 1)
}

func TestTheFoldHasTheLastWord(t *testing.T) {
	t.Parallel()
	for reason, want := range map[ledger.Reason]Outcome{
		ledger.AttemptEnded: Settled, ledger.ResultAlreadyClaimed: Settled, ledger.Fenced: Settled, ledger.Forbidden: BadAnswer,
	} {
		w := newWorld(t)
		w.lose("main", "order")
		w.refuse = reason
		w.reconcile(map[string]Provider{"main": quick(Provider{Lookup: w.lookup(Finding{Attempt: 1, Status: Failed}, nil)})})
		w.awaitOutcomes(want, 1)
	}
}

// A provider that does not answer keeps nobody else waiting, and is not asked
// about more attempts at a time than it may be.
func TestADeadLookupStarvesNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 3 * queueLength {
		w.lose("dead", fmt.Sprint("dead ", i))
	}
	for i := range 20 {
		w.lose("well", fmt.Sprint("well ", i))
	}
	var asking, most int
	dead := lookupFunc(func(ctx context.Context, _ uuid.UUID, _ int) (Finding, error) {
		w.mu.Lock()
		asking++
		most = max(most, asking)
		w.mu.Unlock()
		<-ctx.Done()
		return Finding{}, ctx.Err()
	})
	w.reconcile(map[string]Provider{
		"dead": quick(Provider{Lookup: dead, InFlight: 2}),
		"well": quick(Provider{Lookup: w.lookup(Finding{Attempt: 1, Status: Succeeded, Result: []byte("1")}, nil)}),
	})
	w.awaitOutcomes(Settled, 20)
	require.LessOrEqual(t, most, 2)
	for _, r := range w.said {
		require.Equal(t, ledger.OutcomeSucceeded, r.As)
	}
}

// All get their turns though those before them stay unknown.
func TestOldOnesDoNotHideNewOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 2*ledger.MaxPage + 1 {
		w.lose("main", fmt.Sprint(i))
	}
	w.reconcile(map[string]Provider{"main": quick(Provider{Lookup: w.lookup(Finding{Attempt: 1, Status: Running}, nil)})})
	w.await("some were not looked at", func() bool { return len(w.lookups) == 2*ledger.MaxPage+1 })
}

func TestReplays(t *testing.T) {
	t.Parallel()
	accepted := ledger.Answer{Decision: ledger.Accepted}
	for name, c := range map[string]struct {
		provider func(w *world) Provider
		change   func(w *world, a *ledger.Attempt)
		want     Outcome
		times    int
		replays  int // -1: any number
	}{
		"by itself": {
			provider: func(w *world) Provider { return Provider{Replay: w.replayer(accepted, true)} },
			want:     Replayed, times: 1, replays: 1,
		},
		"the look-up does not know it": {
			provider: func(w *world) Provider {
				return Provider{Lookup: w.lookup(Finding{Attempt: 1, Status: NotFound}, nil), Replay: w.replayer(accepted, true)}
			},
			want: Replayed, times: 1, replays: 1,
		},
		"the look-up says that it runs": {
			provider: func(w *world) Provider {
				return Provider{Lookup: w.lookup(Finding{Attempt: 1, Status: Running}, nil), Replay: w.replayer(accepted, true)}
			},
			want: StillRunning, times: 3,
		},
		"the look-up does not answer": {
			provider: func(w *world) Provider {
				return Provider{Lookup: w.lookup(Finding{}, errors.New("gone")), Replay: w.replayer(accepted, true)}
			},
			want: NoAnswer, times: 3,
		},
		"absence will be the truth": {
			provider: func(w *world) Provider {
				return Provider{Lookup: w.lookup(Finding{Attempt: 1, Status: NotFound}, nil), NotFoundFailed: true, Replay: w.replayer(accepted, true)}
			},
			want: Unclear, times: 3,
		},
		"no more than so often": {
			provider: func(w *world) Provider { return Provider{Replay: w.replayer(accepted, false)} },
			want:     NotReplayed, times: 3, replays: ledger.MaxReplays,
		},
		"the job is settled": {
			provider: func(w *world) Provider { return Provider{Replay: w.replayer(accepted, true)} },
			change:   func(w *world, a *ledger.Attempt) { w.jobs[a.Job].State = ledger.JobFailed },
			want:     NotReplayed, times: 3,
		},
		"the attempt is fenced": {
			provider: func(w *world) Provider { return Provider{Replay: w.replayer(accepted, true)} },
			change:   func(w *world, a *ledger.Attempt) { w.jobs[a.Job].Version = 2 },
			want:     NotReplayed, times: 3,
		},
		"the fold does not allow it": {
			provider: func(w *world) Provider {
				return Provider{Replay: w.replayer(ledger.Answer{Decision: ledger.Refused, Reason: ledger.ReplayNotAllowed}, false)}
			},
			want: NotReplayed, times: 5, replays: 1,
		},
		"the provider is paused": {
			provider: func(w *world) Provider {
				return Provider{Replay: w.replayer(ledger.Answer{Decision: ledger.Refused, Reason: ledger.PausedProvider}, false)}
			},
			want: NotReplayed, times: 5, replays: 1,
		},
		"the job was settled just now": {
			provider: func(w *world) Provider {
				return Provider{Replay: w.replayer(ledger.Answer{Decision: ledger.Refused, Reason: ledger.JobFinished}, false)}
			},
			want: NotReplayed, times: 5, replays: 1,
		},
		"somebody else was faster": {
			provider: func(w *world) Provider {
				return Provider{Replay: w.replayer(ledger.Answer{Decision: ledger.Refused, Reason: ledger.AlreadyClaimed}, false)}
			},
			want: NotReplayed, times: 3, replays: -1,
		},
		"another request would be sent": {
			provider: func(w *world) Provider {
				return Provider{Replay: replayFunc(func(context.Context, *ledger.Attempt) (ledger.Answer, error) {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.replays[testJob.String()]++
					return ledger.Answer{}, fmt.Errorf("x: %w", ErrNotTheSame)
				})}
			},
			want: NotReplayed, times: 5, replays: 1,
		},
		"the worker cannot": {
			provider: func(*world) Provider {
				return Provider{Replay: replayFunc(func(context.Context, *ledger.Attempt) (ledger.Answer, error) {
					return ledger.Answer{}, errors.New("not at work")
				})}
			},
			want: NoAnswer, times: 3,
		},
	} {
		w := newWorld(t)
		a := w.lose("main", "order")
		if c.change != nil {
			c.change(w, a)
		}
		stop := w.reconcile(map[string]Provider{"main": quick(c.provider(w))})
		w.awaitOutcomes(c.want, c.times)
		stop()
		if c.replays >= 0 {
			require.Equal(t, c.replays, w.replays[a.Job.String()], name)
		}
		require.Empty(t, w.said, name)
	}
}

// Replays rest the longer the more there were, also for a process that has just
// begun.
func TestReplaysRestLonger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lose("main", "fresh")
	w.lose("main", "often").Replays = 8
	p := Provider{Replay: w.replayer(ledger.Answer{Decision: ledger.Accepted}, true), Initial: 20 * time.Millisecond, Max: time.Hour}
	began := time.Now()
	w.reconcile(map[string]Provider{"main": p})
	w.awaitOutcomes(Replayed, 1)
	require.Equal(t, map[string]int{ledger.JobID("acme", "fresh").String(): 1}, w.replays)
	w.awaitOutcomes(Replayed, 2)
	require.GreaterOrEqual(t, time.Since(began), 20*time.Millisecond<<7/2)
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, err := New(Options{Name: "here", Reader: w, Ledger: w, Now: w.now, Providers: map[string]Provider{"main": quick(Provider{Lookup: w.lookup(Finding{}, nil)})}})
	require.NoError(t, err)
	l := r.lanes["main"]
	for i := range maxRemembered + 1000 {
		a := &ledger.Attempt{Job: ledger.JobID("acme", fmt.Sprint(i)), Number: 1}
		l.offer(a, 1, time.Now())
	}
	require.LessOrEqual(t, len(l.known), maxRemembered)
	require.Len(t, l.queue, queueLength)
	l.forget(2)
	require.Len(t, l.known, queueLength) // what waits to be looked at
}

func TestOptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good := Options{Name: "here", Reader: w, Ledger: w, Now: w.now}
	_, err := New(good)
	require.NoError(t, err)
	for _, p := range []Provider{
		{Initial: 1, Max: 1},
		{Lookup: w.lookup(Finding{}, nil)},
		{Lookup: w.lookup(Finding{}, nil), Initial: 2, Max: 1},
		{Lookup: w.lookup(Finding{}, nil), Initial: 1, Max: 1, InFlight: -1},
	} {
		o := good
		o.Providers = map[string]Provider{"main": p}
		_, err := New(o)
		require.ErrorContains(t, err, "main")
	}
	for _, o := range []Options{{}, {Name: "here"}, {Reader: w, Ledger: w, Now: w.now}} {
		_, err := New(o)
		require.Error(t, err)
	}
}
