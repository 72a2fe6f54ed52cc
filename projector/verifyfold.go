package projector

import (
	"bytes"
	"container/list"
	"context"
	"crypto/sha256"
	"fmt"
	"math"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// foldedShard is the fold of one shard's part of the stream.
type foldedShard struct {
	v           *verifier
	number      int
	to          uint64 // checkpoint
	most        int    // jobs in the queue
	storedRules int
	state       *ledger.State
	defs        ledger.Changes // only the definitions
	jobs        map[uuid.UUID]*foldedJob
	queue       *list.List // of jobs that may be compared, the longest untouched first
	// results are batches that were compared; out is how many are under way.
	results chan []*foldedJob
	out     int
}

// batchesOut bounds the batches of a shard that are being compared.
const batchesOut = 2

// A foldedJob is a job in memory.
type foldedJob struct {
	job *ledger.Job // of the state; whoever compares it may read it while place is atComparison
	// last is the last entry that left its sequence on the job or an attempt.
	last uint64
	// dirty is set if the job has changed since it was loaded from the tables,
	// which held it exactly so.
	dirty bool
	// input and result are digests of canonical forms. The fold does not keep
	// the documents. Those of a job that was loaded back have been compared.
	input, result document
	place         place
	queued        *list.Element
	// verdict is what the comparison says, and storedLast the last entry that
	// touched the job according to the tables.
	verdict    verdict
	storedLast uint64
}

type document struct {
	digest ledger.Digest
	known  bool
}

// place is where a job in memory stands.
type place int

const (
	inQueue      place = iota
	atComparison       // read by another goroutine: it must not be folded
	awaiting           // the tables know of a later entry
	suspected          // its row is final and not what the fold says
)

func newFoldedShard(v *verifier, number int, c Checkpoint) *foldedShard {
	return &foldedShard{
		v: v, number: number, to: c.Pos.Seq, storedRules: c.Rules, most: v.limits.jobs / len(v.points),
		state: ledger.NewState(0), jobs: map[uuid.UUID]*foldedJob{}, queue: list.New(), results: make(chan []*foldedJob, batchesOut),
	}
}

// run folds what arrives until the checkpoint is reached, and has the rest
// compared then.
func (s *foldedShard) run(ctx context.Context, in <-chan chunk) error {
	for at := uint64(0); at < s.to && !s.v.isStopped(); {
		select {
		case c := <-in:
			if err := s.take(ctx, c.items); err != nil {
				return err
			}
			at = c.pos.Seq
			s.v.progressed(s.number, min(at, s.to))
			if err := s.v.rejected(ctx, s.number, at, nil); err != nil {
				return err
			}
		case <-s.v.stopped:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if !s.v.isStopped() {
		if err := s.v.rejected(ctx, s.number, math.MaxUint64, nil); err != nil {
			return err
		}
	}
	return s.end(ctx)
}

// take folds the entries of a chunk, some at a time.
func (s *foldedShard) take(ctx context.Context, items []item) error {
	for len(items) > 0 && items[0].entry.Seq <= s.to {
		n := min(len(items), s.v.limits.step)
		for items[n-1].entry.Seq > s.to {
			n--
		}
		if err := s.step(ctx, items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

func (s *foldedShard) step(ctx context.Context, items []item) error {
	absent, err := s.bring(ctx, items)
	if err != nil {
		return err
	}
	var rejected []*ledger.Rejection
	for _, it := range items {
		v, err := s.state.Apply(it.entry)
		if err != nil {
			return err
		}
		home := it.entry.Job != (uuid.UUID{}) || homeShard(it.entry.Seq, len(s.v.points)) == s.number
		if v.Rejection != nil && home {
			v.Rejection.Raw = bytes.Clone(v.Rejection.Raw) // not the whole entry
			rejected = append(rejected, v.Rejection)
		}
	}
	if err := s.keep(s.state.Drain()); err != nil {
		return err
	}
	for _, id := range absent {
		if s.state.Job(id) == nil { // it has not become a job
			s.state.Forget(id)
		}
	}
	if err := s.v.rejected(ctx, s.number, items[len(items)-1].entry.Seq, rejected); err != nil {
		return err
	}
	return s.evict(ctx)
}

// bring has the jobs of entries in memory: those that were forgotten are loaded
// back from the snapshot, where they were found to be as they were folded. It
// returns those that were not in memory.
func (s *foldedShard) bring(ctx context.Context, items []item) ([]uuid.UUID, error) {
	if err := s.settle(ctx, false); err != nil {
		return nil, err
	}
	for i := 0; i < len(items) && s.out > 0; i++ {
		it := items[i]
		for f := s.jobs[it.entry.Job]; f != nil && f.place == atComparison; f = s.jobs[it.entry.Job] {
			if err := s.settle(ctx, true); err != nil {
				return nil, err
			}
		}
	}
	var missing []uuid.UUID
	for _, it := range items {
		if id := it.entry.Job; id != (uuid.UUID{}) && !s.state.Knows(id) {
			s.state.LoadAbsent(id)
			missing = append(missing, id)
		}
	}
	created := s.v.keys.perhapsCreated(missing)
	if len(created) == 0 {
		return missing, nil
	}
	jobs, err := s.v.snap.load(ctx, created)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if j.RequestedSeq >= items[0].entry.Seq { // it is yet to be created
			continue
		}
		s.state.Load(j)
		f := &foldedJob{job: j, last: lastTouch(j)}
		s.jobs[j.ID] = f
		s.enqueue(f)
	}
	return missing, nil
}

// keep notes what the fold has changed.
func (s *foldedShard) keep(c ledger.Changes) error {
	for i := range c.Jobs {
		j := &c.Jobs[i]
		f := s.jobs[j.ID]
		if f == nil {
			f = &foldedJob{job: s.state.Job(j.ID)}
			s.jobs[j.ID] = f
		}
		if err := f.note(j); err != nil {
			return err
		}
		s.touched(f)
	}
	for i := range c.Attempts {
		s.touched(s.jobs[c.Attempts[i].Job])
	}
	s.v.keys.create(&c)
	s.defs.Kinds = append(s.defs.Kinds, c.Kinds...)
	s.defs.Providers = append(s.defs.Providers, c.Providers...)
	s.defs.Verifications = append(s.defs.Verifications, c.Verifications...)
	return nil
}

// note keeps the digests of the documents that a change brings.
func (f *foldedJob) note(j *ledger.Job) error {
	if j.IsNew() { // without a result unless one comes
		f.input.known, f.result.known = true, true
	}
	for _, d := range []struct {
		raw []byte
		to  *document
	}{{j.Input, &f.input}, {j.Result, &f.result}} {
		if d.raw == nil {
			continue
		}
		canonical, err := ledger.Canonical(nil, d.raw)
		if err != nil {
			return fmt.Errorf("a document of job %s: %w", j.ID, err)
		}
		*d.to = document{sha256.Sum256(canonical), true}
	}
	return nil
}

// touched puts a job at the end of the queue, unless it is clear that there is
// no use in comparing it yet.
func (s *foldedShard) touched(f *foldedJob) {
	f.dirty, f.last = true, lastTouch(f.job)
	if f.place == suspected || f.place == awaiting && f.last < f.storedLast {
		return
	}
	s.enqueue(f)
}

func (s *foldedShard) enqueue(f *foldedJob) {
	f.place = inQueue
	if f.queued != nil {
		s.queue.MoveToBack(f.queued)
		return
	}
	f.queued = s.queue.PushBack(f)
}

// lastTouch returns the last entry that left its sequence on a job or on one of
// its attempts.
func lastTouch(j *ledger.Job) uint64 {
	last := j.Seqs[len(j.Seqs)-1]
	for _, a := range j.Attempts {
		last = max(last, a.Seqs[len(a.Seqs)-1])
	}
	return last
}

// evict has the longest untouched jobs compared while there are too many.
func (s *foldedShard) evict(ctx context.Context) error {
	for s.queue.Len() >= s.most+s.v.limits.batch {
		if err := s.compareSome(ctx); err != nil {
			return err
		}
	}
	return nil
}

// compareSome takes the first jobs of the queue: the ones that did not change
// since they were loaded are forgotten, the others are compared.
func (s *foldedShard) compareSome(ctx context.Context) error {
	batch := make([]*foldedJob, 0, s.v.limits.batch)
	for s.queue.Len() > 0 && len(batch) < s.v.limits.batch {
		f := s.queue.Remove(s.queue.Front()).(*foldedJob)
		f.queued = nil
		if !f.dirty {
			s.forget(f)
			continue
		}
		f.place = atComparison
		batch = append(batch, f)
	}
	if len(batch) == 0 {
		return nil
	}
	for s.out >= batchesOut {
		if err := s.settle(ctx, true); err != nil {
			return err
		}
	}
	s.out++
	return s.v.ask(ctx, func(ctx context.Context) error {
		err := s.v.compareJobs(ctx, batch, false)
		s.results <- batch // there is room for all that are out
		return err
	})
}

func (s *foldedShard) forget(f *foldedJob) {
	s.state.Forget(f.job.ID)
	delete(s.jobs, f.job.ID)
}

// settle takes what comparisons have found: all that are ready, or with wait
// set at least one.
func (s *foldedShard) settle(ctx context.Context, wait bool) error {
	for ; s.out > 0; wait = false {
		var batch []*foldedJob
		if wait {
			select {
			case batch = <-s.results:
			case <-ctx.Done():
				return ctx.Err()
			}
		} else {
			select {
			case batch = <-s.results:
			default:
				return nil
			}
		}
		s.out--
		s.judge(batch)
	}
	return nil
}

func (s *foldedShard) judge(batch []*foldedJob) {
	for _, f := range batch {
		switch {
		case f.verdict == isEqual:
			s.forget(f)
		case f.verdict == isLater && f.storedLast <= s.to:
			f.place = awaiting
		default:
			f.place = suspected
			if s.v.suspects.Add(1) > int64(s.v.limits.suspects) {
				s.v.stop()
			}
		}
	}
}

// end has everything compared that is left, and what differs reported.
func (s *foldedShard) end(ctx context.Context) error {
	for s.out > 0 {
		if err := s.settle(ctx, true); err != nil {
			return err
		}
	}
	var batch []*foldedJob
	for _, f := range s.jobs {
		if !f.dirty || s.v.isStopped() && f.place != suspected {
			continue
		}
		if batch = append(batch, f); len(batch) == s.v.limits.batch {
			if err := s.compareLast(ctx, batch); err != nil {
				return err
			}
			batch = nil
		}
	}
	return s.compareLast(ctx, batch)
}

func (s *foldedShard) compareLast(ctx context.Context, batch []*foldedJob) error {
	if len(batch) == 0 {
		return nil
	}
	return s.v.ask(ctx, func(ctx context.Context) error { return s.v.compareJobs(ctx, batch, true) })
}
