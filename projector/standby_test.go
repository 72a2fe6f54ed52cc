package projector

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// A runner is a projector at work.
type runner struct {
	*Projector
	appender *failing
	stop     func()
}

func (w *world) runner(opts ...func(*Options)) *runner {
	w.t.Helper()
	f := w.failing()
	p, cancel, done := w.run(append(opts, appendTo(f))...)
	return &runner{p, f, func() {
		w.t.Helper()
		cancel()
		require.NoError(w.t, receive(w.t, done, "the projector's end"))
	}}
}

// pair runs two projectors on one ledger until one of them stands by.
func (w *world) pair() (active, standby *runner) {
	w.t.Helper()
	one, other := w.runner(), w.runner()
	testenv.Eventually(w.t, 30*time.Second, func() (bool, string) {
		w.append(request(fmt.Sprint("to compete for ", w.last()))) // an idle ledger has no winner
		if errors.Is(one.Status().Err, ErrOtherWriter) {
			one, other = other, one
		}
		return one.Status().Active && errors.Is(other.Status().Err, ErrOtherWriter),
			fmt.Sprintf("%+v, %+v", one.Status(), other.Status())
	})
	return one, other
}

func (w *world) onceEach() {
	w.t.Helper()
	for name, n := range w.starts() {
		require.Equal(w.t, 1, n, name)
	}
}

func TestStandByTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.append(echoKind())
	active, standby := w.pair()
	w.settled(w.last())
	active.stop() // on a slow machine the other may be the active one again by now
	require.False(t, active.Status().Active)
	began := time.Now()
	seq := w.append(request("after the first has gone"))
	w.caughtUp(seq)
	require.Less(t, time.Since(began), 15*time.Second)
	w.settled(seq)
	require.True(t, standby.Status().Active)
	standby.stop()
	w.verify()
	w.onceEach()
}

// TestStandByMindsTheClock: on an idle ledger, too, somebody says what is due
// when the projector at work dies.
func TestStandByMindsTheClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.append(echoKind())
	active, _ := w.pair()
	later := request("later")
	later.DelayMS = 1
	w.settled(w.append(later))
	later = request("much later")
	later.DelayMS = 1500
	seq := w.append(later)
	w.caughtUp(seq)
	active.stop()
	testenv.Eventually(t, 20*time.Second, func() (bool, string) {
		state := w.job("acme", "much later").State
		return state == ledger.JobRunning, string(state)
	})
}

// TestStandByMindsTheEffects: the one at work dies between a commit and its
// effects, and no other entry comes.
func TestStandByMindsTheEffects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.append(echoKind())
	active, _ := w.pair()
	w.settled(w.last())
	started := len(w.starts())
	active.appender.broken.Store(true)
	seq := w.append(request("one"))
	receive(t, active.appender.refused, "a refused start")
	w.caughtUp(seq)
	active.stop()
	w.settled(seq)
	require.Len(t, w.starts(), started+1)
	w.onceEach()
}

// TestFrozenInATransaction: a projector stops in its tracks after it wrote its
// rows and before its COMMIT. What it holds is taken from it.
func TestFrozenInATransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.append(echoKind())
	proxy := testenv.NewProxy(t, w.url)
	frozen := make(chan struct{}, 1)
	wire := &wire{}
	pool := w.openPool(proxy.URL(w.url), wire.through)
	first := w.runner(func(o *Options) { o.Pool = pool })
	w.settled(w.append(request("before")))
	wire.onCommit(func() fate {
		proxy.Hold()
		select {
		case frozen <- struct{}{}:
		default:
		}
		return passes
	})
	seq := w.append(request("while it is frozen"))
	receive(t, frozen, "a COMMIT")
	second := w.runner()
	began := time.Now()
	w.caughtUp(seq)
	t.Logf("the other went on after %v", time.Since(began).Round(time.Millisecond))
	require.Less(t, time.Since(began), 3*sessionTimeout)
	wire.onCommit(nil)
	proxy.Restore() // the COMMIT arrives at a session that is gone
	seq = w.append(request("after"))
	w.settled(seq)
	first.stop()
	second.stop()
	w.verify()
	w.onceEach()
}

// TestHeldCheckpoint: somebody holds a checkpoint's row for longer than the
// timeouts. The projector says so, and goes on when it is free.
func TestHeldCheckpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	p := w.runner()
	w.settled(w.append(echoKind()))
	holder := w.openPool(w.url, func(cfg *pgxpool.Config) {
		delete(cfg.ConnConfig.RuntimeParams, "idle_in_transaction_session_timeout")
	})
	tx, err := holder.Begin(w.ctx())
	require.NoError(t, err)
	rows, err := tx.Query(w.ctx(), "SELECT c.shard FROM ledger_a.checkpoints AS c FOR UPDATE")
	require.NoError(t, err)
	_, err = pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	seq := w.append(request("one"))
	testenv.Eventually(t, 3*sessionTimeout, func() (bool, string) {
		return !p.Status().Active && p.Status().Err != nil, fmt.Sprintf("%+v", p.Status())
	})
	require.ErrorContains(t, p.Status().Err, "lock timeout")
	require.NoError(t, tx.Commit(w.ctx()))
	w.settled(seq)
	p.stop()
	w.verify()
	w.onceEach()
}
