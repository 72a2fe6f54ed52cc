package httpapi

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// The pace at which the hub looks at the tables.
const (
	// lookTick is how often it looks for jobs whose turn has come.
	lookTick = 100 * time.Millisecond
	// firstLook and lastLook bound the time between two looks at one job: the
	// longer nothing changes, the longer it takes.
	firstLook = 100 * time.Millisecond
	lastLook  = 2 * time.Second
	// restFactor is how many times as long as a look took the rest after it is:
	// however slow the database is, looking takes a fifth of one connection.
	restFactor = 4
	leastRest  = 5 * time.Millisecond
	mostRest   = 2 * time.Second
	// looksAtOnce bounds the jobs in one query.
	looksAtOnce = 1000
	// lookTimeout bounds one query.
	lookTimeout = 8 * time.Second
)

// A hub is the process's one source of news of jobs, for all that wait and all
// that stream. One goroutine looks at the tables, at many jobs with one query,
// and only while somebody waits. Announced outcomes only hasten it, so that one
// that is lost costs time and nothing else.
type hub struct {
	read     func(context.Context, []uuid.UUID) (map[uuid.UUID]ledger.JobNews, error)
	outcomes Outcomes // may be nil
	log      *slog.Logger
	stop     context.Context
	end      context.CancelFunc
	wake     chan struct{} // urgent is not empty
	done     sync.WaitGroup

	mu     sync.Mutex
	jobs   map[uuid.UUID]*watched
	urgent []uuid.UUID // to be looked at without waiting for their turn
}

// watched is a job that somebody waits for.
type watched struct {
	watchers int
	unwatch  func() // ends the watch of the outcome
	news     ledger.JobNews
	changed  chan struct{} // closed when news changes
	asked    bool          // stands in urgent
	turn     time.Time     // when it is looked at next
	pace     time.Duration // between the last look and the turn, without the jitter

	making chan struct{} // holds something while event is read or made
	event  *event        // the last that a stream has asked for
}

func newHub(o *Options, log *slog.Logger) *hub {
	h := &hub{read: o.Reader.States, outcomes: o.Outcomes, log: log, wake: make(chan struct{}, 1), jobs: map[uuid.UUID]*watched{}}
	h.stop, h.end = context.WithCancel(context.Background())
	h.done.Go(h.run)
	return h
}

func (h *hub) close() {
	h.end()
	h.done.Wait()
}

// watch begins to look at a job. Every watch must be left. How many there may
// be is the callers' business.
func (h *hub) watch(job uuid.UUID) *watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.jobs[job]
	if w == nil {
		w = &watched{changed: make(chan struct{}), making: make(chan struct{}, 1), unwatch: func() {}, turn: time.Now().Add(firstLook), pace: firstLook}
		h.jobs[job] = w
		if h.outcomes != nil {
			w.unwatch = h.outcomes.Watch(job, func() { h.hasten(job) })
		}
	}
	w.watchers++
	h.ask(job, w)
	return &watch{h, job, w}
}

// hasten makes the next look come at once: the job is said to have changed.
func (h *hub) hasten(job uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.jobs[job]; w != nil {
		w.pace = firstLook // it may be announced before this replica has it
		h.ask(job, w)
	}
}

func (h *hub) ask(job uuid.UUID, w *watched) {
	if w.asked {
		return
	}
	w.asked = true
	h.urgent = append(h.urgent, job)
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// A watch is one waiter's view of a job's news.
type watch struct {
	hub *hub
	job uuid.UUID
	*watched
}

// look returns the news and a channel that is closed when they are no longer
// the latest. They are zero until the hub has looked at the job.
func (w *watch) look() (ledger.JobNews, <-chan struct{}) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.news, w.changed
}

// event returns the job's event with the entry newest or a later one. However
// many streams tell of a job, it is read once for each change.
func (w *watch) event(ctx context.Context, newest uint64, read func(context.Context, uuid.UUID) (*event, error)) (*event, error) {
	select {
	case w.making <- struct{}{}:
		defer func() { <-w.making }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if w.watched.event == nil || w.watched.event.seq < newest {
		e, err := read(ctx, w.job)
		if err != nil {
			return nil, err
		}
		w.watched.event = e
	}
	return w.watched.event, nil
}

// leave ends the watch.
func (w *watch) leave() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if w.watchers--; w.watchers == 0 {
		w.unwatch()
		delete(w.hub.jobs, w.job)
	}
}

func (h *hub) run() {
	tick := time.NewTicker(lookTick)
	defer tick.Stop()
	for {
		turns := tick.C
		if !h.anybody() {
			turns = nil // nobody waits: sleep until somebody does
		}
		all := false
		select {
		case <-h.wake:
		case <-turns:
			all = true
		case <-h.stop.Done():
			return
		}
		if !sleep(h.stop, h.round(all)) {
			return
		}
	}
}

// round looks at what is due and returns how long to rest.
func (h *hub) round(all bool) time.Duration {
	began := time.Now()
	if h.lookAt(h.due(began, all)) {
		return min(max(restFactor*time.Since(began), leastRest), mostRest)
	}
	return mostRest/2 + rand.N(mostRest/2)
}

// sleep waits for d; false: ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (h *hub) anybody() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.jobs) > 0
}

// due takes the jobs to look at now: the urgent ones and, if all is set, those
// whose turn has come.
func (h *hub) due(now time.Time, all bool) []uuid.UUID {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := h.urgent
	h.urgent = nil
	for _, id := range ids {
		if w := h.jobs[id]; w != nil {
			w.asked = false
		}
	}
	if !all {
		return ids
	}
	taken := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		taken[id] = true
	}
	for id, w := range h.jobs {
		if !taken[id] && !w.turn.After(now) {
			ids = append(ids, id)
		}
	}
	return ids
}

// lookAt reads the states of the jobs and tells those who wait; false: not all
// could be read.
func (h *hub) lookAt(ids []uuid.UUID) (ok bool) {
	ok = true
	for len(ids) > 0 && h.stop.Err() == nil {
		some := ids[:min(len(ids), looksAtOnce)]
		ids = ids[len(some):]
		ctx, cancel := context.WithTimeout(h.stop, lookTimeout)
		states, err := h.read(ctx, some)
		cancel()
		if err != nil && h.stop.Err() == nil {
			h.log.Warn("the jobs that are waited for could not be looked at", "jobs", len(some), "error", err)
		}
		ok = ok && err == nil
		h.tell(some, states, time.Now())
	}
	return ok
}

// tell notes what a look has found. A replica of the database may be behind
// another: news never go back.
func (h *hub) tell(ids []uuid.UUID, states map[uuid.UUID]ledger.JobNews, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		w := h.jobs[id]
		if w == nil {
			continue // nobody waits any more
		}
		if news, ok := states[id]; ok && news.Seq > w.news.Seq {
			w.news, w.pace = news, firstLook
			close(w.changed)
			w.changed = make(chan struct{})
		}
		w.turn = now.Add(w.pace/2 + rand.N(w.pace))
		w.pace = min(w.pace*3/2, lastLook)
	}
}
