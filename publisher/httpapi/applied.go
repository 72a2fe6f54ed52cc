package httpapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	firstTick = 20 * time.Millisecond
	lastTick  = 250 * time.Millisecond
	// readWait bounds one question for how far the tables are.
	readWait = 2 * time.Second
	// maxAppliedJobs bounds the jobs that requests wait for at once.
	maxAppliedJobs = 16384
)

// appliedWatcher waits until the tables have applied a sequence. However many
// requests wait, one goroutine asks, one question for all of them, and only
// while somebody waits.
type appliedWatcher struct {
	read func(context.Context, []uuid.UUID) ([]uint64, error)
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

func newAppliedWatcher(read func(context.Context, []uuid.UUID) ([]uint64, error)) *appliedWatcher {
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
		return fmt.Errorf("more than %d jobs are waited for", maxAppliedJobs)
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
		if len(w.jobs) == maxAppliedJobs {
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
		w.ask(jobs)
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

// ask finds out how far the tables are for the jobs and tells those who wait.
func (w *appliedWatcher) ask(jobs []uuid.UUID) {
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(w.stop, readWait)
	defer cancel()
	seqs, err := w.read(ctx, jobs)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, job := range jobs {
		j := w.jobs[job]
		if j == nil || err == nil && seqs[i] == j.seq && j.err == nil {
			continue
		}
		if j.err = err; err == nil {
			j.seq = seqs[i]
		}
		close(j.changed)
		j.changed = make(chan struct{})
	}
}
