package projector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// dues counts the clock's entries in the stream.
func (w *world) dues() int {
	w.t.Helper()
	n := 0
	for seq := uint64(1); seq <= w.last(); seq++ {
		m, err := w.stream.GetMsg(w.ctx(), seq)
		require.NoError(w.t, err)
		if strings.HasSuffix(m.Subject, string(ledger.ClockDue)) {
			n++
		}
	}
	return n
}

// inState waits until a job is in a state, with a number of attempts.
func (w *world) inState(key string, state ledger.JobState, attempts int) *ledger.Job {
	w.t.Helper()
	var j *ledger.Job
	testenv.Eventually(w.t, 20*time.Second, func() (bool, string) {
		j = w.job("acme", key)
		return j.State == state && len(j.Attempts) == attempts, fmt.Sprintf("%s is %s with %d attempts", key, j.State, len(j.Attempts))
	})
	return j
}

// TestClock: what is due happens when it is due, and is said about once.
func TestClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.project()
	w.append(echoKind(func(k *ledger.Kind) {
		k.AttemptTimeoutMS, k.Backoff = 300, ledger.BackoffPolicy{InitialMS: 400, MaxMS: 400, FactorMilli: 1000}
	}))
	w.append(&ledger.KindDefinition{Kind: func() ledger.Kind {
		k := echoKind().Kind
		k.Name, k.StartTimeoutMS, k.Backoff.InitialMS, k.Failover = "short", 300, k.Backoff.MaxMS, ledger.FailoverNever
		return k
	}()})
	scheduled, failing, unclaimed := request("scheduled"), request("failing"), request("unclaimed")
	scheduled.RunAt = time.Now().Add(700 * time.Millisecond).Truncate(time.Microsecond)
	unclaimed.Kind = "short"
	for _, b := range []ledger.Body{scheduled, request("overdue"), failing, unclaimed} {
		w.caughtUp(w.append(b))
	}
	w.append(claimOf(ledger.JobID("acme", "overdue"), 1))
	w.append(claimOf(ledger.JobID("acme", "failing"), 1))
	failed := completionOf(ledger.JobID("acme", "failing"), 1, ledger.OutcomeFailed)
	failed.Failure = ledger.Failure{Class: "busy", Reach: ledger.ReachTransient}
	w.append(failed)

	j := w.inState("scheduled", ledger.JobRunning, 1)
	require.False(t, j.Attempts[0].RequestedAt.Before(scheduled.RunAt), "not before its time")
	require.Less(t, j.Attempts[0].RequestedAt.Sub(scheduled.RunAt), 10*time.Second)
	j = w.inState("overdue", ledger.JobUnknown, 1)
	require.Equal(t, "deadline", j.Attempts[0].Failure.Class)
	require.False(t, j.Attempts[0].UnknownSince.Before(j.Attempts[0].Deadline))
	j = w.inState("failing", ledger.JobRunning, 2)
	require.GreaterOrEqual(t, j.Attempts[1].RequestedAt.Sub(j.Attempts[0].FinishedAt), 200*time.Millisecond, "the back-off less its jitter")
	testenv.Eventually(t, 20*time.Second, func() (bool, string) {
		state := w.job("acme", "unclaimed").Attempts[0].State
		return state == ledger.AttemptExpired, string(state)
	})
	n := w.dues()
	require.GreaterOrEqual(t, n, 4)
	require.LessOrEqual(t, n, 8, "each is said once, or again while the fold is slow")
}

// TestClockOutlivesAnOutage: what could not be said is said as soon as it can be.
func TestClockOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	r := w.runner()
	w.append(echoKind())
	later := request("later")
	later.DelayMS = 1
	r.appender.broken.Store(true)
	w.append(later)
	receive(t, r.appender.refused, "a refused due time")
	receive(t, r.appender.refused, "another")
	receive(t, r.appender.refused, "and another")
	began := time.Now()
	r.appender.broken.Store(false)
	w.inState("later", ledger.JobRunning, 1)
	require.Less(t, time.Since(began), 10*time.Second)
	r.stop()
	w.verify()
}

// TestClockDoesNotHammer: a row that stays due, because this machine's clock is
// ahead or the fold behind, is said ever more rarely.
func TestClockDoesNotHammer(t *testing.T) {
	t.Parallel()
	now := time.Now()
	stuck, other := DueRow{Job: uuid.New(), Due: now}, DueRow{Job: uuid.New(), Attempt: 1, Due: now}
	c := &clock{said: map[DueRow]saying{}}
	said := 0
	for at := time.Duration(0); at < 10*time.Minute; at += clockPeriod {
		rows := []DueRow{stuck}
		if at == time.Minute {
			rows = append(rows, other)
		}
		due := c.choose(rows, nil, now.Add(at))
		for _, r := range due {
			if r == stuck {
				said++
			}
		}
		if at == time.Minute {
			require.Contains(t, due, other, "it is said at once")
		}
	}
	require.LessOrEqual(t, said, 16)
	require.Greater(t, said, 10)
	require.Equal(t, 1, len(c.said), "what is handled is forgotten")
	require.NotEmpty(t, c.choose([]DueRow{other}, nil, now), "and said at once when it comes back")
}

// TestClockIsFairAndBounded: jobs that wait for a provider, however many and old,
// hide no deadline; one look says so many and no more, and none twice.
func TestClockIsFairAndBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	many := func(n int) []DueRow {
		rows := make([]DueRow, n)
		for i := range rows {
			rows[i] = DueRow{Job: uuid.New(), Due: now}
		}
		return rows
	}
	rows, paused := many(clockRows+10), many(5*clockRows)
	c := &clock{said: map[DueRow]saying{}}
	first := c.choose(rows, paused, now)
	require.Len(t, first, 2*clockRows)
	second := c.choose(rows, paused, now)
	require.Len(t, second, clockRows+10, "what was said is not said again, and hides nothing")
	for _, r := range second {
		require.NotContains(t, first, r)
	}
}
