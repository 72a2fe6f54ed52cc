package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// getJob is GET /v1/jobs/{id}.
func (a *API) getJob(w http.ResponseWriter, r *http.Request, who Principal) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	q, err := query(r, "wait", "until")
	if err != nil {
		return err
	}
	wait, err := waitOf(q)
	if err != nil {
		return err
	}
	enough, err := untilOf(q)
	if err != nil {
		return err
	}
	j, err := a.find(r.Context(), who, id)
	if err != nil {
		return err
	}
	if wait > 0 && !enough(j) {
		if j, err = a.waitFor(r.Context(), j, wait, enough, nil); err != nil {
			return err
		}
	}
	w.Header().Set(JobHeader, id.String())
	a.sendJSON(w, http.StatusOK, a.viewWhole(r.Context(), j))
	return nil
}

// find returns the job, if there is one that the principal may see. That there
// is none is said only by tables that have reached the stream's end.
func (a *API) find(ctx context.Context, who Principal, id uuid.UUID) (*ledger.Job, error) {
	j, err := a.opts.Reader.Job(ctx, id)
	if err != nil {
		return nil, err
	}
	visible := func() bool { return j != nil && (who.Operator || j.Owner == who.Owner) }
	if !visible() { // another's job takes as long as one that is not there, so that nothing leaks
		if err := a.catchUp(ctx, id); err != nil {
			return nil, err
		}
		if j, err = a.opts.Reader.Job(ctx, id); err != nil {
			return nil, err
		}
	}
	if !visible() {
		return nil, noJob(id)
	}
	return j, nil
}

// catchUp waits until the tables have reached the stream's end as of now.
func (a *API) catchUp(ctx context.Context, id uuid.UUID) error {
	end, err := a.opts.StreamEnd(ctx)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, a.opts.BehindWait)
	defer cancel()
	if err := a.applied.await(bounded, id, end); err != nil {
		a.log.Warn("the tables are behind the stream", "job", id, "stream_end", end, "error", err)
		return problem(http.StatusServiceUnavailable, "read-model-behind",
			"the tables do not know of the stream's end yet, so nobody can say whether there is a job %s; ask again", id).job(id)
	}
	return nil
}

// getAttempt is GET /v1/jobs/{id}/attempts/{n}.
func (a *API) getAttempt(w http.ResponseWriter, r *http.Request, who Principal) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	n, err := attemptNumber(r, id)
	if err != nil {
		return err
	}
	j, err := a.find(r.Context(), who, id)
	if err != nil {
		return err
	}
	at := j.Attempt(n)
	if at == nil {
		return noAttempt(id, strconv.Itoa(n))
	}
	w.Header().Set(JobHeader, id.String())
	a.sendJSON(w, http.StatusOK, viewAttempt(at))
	return nil
}

// listJobs is GET /v1/jobs.
func (a *API) listJobs(w http.ResponseWriter, r *http.Request, who Principal) error {
	q, err := query(r, "state", "kind", "provider", "owner", "key", "limit", "cursor")
	if err != nil {
		return err
	}
	f := ledger.JobFilter{
		State: ledger.JobState(q.Get("state")), Kind: q.Get("kind"), Provider: q.Get("provider"),
		Owner: q.Get("owner"), Key: q.Get("key"),
	}
	if err := known("state", f.State, ledger.JobWaiting, ledger.JobRunning, ledger.JobUnknown,
		ledger.JobSucceeded, ledger.JobFailed, ledger.JobCancelled); err != nil {
		return err
	}
	if f.Limit, f.After, err = page(q, jobsCursor); err != nil {
		return err
	}
	if !who.Operator {
		if f.Owner != "" && f.Owner != who.Owner {
			a.sendJSON(w, http.StatusOK, jobsPage{Jobs: []jobView{}})
			return nil
		}
		f.Owner = who.Owner
	}
	jobs, err := a.opts.Reader.Jobs(r.Context(), f)
	if err != nil {
		return err
	}
	answer := jobsPage{Jobs: make([]jobView, len(jobs))}
	for i, j := range jobs {
		answer.Jobs[i] = viewJob(j)
	}
	if len(jobs) == f.Limit {
		last := jobs[len(jobs)-1]
		answer.NextCursor = optional(encodeCursor(jobsCursor, ledger.Cursor{At: last.CreatedAt, Job: last.ID}))
	}
	a.sendJSON(w, http.StatusOK, answer)
	return nil
}

// listAttempts is GET /v1/attempts.
func (a *API) listAttempts(w http.ResponseWriter, r *http.Request, who Principal) error {
	q, err := query(r, "state", "provider", "kind", "older_than", "started_before", "limit", "cursor")
	if err != nil {
		return err
	}
	f := ledger.AttemptFilter{
		State: ledger.AttemptState(q.Get("state")), Provider: q.Get("provider"), Kind: q.Get("kind"), Owner: who.limit(),
	}
	if err := known("state", f.State, ledger.AttemptStarting, ledger.AttemptRunning, ledger.AttemptUnknown,
		ledger.AttemptSucceeded, ledger.AttemptFailed, ledger.AttemptUnsent, ledger.AttemptSuperseded,
		ledger.AttemptExpired, ledger.AttemptCancelled); err != nil {
		return err
	}
	if f.Limit, f.After, err = page(q, attemptsCursor); err != nil {
		return err
	}
	age, err := duration(q, "older_than")
	if err != nil {
		return err
	}
	if q.Has("older_than") {
		f.RequestedBefore = time.Now().Add(-age)
	}
	if f.StartedBefore, err = instant(q, "started_before"); err != nil {
		return err
	}
	attempts, err := a.opts.Reader.Attempts(r.Context(), f)
	if err != nil {
		return err
	}
	answer := attemptsPage{Attempts: make([]listedAttempt, len(attempts))}
	for i, at := range attempts {
		answer.Attempts[i] = listedAttempt{JobID: at.Job.String(), attemptView: viewAttempt(at)}
	}
	if len(attempts) == f.Limit {
		last := attempts[len(attempts)-1]
		answer.NextCursor = optional(encodeCursor(attemptsCursor, ledger.Cursor{At: last.RequestedAt, Job: last.Job, Attempt: last.Number}))
	}
	a.sendJSON(w, http.StatusOK, answer)
	return nil
}

func badQuery(format string, args ...any) *Problem { return badRequest("bad-query", format, args...) }

// query reads the parameters. Names other than the allowed ones are refused, so
// that a misspelt filter does not select everything.
func query(r *http.Request, allowed ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badQuery("the query cannot be read: %v", err)
	}
	for name, values := range q {
		switch {
		case !slices.Contains(allowed, name):
			return nil, badQuery("the parameter %s is not known; known are %s", ledger.Quote(name), strings.Join(allowed, ", "))
		case len(values) > 1:
			return nil, badQuery("the parameter %s stands there %d times", name, len(values))
		}
	}
	return q, nil
}

func known[T ~string](name string, v T, all ...T) error {
	if v != "" && !slices.Contains(all, v) {
		return badQuery("%s is %s; expected one of %q", name, ledger.Quote(string(v)), all)
	}
	return nil
}

const defaultPage = 50

func page(q url.Values, kind cursorKind) (limit int, after ledger.Cursor, err error) {
	limit = defaultPage
	if text := q.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > ledger.MaxPage {
			return 0, after, badQuery("limit is %s; expected 1 to %d", ledger.Quote(text), ledger.MaxPage)
		}
	}
	if text := q.Get("cursor"); text != "" {
		if after, err = decodeCursor(kind, text); err != nil {
			return 0, after, badQuery("%v", err)
		}
	}
	return limit, after, nil
}

// duration reads a parameter such as 90s or 10m; 0 if it is not there.
func duration(q url.Values, name string) (time.Duration, error) {
	text := q.Get(name)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, badQuery("%s is %s; expected a duration such as 90s or 10m", name, ledger.Quote(text))
	}
	return d, nil
}

// instant reads a parameter such as 2026-01-31T12:00:00Z; zero if it is not
// there.
func instant(q url.Values, name string) (time.Time, error) {
	text := q.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, badQuery("%s is %s; expected a time such as 2026-01-31T12:00:00Z", name, ledger.Quote(text))
	}
	return t, nil
}
