package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// A Historian tells what became of jobs.
type Historian interface {
	// History returns the history of a job up to a moment; nil, nil if there is
	// no such job.
	History(ctx context.Context, job uuid.UUID, until ledger.Moment) (*ledger.History, error)
}

type historyView struct {
	Entries []historyEntry `json:"entries"`
	Omitted int            `json:"omitted" doc:"older entries that were not accepted and are left out"`
	Job     *jobView       `json:"job" doc:"the job after the last entry; null: it was not there yet"`
}

type historyEntry struct {
	Seq         uint64    `json:"seq"`
	At          time.Time `json:"at"`
	Entry       string    `json:"entry" doc:"the entry's kind"`
	Actor       *string   `json:"actor"`
	Decision    *string   `json:"decision" enum:"accepted,duplicate,conflict,refused,malformed" doc:"null for a start"`
	Reason      *string   `json:"reason"`
	Detail      *string   `json:"detail"`
	Attempt     *int      `json:"attempt"`
	State       *string   `json:"state" doc:"of the job, after the entry"`
	StateReason *string   `json:"state_reason"`
	Version     *int64    `json:"version"`
	Attempts    []string  `json:"attempts" doc:"states of the attempts after the entry, by number"`
}

// jobHistory is GET /v1/jobs/{id}/history.
func (a *API) jobHistory(w http.ResponseWriter, r *http.Request, who Principal) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	q, err := query(r, "at")
	if err != nil {
		return err
	}
	until, err := moment(q)
	if err != nil {
		return err
	}
	if _, err := a.find(r.Context(), who, id); err != nil {
		return err
	}
	h, err := a.opts.History.History(r.Context(), id, until)
	if err != nil {
		return err
	}
	if h == nil {
		return noJob(id)
	}
	w.Header().Set(JobHeader, id.String())
	a.sendJSON(w, http.StatusOK, viewHistory(h))
	return nil
}

// moment reads the parameter at: a sequence or a time.
func moment(q url.Values) (m ledger.Moment, err error) {
	v := q.Get("at")
	if !q.Has("at") {
		return m, nil
	}
	if m.Seq, err = strconv.ParseUint(v, 10, 64); err == nil && m.Seq > 0 {
		return m, nil
	}
	if m.At, err = time.Parse(time.RFC3339Nano, v); err == nil && !m.At.IsZero() {
		return ledger.Moment{At: m.At}, nil
	}
	return m, badQuery("at is %s; expected a sequence of the stream, from 1, or a time such as 2026-01-31T12:00:00Z", ledger.Quote(v))
}

func viewHistory(h *ledger.History) historyView {
	v := historyView{Entries: make([]historyEntry, len(h.Entries)), Omitted: h.Omitted}
	for i := range h.Entries {
		v.Entries[i] = viewHistoryEntry(&h.Entries[i])
	}
	if h.Job != nil {
		job := viewJob(h.Job)
		v.Job = &job
	}
	return v
}

func viewHistoryEntry(e *ledger.HistoryEntry) historyEntry {
	v := historyEntry{
		Seq: e.Seq, At: e.At.UTC(), Entry: string(e.Entry), Actor: optional(e.Actor), Decision: optional(string(e.Answer.Decision)),
		Reason: optional(string(e.Answer.Reason)), Detail: optional(e.Answer.Detail), Attempt: optional(e.Answer.Attempt),
		State: optional(string(e.Answer.State)), StateReason: optional(string(e.StateReason)), Version: optional(e.Answer.Version),
		Attempts: make([]string, len(e.Attempts)),
	}
	if v.Entry == "" {
		v.Entry = e.Subject
	}
	for i, s := range e.Attempts {
		v.Attempts[i] = string(s)
	}
	return v
}
