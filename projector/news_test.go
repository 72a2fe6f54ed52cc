package projector

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

// TestStates compares the news of jobs with the jobs themselves, after every
// entry about them.
func TestStates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	stop := w.project()
	defer stop()
	w.append(echoKind())
	w.append(request("other"))
	q := NewQueries(w.pool)
	ids := []uuid.UUID{ledger.JobID("acme", "one"), ledger.JobID("acme", "nobody"), ledger.JobID("acme", "other")}
	states := func() map[uuid.UUID]ledger.JobNews {
		states, err := q.States(w.ctx(), ids)
		require.NoError(t, err)
		return states
	}
	states()
	last := uint64(0)
	for _, body := range []ledger.Body{
		request("one"), claimOf(ids[0], 1), completionOf(ids[0], 1, ledger.OutcomeUnknown), completionOf(ids[0], 1, ledger.OutcomeSucceeded),
	} {
		seq := w.append(body)
		w.caughtUp(seq)
		found := states()
		require.Len(t, found, 2, "a job that is not there is left out")
		require.Equal(t, w.job("acme", "one").News(), found[ids[0]])
		require.Equal(t, w.job("acme", "other").News(), found[ids[2]])
		require.Equal(t, seq, found[ids[0]].Seq, "the claim too is news, though only the attempt changes")
		require.Greater(t, found[ids[0]].Seq, last)
		last = seq
	}
	require.Equal(t, ledger.JobSucceeded, states()[ids[0]].State)
	require.EqualValues(t, 2, states()[ids[0]].Version)
	none, err := q.States(w.ctx(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5)
	stop := w.project()
	defer stop()
	w.append(echoKind())
	seq := w.append(request("one"))
	w.caughtUp(seq)
	applied, err := NewQueries(w.pool).Applied(w.ctx(), []uuid.UUID{uuid.New(), uuid.New(), uuid.New()})
	require.NoError(t, err)
	require.Len(t, applied, 3)
	for _, at := range applied {
		require.GreaterOrEqual(t, at, seq)
	}
}
