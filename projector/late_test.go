package projector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// tooBig is an Appender to which starts with a large input do not fit, as to a
// stream that is nearly full.
type tooBig struct {
	w    *world
	full atomic.Bool
}

var errNoRoom = errors.New("there is no room")

func (a *tooBig) Append(ctx context.Context, m ledger.Message) (uint64, error) {
	if strings.HasPrefix(m.Subject, string(ledger.AttemptStart)) && len(m.Data) > 2000 && a.full.Load() {
		return 0, errNoRoom
	}
	return a.w.Append(ctx, m)
}

// TestALateStartHoldsNobodyUp: a start that cannot be appended is late; what
// else comes to the shard is decided and done. It is not taken for done, by
// nobody: not by the checkpoint, and not by the next projector.
func TestALateStartHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	appender := &tooBig{w: w}
	appender.full.Store(true)
	stop := w.project(appendTo(appender))
	w.append(echoKind())
	big := request("big")
	big.Input = []byte(`"` + strings.Repeat("x", 3000) + `"`)
	asked := w.append(big)
	in := w.answers()
	w.ask(request("small"), in.inbox)
	require.Equal(t, ledger.Accepted, in.next().Decision)
	small := ledger.JobID("acme", "small")
	testenv.Eventually(t, 20*time.Second, func() (bool, string) {
		n := w.starts()[attemptName(small, 1)]
		return n == 1, fmt.Sprint("starts of the small job: ", n)
	})
	w.append(claimOf(small, 1))
	w.ask(completionOf(small, 1, ledger.OutcomeSucceeded), in.inbox)
	require.Equal(t, ledger.Accepted, in.next().Decision)
	require.Equal(t, ledger.JobSucceeded, w.job("acme", "small").State)
	var done uint64
	require.NoError(t, w.pool.QueryRow(w.ctx(), "SELECT min(effects_seq) FROM ledger.checkpoints").Scan(&done))
	require.Less(t, done, asked)
	stop()

	// The next one goes on with it, and is no more held up; then there is room.
	stop = w.project(appendTo(appender))
	w.ask(request("another"), in.inbox)
	require.Equal(t, ledger.Accepted, in.next().Decision)
	appender.full.Store(false)
	w.settled(w.last())
	require.Equal(t, 1, w.starts()[attemptName(ledger.JobID("acme", "big"), 1)])
	stop()
	w.verify()
	w.onceEach()
}

// TestLateStarts: what is late keeps effects_seq before it, whatever comes after
// it and whichever of them succeeds first.
func TestLateStarts(t *testing.T) {
	t.Parallel()
	late := func(n int) []ledger.Effect {
		list := make([]ledger.Effect, n)
		for i := range list {
			list[i] = ledger.Effect{Kind: ledger.StartAttempt, Start: &ledger.Start{Input: []byte("1")}}
		}
		return list
	}
	var l lateStarts
	l.add(nil, 10)
	require.EqualValues(t, 10, l.doneUpTo())
	l.add(late(2), 20)
	l.add(nil, 30)
	l.add(late(1), 40)
	require.EqualValues(t, 10, l.doneUpTo())
	require.EqualValues(t, 3, l.count.Load())
	require.Nil(t, l.queue[0].effect.Start.Input, "inputs are not kept")
	l.queue[2].batch.left-- // the last one first
	require.EqualValues(t, 10, l.doneUpTo())
	l.queue[0].batch.left--
	require.EqualValues(t, 10, l.doneUpTo())
	l.queue[1].batch.left--
	require.EqualValues(t, 40, l.doneUpTo())
	require.True(t, l.room())
	l.add(late(lateMost), 50)
	require.False(t, l.room())
}
