package projector

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

// TestHistoriesEndAsTheTables tells every job of a random history, once more
// from its own entries alone: at the end it is what the tables hold, and each
// decision is the one that is recorded.
func TestHistoriesEndAsTheTables(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newWorld(t, 2)
	last := appendHistory(w, seed, historyEntries)
	stop := w.project(appendTo(silent{}))
	w.caughtUp(last)
	stop()
	tell := NewHistories(w.pool, w.stream, w.prefix)
	jobs, err := NewQueries(w.pool).Jobs(w.ctx(), ledger.JobFilter{})
	require.NoError(t, err)
	require.Greater(t, len(jobs), 100)
	for _, want := range jobs {
		h, err := tell.History(w.ctx(), want.ID, ledger.Moment{})
		require.NoError(t, err)
		requireSameRows(t, want, h.Job)
		w.requireRejections(want, h)
		require.Equal(t, want.RequestedSeq, h.Entries[firstAccepted(h)].Seq)
	}
}

func firstAccepted(h *ledger.History) int {
	for i, e := range h.Entries {
		if e.Answer.Decision == ledger.Accepted && e.Entry == ledger.JobRequest {
			return i
		}
	}
	return 0
}

// requireSameRows compares the columns of two jobs and their attempts.
func requireSameRows(t *testing.T, want, got *ledger.Job) {
	t.Helper()
	for _, c := range jobsTable.cols {
		looks := want.StateReason == ledger.FailoverUnverified || want.StateReason == ledger.ProviderPaused || want.Kind == "race"
		if c.name == "due_at" && looks { // a look that found nothing moves it and leaves no sequence
			continue
		}
		if c.name != "input" && c.name != "result" { // the tables hold them in another layout
			require.Equal(t, c.put(nil, want), c.put(nil, got), "job %s, %s", want.ID, c.name)
		}
	}
	require.Len(t, got.Attempts, len(want.Attempts))
	for i, a := range want.Attempts {
		for _, c := range attemptsTable.cols {
			if c.typ != typJSON {
				require.Equal(t, c.put(nil, a), c.put(nil, got.Attempts[i]), "job %s, attempt %d, %s", want.ID, a.Number, c.name)
			}
		}
	}
}

func (w *world) requireRejections(j *ledger.Job, h *ledger.History) {
	w.t.Helper()
	rejections, err := NewQueries(w.pool).Rejections(w.ctx(), j.ID, 0, 0)
	require.NoError(w.t, err)
	want := map[uint64]ledger.Reason{}
	for _, r := range rejections {
		want[r.Seq] = r.Reason
	}
	got := map[uint64]ledger.Reason{}
	for _, e := range h.Entries {
		if e.Answer.Decision.Rejects() {
			got[e.Seq] = e.Answer.Reason
		}
	}
	require.Equal(w.t, want, got, "job %s", j.ID)
}

// TestHistoryAtAnyMoment follows one job.
func TestHistoryAtAnyMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	stop := w.project()
	w.append(echoKind())
	asked := w.append(request("one"))
	w.settled(asked)
	id := ledger.JobID("acme", "one")
	refused := w.append(completionOf(id, 1, ledger.OutcomeSucceeded))
	c := claimOf(id, 1)
	c.StartSeq = asked + 1
	claimed := w.append(c)
	done := w.append(completionOf(id, 1, ledger.OutcomeSucceeded))
	w.caughtUp(done)
	stop()
	tell := NewHistories(w.pool, w.stream, w.prefix)

	h, err := tell.History(w.ctx(), id, ledger.Moment{})
	require.NoError(t, err)
	type line struct {
		seq      uint64
		entry    ledger.EntryKind
		decision ledger.Decision
		state    ledger.JobState
		attempt  ledger.AttemptState
	}
	var lines []line
	for _, e := range h.Entries {
		lines = append(lines, line{e.Seq, e.Entry, e.Answer.Decision, e.Answer.State, e.Attempts[0]})
	}
	require.Equal(t, []line{
		{asked, ledger.JobRequest, ledger.Accepted, ledger.JobRunning, ledger.AttemptStarting},
		{asked + 1, ledger.AttemptStart, "", ledger.JobRunning, ledger.AttemptStarting},
		{refused, ledger.AttemptComplete, ledger.Refused, ledger.JobRunning, ledger.AttemptStarting},
		{claimed, ledger.AttemptClaim, ledger.Accepted, ledger.JobRunning, ledger.AttemptRunning},
		{done, ledger.AttemptComplete, ledger.Accepted, ledger.JobSucceeded, ledger.AttemptSucceeded},
	}, lines)
	require.JSONEq(t, `{"n": 1.50}`, string(h.Job.Result))

	h, err = tell.History(w.ctx(), id, ledger.Moment{Seq: claimed})
	require.NoError(t, err)
	require.Len(t, h.Entries, 4)
	require.Equal(t, ledger.JobRunning, h.Job.State)
	require.JSONEq(t, `{"key": "one"}`, string(h.Job.Input))
	require.Nil(t, h.Job.Result)

	h, err = tell.History(w.ctx(), id, ledger.Moment{At: h.Entries[0].At.Add(-time.Nanosecond)})
	require.NoError(t, err)
	require.Empty(t, h.Entries)
	require.Nil(t, h.Job)

	h, err = tell.History(w.ctx(), ledger.JobID("acme", "nobody's"), ledger.Moment{})
	require.NoError(t, err)
	require.Nil(t, h)
}

// TestHistoryOfOddEntries: a worker may say any start_seq, and anybody may be
// refused as often, and with as much, as they like.
func TestHistoryOfOddEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	stop := w.project()
	w.append(echoKind())
	asked := w.append(request("one"))
	w.settled(asked)
	id := ledger.JobID("acme", "one")
	c := claimOf(id, 1)
	c.StartSeq = 99_999_999
	claimed := w.append(c)
	other := request("one")
	other.Input = []byte(`"` + strings.Repeat("x", 100_000) + `"`)
	refused := w.append(other)
	w.caughtUp(refused)
	stop()
	h, err := NewHistories(w.pool, w.stream, w.prefix).History(w.ctx(), id, ledger.Moment{})
	require.NoError(t, err)
	require.Len(t, h.Entries, 3)
	require.Equal(t, []uint64{asked, claimed, refused}, []uint64{h.Entries[0].Seq, h.Entries[1].Seq, h.Entries[2].Seq})
	last := h.Entries[2]
	require.Equal(t, ledger.Conflict, last.Answer.Decision)
	require.Equal(t, ledger.JobRunning, last.Answer.State)
	require.Equal(t, []ledger.AttemptState{ledger.AttemptRunning}, last.Attempts)
}
