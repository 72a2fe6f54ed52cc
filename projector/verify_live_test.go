package projector

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
)

// verifyWith verifies under limits.
func (w *world) verifyWith(limits verifyLimits, change ...func(*VerifyOptions)) *VerifyReport {
	w.t.Helper()
	o := VerifyOptions{Pool: w.pool, Stream: w.stream, Prefix: w.prefix}
	for _, f := range change {
		f(&o)
	}
	tx, err := w.pool.Begin(w.ctx())
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, tx.Rollback(w.ctx())) }()
	_, err = tx.Exec(w.ctx(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
	require.NoError(w.t, err)
	v, err := newVerifier(w.ctx(), o, tx)
	require.NoError(w.t, err)
	v.limits = limits
	require.NoError(w.t, v.run(w.ctx()))
	return v.report
}

// TestVerifyOfHistories: random histories are as they should be, whatever leaves
// memory when.
func TestVerifyOfHistories(t *testing.T) {
	t.Parallel()
	for shards := 1; shards <= 3; shards++ {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 2))
			w := newWorld(t, shards)
			last := appendHistory(w, seed, 800)
			stop := w.project(appendTo(silent{}))
			w.caughtUp(last)
			stop()
			want := w.compare()
			require.Zero(t, want.Found, "%v", want.Differences)
			for range 6 {
				limits := verifyLimits{jobs: rnd.IntN(100), batch: 1 + rnd.IntN(20), step: 1 + rnd.IntN(50), suspects: 0,
					rejections: 1 + rnd.IntN(20), window: 1 + rnd.Uint64N(200), candidates: 1}
				got := w.verifyWith(limits)
				require.Zero(t, got.Found, "%+v: %v", limits, got.Differences)
				require.Equal(t, want.Rows, got.Rows)
			}
		})
	}
}

// TestVerifyStops: where nearly everything differs, it says so and does not hold
// all of it.
func TestVerifyStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.append(echoKind())
	last := w.load(400, nil)
	stop := w.project(appendTo(silent{}))
	w.caughtUp(last)
	stop()
	_, err := w.pool.Exec(w.ctx(), "UPDATE ledger_a.jobs SET kind = 'other'")
	require.NoError(t, err)
	limits := greedy
	limits.suspects = 50
	r := w.verifyWith(limits)
	require.True(t, r.Stopped)
	require.GreaterOrEqual(t, r.Found, 50)
	require.Less(t, r.Found, 400)
	require.Len(t, r.Differences, 20)
	r = w.compare()
	require.False(t, r.Stopped)
	require.Equal(t, 400, r.Found)
}

// TestVerifyOfLookedAgain: a job that waits for a proof is looked at again and
// again, which moves its due time and leaves no sequence. That is no difference,
// however many jobs wait so.
func TestVerifyOfLookedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.append(echoKind())
	brake := func(name string) uint64 {
		w.append(&ledger.ProviderDefinition{Name: name, Type: "http", Definition: []byte(`{}`)})
		return w.append(&ledger.ProviderBrake{Name: name, Paused: true, Actor: "operator"})
	}
	brake("primary")
	w.load(60, nil)
	stop := w.project(appendTo(silent{}))
	last := brake("fallback")
	w.caughtUp(last)
	var due time.Time
	for n := range 60 {
		j := w.job("acme", fmt.Sprintf("job %d", n))
		require.Equal(t, ledger.JobWaiting, j.State)
		due = j.DueAt
		last = w.append(&ledger.Due{Job: j.ID, Due: j.DueAt})
	}
	w.caughtUp(last)
	stop()
	require.NotEqual(t, due, w.job("acme", "job 59").DueAt, "it was looked at")
	limits := greedy
	limits.suspects = 0
	r := w.verifyWith(limits)
	require.False(t, r.Stopped)
	require.Zero(t, r.Found, "%v", r.Differences)
}

// TestVerifyOfTheLiveSystem verifies 20 times while entries pour in and
// generations are switched all the time. There must be no false alarm.
func TestVerifyOfTheLiveSystem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.append(echoKind())
	stop := w.project()
	w.caughtUp(w.load(1000, nil))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	var done atomic.Bool
	g.Go(func() error { return w.liveLoad(ctx, &done) })
	var switches atomic.Int64
	g.Go(func() error {
		for !done.Load() {
			if _, err := Rebuild(ctx, w.rebuildOptions()); err != nil {
				return err
			}
			switches.Add(1)
			if err := pause(ctx, 200*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
	limits := verifyLimits{jobs: 50, batch: 20, step: 100, suspects: 0, rejections: 20, window: 500, candidates: 1}
	for n := 0; n < 20 || switches.Load() < 3; n++ {
		var seen []uint64
		report := w.verifyWith([]verifyLimits{defaultVerifyLimits, limits}[n%2], func(o *VerifyOptions) {
			o.Progress = func(folded, end uint64) {
				if folded > end {
					folded = math.MaxUint64
				}
				seen = append(seen, folded)
			}
		})
		require.Zero(t, report.Found, "%v", report.Differences)
		require.True(t, slices.IsSorted(seen))
		require.Equal(t, report.Entries, seen[len(seen)-1])
	}
	done.Store(true)
	require.NoError(t, g.Wait())
	w.caughtUp(w.last())
	stop()
	w.verify()
}

// liveLoad appends whole lives of jobs, refused entries, and entries for jobs of
// long ago.
func (w *world) liveLoad(ctx context.Context, done *atomic.Bool) error {
	for n := 0; !done.Load(); n++ {
		if n > 0 && n%4 == 0 { // about 1,000 entries a second: the rebuilds are to catch up on a busy machine, too
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
		job := ledger.JobID("acme", fmt.Sprint("live ", n))
		for _, b := range []ledger.Body{
			request(fmt.Sprint("live ", n)), claimOf(job, 1), completionOf(job, 1, ledger.OutcomeSucceeded),
			completionOf(ledger.JobID("acme", fmt.Sprint("live ", n/2)), 1, ledger.OutcomeFailed),
			&ledger.Cancel{Job: ledger.JobID("acme", fmt.Sprintf("job %d", n)), Owner: "acme"},
		} {
			if _, err := w.Append(ctx, ledger.Message{Subject: b.Message().Subject, Data: b.Message().Data}); err != nil {
				return err
			}
		}
	}
	return nil
}
