package httpapi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

const (
	// MaxWait caps the wait of GET /v1/jobs/{id}.
	MaxWait = 60 * time.Second

	firstPoll = 100 * time.Millisecond
	lastPoll  = time.Second
)

// waitOf reads the parameter wait.
func waitOf(q url.Values) (time.Duration, error) {
	d, err := duration(q, "wait")
	return min(d, MaxWait), err
}

// untilOf reads what a wait is for.
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

// waitFor returns the job as soon as it is enough, or as it is when the time is
// over. It listens for the outcome and looks itself, since announcements are
// best effort.
func (a *API) waitFor(ctx context.Context, j *ledger.Job, wait time.Duration, enough func(*ledger.Job) bool) (*ledger.Job, error) {
	heard, stop := a.watch(j.ID)
	defer stop()
	over := time.NewTimer(wait)
	defer over.Stop()
	for poll := firstPoll; ; poll = min(2*poll, lastPoll) {
		now, err := a.opts.Reader.Job(ctx, j.ID)
		if err != nil {
			return nil, err
		}
		if now != nil {
			j = now
		}
		if enough(j) {
			return j, nil
		}
		next := time.NewTimer(poll/2 + rand.N(poll))
		select {
		case <-heard:
			poll = firstPoll // it may be announced before this replica has it
		case <-next.C:
		case <-over.C:
			next.Stop()
			return j, nil
		case <-a.closing:
			next.Stop()
			return j, nil
		case <-ctx.Done():
			next.Stop()
			return nil, context.Cause(ctx)
		}
		next.Stop()
	}
}

func (a *API) watch(job uuid.UUID) (<-chan struct{}, func()) {
	if a.opts.Outcomes == nil {
		return nil, func() {}
	}
	return a.opts.Outcomes.Watch(job)
}

// onceFunc returns a function that closes ch when it is first called.
func onceFunc(ch chan struct{}) func() { return sync.OnceFunc(func() { close(ch) }) }

const (
	firstTick = 20 * time.Millisecond
	lastTick  = 250 * time.Millisecond
	// readWait bounds one question for how far the tables are.
	readWait = 2 * time.Second
	// maxWatchedJobs bounds the jobs that are waited for at once.
	maxWatchedJobs = 4096
)

// appliedWatcher waits until the tables have applied a sequence. However many
// requests wait, one goroutine asks, one question after the other, and only
// while somebody waits.
type appliedWatcher struct {
	read func(context.Context, uuid.UUID) (uint64, error)
	stop context.Context
	end  context.CancelFunc
	wake chan struct{} // somebody new waits
	done sync.WaitGroup

	mu   sync.Mutex
	jobs map[uuid.UUID]*appliedJob
}

// appliedJob is what is known of a job's shard.
type appliedJob struct {
	waiting int
	seq     uint64
	err     error
	changed chan struct{} // closed when seq or err changes
}

func newAppliedWatcher(read func(context.Context, uuid.UUID) (uint64, error)) *appliedWatcher {
	w := &appliedWatcher{read: read, wake: make(chan struct{}, 1), jobs: map[uuid.UUID]*appliedJob{}}
	w.stop, w.end = context.WithCancel(context.Background())
	w.done.Go(w.run)
	return w
}

func (w *appliedWatcher) close() {
	w.end()
	w.done.Wait()
}

// await returns nil when the tables have applied seq for the job's shard, and
// an error that says how far they are when ctx ends first.
func (w *appliedWatcher) await(ctx context.Context, job uuid.UUID, seq uint64) error {
	if seq == 0 {
		return nil
	}
	if !w.enter(job) {
		return fmt.Errorf("more than %d jobs are waited for", maxWatchedJobs)
	}
	defer w.leave(job)
	for {
		w.mu.Lock()
		known := *w.jobs[job]
		w.mu.Unlock()
		if known.seq >= seq {
			return nil
		}
		select {
		case <-known.changed:
		case <-w.stop.Done():
			return fmt.Errorf("shutting down, with %d of %d applied", known.seq, seq)
		case <-ctx.Done():
			if known.err != nil {
				return fmt.Errorf("%w (last: %w)", context.Cause(ctx), known.err)
			}
			return fmt.Errorf("%d of %d applied: %w", known.seq, seq, context.Cause(ctx))
		}
	}
}

func (w *appliedWatcher) enter(job uuid.UUID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[job]
	if j == nil {
		if len(w.jobs) == maxWatchedJobs {
			return false
		}
		j = &appliedJob{changed: make(chan struct{})}
		w.jobs[job] = j
	}
	j.waiting++
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return true
}

func (w *appliedWatcher) leave(job uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jobs[job].waiting--; w.jobs[job].waiting == 0 {
		delete(w.jobs, job)
	}
}

func (w *appliedWatcher) waitedFor() []uuid.UUID {
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs := make([]uuid.UUID, 0, len(w.jobs))
	for job := range w.jobs {
		jobs = append(jobs, job)
	}
	return jobs
}

func (w *appliedWatcher) run() {
	tick := firstTick
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		jobs := w.waitedFor()
		for _, job := range jobs {
			w.ask(job)
		}
		var next <-chan time.Time // nobody waits: sleep until somebody does
		if len(jobs) > 0 {
			timer.Reset(tick)
			next = timer.C
			tick = min(tick*3/2, lastTick)
		}
		select {
		case <-next:
		case <-w.wake:
			tick = firstTick
		case <-w.stop.Done():
			return
		}
	}
}

// ask finds out how far the tables are for a job and tells those who wait.
func (w *appliedWatcher) ask(job uuid.UUID) {
	ctx, cancel := context.WithTimeout(w.stop, readWait)
	defer cancel()
	seq, err := w.read(ctx, job)
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[job]
	if j == nil || err == nil && seq == j.seq && j.err == nil {
		return
	}
	if j.err = err; err == nil {
		j.seq = seq
	}
	close(j.changed)
	j.changed = make(chan struct{})
}
