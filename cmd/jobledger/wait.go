package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"jobledger/ledger"
)

const (
	// waitStep is how long one call waits for a job.
	waitStep = 30 * time.Second
	// leastStep is the least that there is between two calls: an API that shuts
	// down answers at once.
	leastStep = 500 * time.Millisecond
)

// A wait is for one job.
type wait struct {
	api      *apiClient
	id       string
	timeout  time.Duration
	terminal bool // until it is settled; unknown is not enough
	found    bool // the job is known to be there
}

// enough says whether the wait is over.
func (w *wait) enough(s ledger.JobState) bool {
	return s.Settled() || s == ledger.JobUnknown && !w.terminal
}

// waitAndShow waits until the job is settled or, unless terminal is set,
// unknown; prints it; and returns the exit status that belongs to its state.
// Once the job has been found, an API that is away only delays it.
func (c *cli) waitAndShow(ctx context.Context, w *wait) error {
	end := time.Now().Add(w.timeout)
	for {
		began := time.Now()
		a, j, err := w.ask(ctx, max(min(end.Sub(began), waitStep), 0))
		more := time.Now().Before(end)
		switch {
		case err != nil && (!w.found || !more || !away(err)):
			return err
		case err != nil:
			c.log.Warn("the job cannot be asked for now; waiting on", "job", w.id, "error", err)
		case w.enough(j.State):
			return c.showWaited(a, exitStatus(jobStatus(j.State)))
		case !more:
			return c.showWaited(a, exitWith(exitTimedOut, "after %s the job is still %s", w.timeout, j.stateCell()))
		}
		if err := pauseUntil(ctx, began.Add(leastStep+rand.N(leastStep)), end); err != nil {
			return err
		}
	}
}

// ask asks for the job, and waits for it up to step.
func (w *wait) ask(ctx context.Context, step time.Duration) (answer, *jobView, error) {
	q := url.Values{"wait": {step.String()}}
	if w.terminal {
		q.Set("until", "terminal")
	}
	a, err := w.api.call(ctx, request{method: http.MethodGet, path: "/v1/jobs/" + w.id, query: q, wait: step})
	if err != nil {
		return answer{}, nil, err
	}
	w.found = true
	var j jobView
	return a, &j, a.decode(&j)
}

// away reports whether an error says that the API cannot be reached, or cannot
// answer now.
func away(err error) bool { return exitCode(err) == exitUnreachable }

// showWaited prints the job and returns the wait's end, unless it cannot be
// printed.
func (c *cli) showWaited(a answer, end error) error {
	if _, err := c.showJob(a); err != nil {
		return err
	}
	return end
}

// pauseUntil waits until the time next, or end if that is sooner.
func pauseUntil(ctx context.Context, next, end time.Time) error {
	if end.Before(next) {
		next = end
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
