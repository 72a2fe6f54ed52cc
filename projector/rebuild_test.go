package projector

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"jobledger/internal/testenv"
	"jobledger/internal/testenv/ledgerenv"
	"jobledger/ledger"
)

func (w *world) rebuildOptions() RebuildOptions {
	return RebuildOptions{Pool: w.pool, Stream: w.stream, Prefix: w.prefix}
}

func (w *world) rebuild() *RebuildReport {
	w.t.Helper()
	report, err := Rebuild(w.ctx(), w.rebuildOptions())
	require.NoError(w.t, err)
	return report
}

// generation returns the live generation.
func (w *world) generation() string {
	w.t.Helper()
	store, err := OpenStore(w.ctx(), w.pool)
	require.NoError(w.t, err)
	return store.generation
}

func requireSame(t *testing.T, want, got map[string]string) {
	t.Helper()
	for table := range want {
		if want[table] != got[table] {
			require.Equal(t, firstDifference(want[table], got[table]), "", "table %s", table)
		}
	}
}

// TestRebuildGivesTheSameTables: twice, there and back, with and without a
// projector at work.
func TestRebuildGivesTheSameTables(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newWorld(t, 3)
	last := appendHistory(w, seed, historyEntries)
	stop := w.project(appendTo(silent{}))
	w.caughtUp(last)
	stop()
	want := w.dump()
	before := w.last()

	report := w.rebuild()
	require.Equal(t, "ledger_a", report.From)
	require.Equal(t, "ledger_b", report.To)
	require.Equal(t, last, report.Entries)
	require.Equal(t, "ledger_b", w.generation())
	requireSame(t, want, w.dumpOf("ledger_b"))
	w.verify()
	require.Equal(t, before, w.last(), "I13: a rebuild appends nothing")

	// The old generation is spoilt and nobody notices; the next rebuild mends it.
	_, err := w.pool.Exec(w.ctx(), "UPDATE ledger_a.jobs SET version = 99")
	require.NoError(t, err)
	stop = w.project(appendTo(silent{}))
	w.rebuild()
	require.Equal(t, "ledger_a", w.generation())
	requireSame(t, want, w.dump())
	last = w.append(request("goes on in the new one"))
	w.caughtUp(last)
	stop()
	w.verify()
}

// TestRebuildOfNothing: a ledger without an entry.
func TestRebuildOfNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	require.Zero(t, w.rebuild().Entries)
	stop := w.project()
	w.caughtUp(w.append(echoKind()))
	stop()
	w.verify()
}

// TestRebuildOfLostTables: the database was made anew, and no projector has run.
// What no worker has claimed is started again, and no more.
func TestRebuildOfLostTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.append(echoKind())
	log := &startLog{}
	last := w.load(300, nil)
	w.rebuild()
	stop := w.project(appendTo(log))
	w.settled(last)
	stop()
	w.verify()
	require.Len(t, log.sorted(), 300)
}

// TestRebuildOfLostTablesStartsNothingAgain: where the stream has the starts, and
// they are too old for it to recognise a repetition, they are not appended again;
// only the one that was never appended is.
func TestRebuildOfLostTablesStartsNothingAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	stop := w.project()
	w.append(echoKind())
	w.settled(w.load(60, nil))
	stop()
	require.Len(t, w.starts(), 60)
	last := w.append(request("never started"))

	lost := w.onDatabase(t, ledgerenv.Database(t), 2)
	lost.rebuild()
	log := &startLog{}
	stop = lost.project(appendTo(log))
	lost.settled(last)
	stop()
	require.Len(t, log.sorted(), 1, "%v", log.sorted())
	require.Contains(t, log.sorted()[0], ledger.JobID("acme", "never started").String())
	lost.verify()
}

// TestAnIdleProjectorNoticesTheSwitch: its clock looks at the tables in use, and
// not at those of before.
func TestAnIdleProjectorNoticesTheSwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	stop := w.project()
	w.append(echoKind())
	later := request("later")
	later.DelayMS = 3_600_000
	w.settled(w.append(later))
	w.rebuild()
	id := ledger.JobID("acme", "later")
	_, err := w.pool.Exec(w.ctx(), "UPDATE ledger_b.jobs SET due_at = now() - interval '1 minute' WHERE id = $1", id)
	require.NoError(t, err)
	before := w.last()
	testenv.Eventually(t, 20*time.Second, func() (bool, string) { // nothing else is appended that could wake it
		return w.last() > before, "no due time was said"
	})
	stop()
}

// TestRedoOfALongWay takes the way of a projector that has more to perform than
// it reads again: the starts come from the tables.
func TestRedoOfALongWay(t *testing.T) {
	t.Parallel()
	const most = 200
	w := newWorld(t, 2)
	w.append(echoKind())
	w.load(most+1500, nil)
	claimed := ledger.JobID("acme", "job 7")
	w.append(claimOf(claimed, 1))
	last := w.append(&ledger.Cancel{Job: ledger.JobID("acme", "job 8")})
	w.rebuild()
	log := &startLog{}
	stop := w.project(appendTo(log), func(o *Options) { o.redoMost = most })
	w.settled(last)
	stop()
	starts := log.sorted()
	require.Len(t, starts, most+1500-2)
	require.NotContains(t, starts, attemptName(claimed, 1))
}

// TestRebuildUnderLoad has everybody at work: producers that wait for their
// decisions, a projector, and a reader that looks at the views all the time.
// No decision is lost at the switch, and the reader never sees less than before.
func TestRebuildUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.append(echoKind())
	stop := w.project()
	w.caughtUp(w.load(3000, nil))

	ctx, cancel := context.WithCancel(w.ctx())
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	var stage atomic.Int32
	for n := range 3 {
		g.Go(func() error { return w.produce(ctx, fmt.Sprintf("producer %d", n), &stage) })
	}
	g.Go(func() error { return w.watch(ctx, &stage) })
	for range 3 {
		w.rebuild()
		testenv.Eventually(t, 20*time.Second, func() (bool, string) { // it goes on in the new generation
			ahead, err := NewQueries(w.pool).Checkpoints(w.ctx())
			return err == nil && ahead[0] > 0, fmt.Sprint(ahead, err)
		})
	}
	stage.Store(1)
	require.NoError(t, g.Wait())
	w.caughtUp(w.last())
	stop()
	w.verify()
}

// produce asks for jobs one after the other, each once it has the decision on
// the one before.
func (w *world) produce(ctx context.Context, name string, stage *atomic.Int32) error {
	inbox := w.nc.NewInbox()
	sub, err := w.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	for n := 0; stage.Load() == 0; n++ {
		seq := w.ask(request(fmt.Sprintf("%s, %d", name, n)), inbox)
		for got := uint64(0); got != seq; { // the answer of before may be given once more
			m, err := sub.NextMsgWithContext(ctx)
			if err != nil {
				return fmt.Errorf("no decision on entry %d: %w", seq, err)
			}
			a, err := ledger.ParseAnswer(m.Data)
			if err != nil || a.Decision != ledger.Accepted {
				return fmt.Errorf("entry %d: the answer %+v, %w", seq, a, err)
			}
			got = a.Seq
		}
	}
	return nil
}

// watch reads the views in a loop: jobs and attempts come together, and there
// are never fewer than before.
func (w *world) watch(ctx context.Context, stage *atomic.Int32) error {
	most := 0
	for stage.Load() == 0 {
		var jobs, attempts, checkpoints int
		err := w.pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM ledger.jobs), (SELECT count(*) FROM ledger.attempts),"+
			" (SELECT count(*) FROM ledger.checkpoints)").Scan(&jobs, &attempts, &checkpoints)
		switch {
		case err != nil:
			return err
		case jobs < most || attempts != jobs || checkpoints != 2:
			return fmt.Errorf("%d jobs after %d, with %d attempts and %d checkpoints", jobs, most, attempts, checkpoints)
		}
		most = jobs
	}
	return nil
}

// TestRebuildsDoNotMeet: the second is refused while the first is at work.
func TestRebuildsDoNotMeet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	last := w.load(100, nil)
	g := newGate()
	first := w.rebuildOptions()
	first.Stream = gatedStream{w.stream, g}
	ctx, cancel := context.WithCancel(w.ctx())
	defer cancel()
	done := make(chan error, 1)
	at := make(chan struct{}, 1)
	first.Progress = func(p RebuildProgress) {
		if p.Phase != RebuildClears {
			select {
			case at <- struct{}{}:
			default:
			}
		}
	}
	go func() { _, err := Rebuild(ctx, first); done <- err }()
	receive(t, at, "the first rebuild to fold")
	_, err := Rebuild(w.ctx(), w.rebuildOptions())
	require.ErrorIs(t, err, ErrRebuilding)
	cancel()
	require.Error(t, receive(t, done, "the first rebuild's end"))
	require.Equal(t, last, w.rebuild().Entries)
}

// TestRebuildIsFenced: a rebuild that has lost its lock without noticing writes
// nothing into the tables of the next one, and does not switch.
func TestRebuildIsFenced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	last := w.load(500, nil)
	stop := w.project(appendTo(silent{}))
	w.caughtUp(last)
	stop()
	first := &rebuild{o: w.rebuildOptions()}
	first.o.Log = discard
	require.NoError(t, first.prepare(w.ctx()))
	require.Equal(t, "ledger_b", first.store.generation)
	w.rebuild()
	require.ErrorIs(t, first.work(w.ctx()), errFenced)

	// The second prepares while the first is in the middle of things.
	first = &rebuild{o: w.rebuildOptions()}
	first.o.Log = discard
	require.NoError(t, first.prepare(w.ctx()))
	second := &rebuild{o: w.rebuildOptions()}
	second.o.Log = discard
	require.NoError(t, second.prepare(w.ctx()))
	require.ErrorIs(t, first.work(w.ctx()), errFenced)
	require.Equal(t, "ledger_b", w.generation())
	require.NoError(t, second.work(w.ctx()))
	require.Equal(t, "ledger_a", w.generation())
	w.verify()
}

// TestRebuildAfterInterruptions ends rebuilds at random moments, then lets one
// through.
func TestRebuildAfterInterruptions(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 3))
	w := newWorld(t, 2)
	last := appendHistory(w, seed, historyEntries)
	stop := w.project(appendTo(silent{}))
	w.caughtUp(last)
	began := time.Now()
	w.rebuild()
	took := time.Since(began)
	interrupted := 0
	for range 25 {
		ctx, cancel := context.WithTimeout(w.ctx(), rand.N(took+took/4+time.Millisecond))
		_, err := Rebuild(ctx, w.rebuildOptions())
		if cancel(); err != nil {
			interrupted++
		}
		if rnd.IntN(5) == 0 {
			last = w.append(request(uuid.NewString()))
			w.caughtUp(last)
		}
	}
	t.Logf("%d of 25 were interrupted", interrupted)
	require.Positive(t, interrupted)
	w.rebuild()
	w.caughtUp(w.append(request("goes on")))
	stop()
	w.verify()
}

// TestRebuildOfAnotherStream: tables that were folded from another stream are
// not replaced without a word.
func TestRebuildOfAnotherStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	stop := w.project(appendTo(silent{}))
	w.caughtUp(w.load(200, nil))
	stop()
	require.NoError(t, w.js.DeleteStream(w.ctx(), w.name))
	_, err := w.js.CreateStream(w.ctx(), jetstream.StreamConfig{Name: w.name, Subjects: ledger.StoredSubjects(w.prefix)})
	require.NoError(t, err)
	w.append(echoKind())
	last := w.append(request("the only one"))
	_, err = Rebuild(w.ctx(), w.rebuildOptions())
	var wrong *StreamError
	require.ErrorAs(t, err, &wrong)
	require.Equal(t, "ledger_a", w.generation())

	o := w.rebuildOptions()
	o.AcceptStream = true
	_, err = Rebuild(w.ctx(), o)
	require.NoError(t, err)
	log := &startLog{}
	stop = w.project(appendTo(log))
	w.settled(last)
	stop()
	require.Len(t, log.sorted(), 1)
	w.verify()
}

var discard = slog.New(slog.DiscardHandler)
