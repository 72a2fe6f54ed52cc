package httpapi_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
	"jobledger/publisher/httpapi"
)

// told is a Historian that tells the same of every job and notes the moment.
type told struct {
	history *ledger.History
	asked   ledger.Moment
}

func (h *told) History(_ context.Context, job uuid.UUID, until ledger.Moment) (*ledger.History, error) {
	h.asked = until
	return h.history, nil
}

func TestJobHistory(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h := &told{history: &ledger.History{Entries: []ledger.HistoryEntry{
		{Seq: 7, At: at, Entry: ledger.JobRequest, Actor: "web", Answer: ledger.Answer{Decision: ledger.Accepted, State: ledger.JobRunning, Version: 1, Attempt: 1},
			Attempts: []ledger.AttemptState{ledger.AttemptStarting}},
		{Seq: 8, At: at, Subject: "no.such.entry", Answer: ledger.Answer{Decision: ledger.Malformed, Reason: ledger.UnknownEntry, Detail: "why"}},
	}, Omitted: 3}}
	w := newWorld(t, func(o *httpapi.Options) { o.History = h })
	id := w.submit("order-17", simple).do().is(http.StatusCreated).body["id"].(string)

	a := w.get("/v1/jobs/" + id + "/history").do().is(http.StatusOK)
	entries := a.body["entries"].([]any)
	require.Len(t, entries, 2)
	first := entries[0].(map[string]any)
	require.Equal(t, "accepted", first["decision"])
	require.Equal(t, []any{"starting"}, first["attempts"])
	require.Nil(t, first["reason"])
	require.Equal(t, "no.such.entry", entries[1].(map[string]any)["entry"])
	require.EqualValues(t, 3, a.body["omitted"])
	require.Nil(t, a.body["job"])
	require.Equal(t, id, a.header.Get("Ledger-Job-Id"))
	require.Zero(t, h.asked)

	w.get("/v1/jobs/" + id + "/history?at=42").do().is(http.StatusOK)
	require.Equal(t, ledger.Moment{Seq: 42}, h.asked)
	w.get("/v1/jobs/" + id + "/history?at=2026-01-02T03:04:05Z").do().is(http.StatusOK)
	require.True(t, h.asked.At.Equal(at))
	for _, bad := range []string{"at=", "at=0", "at=-1", "at=yesterday", "until=7"} {
		w.get("/v1/jobs/"+id+"/history?"+bad).do().is(http.StatusBadRequest, "bad-query")
	}
	w.get("/v1/jobs/"+uuid.NewString()+"/history").do().is(http.StatusNotFound, "not-found")
	h.history = nil
	w.get("/v1/jobs/"+id+"/history").do().is(http.StatusNotFound, "not-found")
}

// TestJobHistoryIsTheOwners: another producer's job is not there.
func TestJobHistoryIsTheOwners(t *testing.T) {
	t.Parallel()
	h := &told{history: &ledger.History{}}
	w := newWorld(t, func(o *httpapi.Options) { o.History = h })
	id := w.submit("order-17", simple).do().is(http.StatusCreated).body["id"].(string)
	w.get("/v1/jobs/"+id+"/history").as("p-other").do().is(http.StatusNotFound, "not-found")
	w.get("/v1/jobs/" + id + "/history").as("o-root").do().is(http.StatusOK)
}
