package projector

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

func TestAttemptsHeldBy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	stop := w.project()
	defer stop()
	q := NewQueries(w.pool)
	w.append(echoKind(func(k *ledger.Kind) { k.HeartbeatTimeoutMS = 5000 }))
	held := func(key, worker string) ledger.Cursor {
		w.caughtUp(w.append(request(key)))
		job := w.job("acme", key)
		claim := claimOf(job.ID, 1)
		claim.Worker = worker
		w.caughtUp(w.append(claim))
		return ledger.Cursor{At: job.Attempts[0].RequestedAt, Job: job.ID, Attempt: 1}
	}
	first, second := held("first", "host/1"), held("second", "host/2")
	third := held("third", "host/1")
	held("of another", "host/3")
	w.caughtUp(w.append(completionOf(held("ended", "host/1").Job, 1, ledger.OutcomeSucceeded)))
	w.caughtUp(w.append(completionOf(held("unknown", "host/1").Job, 1, ledger.OutcomeUnknown)))
	w.caughtUp(w.append(request("not claimed")))
	// A later definition is not the one under which the jobs were accepted.
	w.append(echoKind(func(k *ledger.Kind) { k.HeartbeatTimeoutMS = 0 }))
	held("without a heartbeat", "host/1")

	list, err := q.AttemptsHeldBy(w.ctx(), []string{"host/1", "host/2", "nobody"}, ledger.Cursor{})
	require.NoError(t, err)
	want := func(c ledger.Cursor, worker string) HeldAttempt {
		return HeldAttempt{Job: c.Job, Number: 1, Worker: worker, RequestedAt: c.At, HeartbeatTimeout: 5 * time.Second}
	}
	require.Equal(t, []HeldAttempt{want(first, "host/1"), want(second, "host/2"), want(third, "host/1")}, list)
	list, err = q.AttemptsHeldBy(w.ctx(), []string{"host/1"}, first)
	require.NoError(t, err)
	require.Equal(t, []HeldAttempt{want(third, "host/1")}, list)
	list, err = q.AttemptsHeldBy(w.ctx(), []string{"host/1"}, third)
	require.NoError(t, err)
	require.Empty(t, list)
	list, err = q.AttemptsHeldBy(w.ctx(), nil, ledger.Cursor{})
	require.NoError(t, err)
	require.Empty(t, list)

	rows, _ := w.pool.Query(w.ctx(), "EXPLAIN "+attemptsHeldBy, []string{"host/1"}, first.At, first.Job, first.Attempt, 10)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, strings.Join(plan, "\n"), "attempts_in_flight_idx")
}

func TestProviderAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	stop := w.project()
	defer stop()
	q := NewQueries(w.pool)
	first := w.append(&ledger.ProviderDefinition{Name: "p", Type: "http", Definition: []byte(`{"url":"1"}`)})
	second := w.append(&ledger.ProviderDefinition{Name: "p", Type: "http", Definition: []byte(`{"url":"2"}`)})
	w.caughtUp(second)
	for seq, want := range map[uint64]string{first: "", second: `{"url": "1"}`, second + 1: `{"url": "2"}`, second + 100: `{"url": "2"}`} {
		p, err := q.ProviderAt(w.ctx(), "p", seq)
		require.NoError(t, err)
		if want == "" {
			require.Nil(t, p)
			continue
		}
		require.JSONEq(t, want, string(p.Definition))
	}
	p, err := q.ProviderAt(w.ctx(), "q", second+1)
	require.NoError(t, err)
	require.Nil(t, p)
}
