package projector

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
)

// Bounds of starts that cannot be appended.
const (
	// startPatience is how long a batch waits for its starts. Then they are late:
	// they are tried on beside the pipeline.
	startPatience = 3 * time.Second
	// lateMost bounds them; beyond it a batch waits as long as it takes.
	lateMost = 10_000
	// latePeriod is how often late starts are tried, lateTries how many at a time.
	latePeriod = time.Second
	lateTries  = 64
	// lateTimeout bounds one round of tries.
	lateTimeout = 5 * time.Second
)

// errLate says that a start was not appended in good time.
var errLate = errors.New("the start was not appended in good time")

// lateStarts are starts that could not be appended in good time: the stream may
// be so full that a start, which repeats its job's input, does not fit, although
// a completion does. They must not keep the shard from deciding what fits. They
// are done when they are appended, and effects_seq stays before them till then.
type lateStarts struct {
	queue   []lateStart
	batches []*lateBatch // in order; those before the first are done
	done    uint64       // up to where everything is done but for these
	count   atomic.Int64
}

type lateStart struct {
	batch  *lateBatch
	effect ledger.Effect
}

// A lateBatch is what is not done of a batch.
type lateBatch struct {
	before uint64 // what came before the batch was done up to here
	left   int
}

// room reports whether more starts may be late.
func (l *lateStarts) room() bool { return l.count.Load() < lateMost }

// add notes that everything up to done is done, but for what was late before and
// for these.
func (l *lateStarts) add(effects []ledger.Effect, done uint64) {
	if len(effects) > 0 {
		b := &lateBatch{before: l.done, left: len(effects)}
		l.batches = append(l.batches, b)
		for _, e := range effects {
			e.Start.Input = nil // it is fetched again
			l.queue = append(l.queue, lateStart{b, e})
		}
		l.count.Add(int64(len(effects)))
	}
	l.done = done
}

// doneUpTo returns up to where nothing is late.
func (l *lateStarts) doneUpTo() uint64 {
	for len(l.batches) > 0 && l.batches[0].left == 0 {
		l.batches = l.batches[1:]
	}
	if len(l.batches) > 0 {
		return l.batches[0].before
	}
	return l.done
}

// retry tries some of the late starts once. Those that fail again go to the end,
// so that a large one does not stand before small ones.
func (l *lateStarts) retry(ctx context.Context, f *effects) error {
	ctx, cancel := context.WithTimeout(ctx, lateTimeout)
	defer cancel()
	n := min(len(l.queue), lateTries)
	tried := l.queue[:n:n]
	l.queue = l.queue[n:]
	failed := make([]bool, n)
	var g errgroup.Group
	for i := range tried {
		g.Go(func() error {
			err := f.tryStart(ctx, &tried[i].effect, "")
			failed[i] = err != nil
			if err != nil {
				f.log.Debug("a late start was not appended", "job", tried[i].effect.Job, "error", err)
			}
			return onlyWrong(err)
		})
	}
	err := g.Wait()
	for i, s := range tried {
		if failed[i] {
			s.effect.Start.Input = nil
			l.queue = append(l.queue, s)
			continue
		}
		s.batch.left--
		l.count.Add(-1)
	}
	return err
}

// onlyWrong returns the error if it means that the stream is not the right one.
func onlyWrong(err error) error {
	var wrong *StreamError
	if errors.As(err, &wrong) {
		return err
	}
	return nil
}

// A lateList collects the starts of one batch that are late.
type lateList struct {
	mu   sync.Mutex
	list []ledger.Effect
}

func (l *lateList) add(e ledger.Effect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, e)
}
