package workers

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

// replayRig is a rig whose worker only replays, with an attempt that somebody
// has claimed and of which nobody knows the end.
func replayRig(t *testing.T, impl Provider) (*rig, *ledger.Attempt) {
	t.Helper()
	r := newRig(t, 1, impl)
	r.w.o.ReplayOnly, r.replays = true, true
	start := r.publish("order")
	r.claimants[attemptID{start.Job, 1}] = "the claim of a worker that is gone"
	return r, &ledger.Attempt{Job: start.Job, Number: 1, Provider: testProvider, State: ledger.AttemptUnknown, StartSeq: 1}
}

// working waits until the worker takes replays.
func (r *rig) working() *rig {
	r.t.Helper()
	r.start()
	require.Eventually(r.t, func() bool {
		r.w.mu.Lock()
		defer r.w.mu.Unlock()
		return r.w.working
	}, ample, time.Millisecond)
	return r
}

func TestReplaySendsTheSameRequestOnceMore(t *testing.T) {
	t.Parallel()
	calls := make(chan Call, 10)
	r, a := replayRig(t, providerFunc(func(_ context.Context, c Call) (Result, error) {
		calls <- c
		return Result{Body: []byte(`{"again":true}`), ProviderRef: "ref"}, nil
	}))
	answer, err := r.working().w.Replay(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, ledger.Accepted, answer.Decision)

	call := receive(t, calls)
	require.Equal(t, a.Job, call.JobID)
	require.Equal(t, a.Job.String(), call.IdempotencyKey)
	require.Equal(t, `{"n":1}`, string(call.Input))
	require.Equal(t, 1, r.claimCount())
	claim := r.claims[0]
	require.True(t, claim.Replay)
	require.Equal(t, []any{uint64(1), int64(1), "worker under test"}, []any{claim.StartSeq, claim.JobVersion, claim.Worker})
	require.NotEmpty(t, claim.Claim)
	c := r.completed(1)[0]
	require.Equal(t, claim.Claim, c.Claim)
	require.Equal(t, ledger.OutcomeSucceeded, c.Outcome)
	require.JSONEq(t, `{"again":true}`, string(c.Result))
	require.Empty(t, calls)
}

// Of several who replay the same attempt, each with the fold's leave, none makes
// more calls than its claims were accepted; refused ones make none.
func TestRefusedReplaysSendNothing(t *testing.T) {
	t.Parallel()
	r, a := replayRig(t, providerFunc(func(context.Context, Call) (Result, error) {
		return Result{}, errors.New("called")
	}))
	r.replays = false
	r.working()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			answer, err := r.w.Replay(t.Context(), a)
			if err != nil || answer.Decision != ledger.Refused || answer.Reason != ledger.AlreadyClaimed {
				t.Errorf("the answer is %+v, %v", answer, err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 4, r.claimCount())
	require.Empty(t, r.completions)
}

func TestReplayNeedsTheStart(t *testing.T) {
	t.Parallel()
	r, a := replayRig(t, providerFunc(func(context.Context, Call) (Result, error) {
		return Result{}, errors.New("called")
	}))
	_, err := r.w.Replay(t.Context(), a)
	require.ErrorIs(t, err, ErrNotWorking)
	r.working()
	r.publish("another") // entry 2
	for _, change := range []func(a *ledger.Attempt){
		func(a *ledger.Attempt) { a.StartSeq = 2 },
		func(a *ledger.Attempt) { a.StartSeq = 3 },
		func(a *ledger.Attempt) { a.Number = 2 },
		func(a *ledger.Attempt) { a.Provider = "other" },
	} {
		b := *a
		change(&b)
		_, err := r.w.Replay(t.Context(), &b)
		require.Error(t, err)
	}
	require.Zero(t, r.claimCount())

	// All slots are in use.
	r.w.slots <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = r.w.Replay(ctx, a)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	<-r.w.slots
	require.Zero(t, r.claimCount())
}

// Nobody decides on the claim: nothing is sent, and should the claim be accepted
// later, the attempt is not left running with nobody.
func TestUndecidedReplayIsGivenUp(t *testing.T) {
	t.Parallel()
	r, a := replayRig(t, providerFunc(func(context.Context, Call) (Result, error) {
		return Result{}, errors.New("called")
	}))
	r.onDecide = func(context.Context, int, *ledger.Claim) error { return errors.New("the ledger is away") }
	r.w.timing.claimPatience = 50 * time.Millisecond
	_, err := r.working().w.Replay(t.Context(), a)
	require.Error(t, err)
	c := r.completed(1)[0]
	require.Equal(t, ledger.OutcomeUnsent, c.Outcome) // which the fold takes for unknown after a replay
	require.Equal(t, r.claims[0].Claim, c.Claim)
}

// Whoever asked for a replay may stop to wait for it: the call goes on, and its
// end is recorded before the worker ends.
func TestReplayOutlivesTheWaiting(t *testing.T) {
	t.Parallel()
	called, release := make(chan Call, 10), make(chan struct{})
	r, a := replayRig(t, providerFunc(func(_ context.Context, c Call) (Result, error) {
		called <- c
		<-release
		return Result{Body: []byte("1")}, nil
	}))
	r.working()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := r.w.Replay(ctx, a)
		failed <- err
	}()
	receive(t, called)
	cancel()
	require.ErrorIs(t, receive(t, failed), context.Canceled)
	require.Empty(t, r.completions)
	r.cancel()
	require.Eventually(t, func() bool {
		_, err := r.w.Replay(ctx, a)
		return errors.Is(err, ErrNotWorking)
	}, ample, time.Millisecond)
	close(release)
	require.NoError(t, r.stopped())
	require.Equal(t, ledger.OutcomeSucceeded, r.completed(1)[0].Outcome)
}
