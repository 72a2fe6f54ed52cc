package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"jobledger/ledger"
)

const (
	// MaxWait caps the wait of GET /v1/jobs/{id}.
	MaxWait = 60 * time.Second
	// readAgain is how soon a job is read again that is not yet what the news
	// of it say.
	readAgain = 250 * time.Millisecond
)

// waitOf reads the parameter wait.
func waitOf(q url.Values) (time.Duration, error) {
	d, err := duration(q, "wait")
	return min(d, MaxWait), err
}

// untilOf reads what a wait is for. Only the job's state counts.
func untilOf(q url.Values) (func(*ledger.Job) bool, error) {
	switch v := q.Get("until"); v {
	case "":
		return func(j *ledger.Job) bool { return j.State.Settled() || j.State == ledger.JobUnknown }, nil
	case "terminal":
		return func(j *ledger.Job) bool { return j.State.Settled() }, nil
	default:
		return nil, badQuery("until is %s; expected terminal, or leave it out", ledger.Quote(v))
	}
}

// slots bound what is served at once.
type slots chan struct{}

// take takes a slot, which must be given back; false: there is none.
func (s slots) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) give() { <-s }

// full is the answer to what finds no slot.
func (s slots) full(what string) *Problem {
	return problem(http.StatusServiceUnavailable, "overloaded", "this process serves %d %s already, which is all it may; ask again later", cap(s), what)
}

// waitFor returns the job as soon as it is enough, or as it is when the time is
// over or waits are to end. It holds nothing of the job meanwhile: its input may
// be big, and thousands may wait. It calls begins, if that is not nil, once it has
// its place among them.
func (a *API) waitFor(ctx context.Context, j *ledger.Job, wait time.Duration, enough func(*ledger.Job) bool, begins func()) (*ledger.Job, error) {
	id := j.ID
	if !a.waiters.take() {
		return nil, a.waiters.full("waiting requests").job(id)
	}
	defer a.waiters.give()
	if begins != nil {
		begins()
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	w := a.hub.watch(id)
	defer w.leave()
	for {
		more := a.awaitState(bounded, w, enough)
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		j, err := a.opts.Reader.Job(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case j == nil:
			return nil, noJob(id) // it was there
		case !more || enough(j):
			return j, nil
		}
		a.pause(bounded, readAgain) // reopened meanwhile, or read from a replica that is behind
	}
}

// awaitState waits until the news say that it is enough; false: the time is
// over.
func (a *API) awaitState(ctx context.Context, w *watch, enough func(*ledger.Job) bool) bool {
	for {
		news, changed := w.look()
		if enough(&ledger.Job{State: news.State}) {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		case <-a.closing:
			return false
		}
	}
}

// The defaults of what waits and streams may take.
const (
	defaultMaxWaiters = 10_000
	defaultMaxStreams = 1_000
	defaultKeepAlive  = 15 * time.Second
	defaultSlowReader = 5 * time.Second // less than DefaultGrace: a stop does not wait for it
)

// serveNews starts what waits and streams live on.
func (a *API) serveNews() {
	o := &a.opts
	if o.MaxWaiters <= 0 {
		o.MaxWaiters = defaultMaxWaiters
	}
	if o.MaxStreams <= 0 {
		o.MaxStreams = defaultMaxStreams
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = defaultKeepAlive
	}
	if o.SlowReader <= 0 {
		o.SlowReader = defaultSlowReader
	}
	a.waiters, a.streams = make(slots, o.MaxWaiters), make(slots, o.MaxStreams)
	a.applied = newAppliedWatcher(o.Reader.Applied)
	a.hub = newHub(o, a.log)
}
