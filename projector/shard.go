package projector

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
)

// Bounds of a shard.
const (
	batchEntries = 4000
	batchBytes   = 8 << 20
	// foldAhead is how many folded batches may wait for the one that commits.
	foldAhead = 1
	// effectsAhead is how many committed batches may wait for their effects.
	effectsAhead = 2
	// idleCommit is how long a shard that has nothing to write lets entries
	// pass before it moves its checkpoint.
	idleCommit = 250 * time.Millisecond
	// memoryJobs bounds the jobs that a shard keeps in memory for their next
	// entry.
	memoryJobs = 16_000
)

// A batch is what a shard folded, on its way to the tables and the effects.
type batch struct {
	number  uint64
	commit  Commit
	answers []answer
	effects []ledger.Effect
	traces  map[uint64]string // of entries in the batch that have one, by sequence
	done    uint64            // up to where no effect is missing once these are performed
	folded  map[Folded]int    // entries by kind and decision, for the Observer
	oldest  time.Time         // when the first entry was stored
}

// An answer is a decision and where it goes.
type answer struct {
	reply  string
	answer ledger.Answer
}

// shard folds the entries of its jobs. Its three stages run concurrently and
// share only channels and two counters.
type shard struct {
	number, shards int
	store          *Store
	effects        *effects
	aside          bool // no effects: the shard of a rebuild
	mostEntries    int  // of a batch
	mostBytes      int
	obs            Observer

	state *ledger.State
	pos   Position // of the last folded entry
	in    chan chunk
	// committed is the number of the last stored batch: jobs that only older
	// batches touched may leave memory.
	committed atomic.Uint64
	// effectsDone is the sequence up to which effects are known to be done.
	effectsDone atomic.Uint64
	// recorded is the effects_seq that the last stored batch wrote.
	recorded atomic.Uint64
	batches  uint64
	memory   memory
	held     heldStarts
	late     lateStarts
}

// openShard makes a shard that goes on from its checkpoint. Tables that newer
// rules were folded into are a *ledger.CorruptionError.
func openShard(ctx context.Context, store *Store, c Checkpoint, in chan chunk) (*shard, error) {
	if c.Rules > ledger.MaxRules {
		return nil, &ledger.CorruptionError{Seq: c.Pos.Seq + 1, Problem: fmt.Sprintf(
			"version %d of the rules holds there, and this binary knows versions up to %d; run a newer jobledger", c.Rules, ledger.MaxRules)}
	}
	s := &shard{
		number: c.Shard, shards: store.shards, store: store, pos: c.Pos, in: in, state: ledger.NewState(c.Rules),
		mostEntries: batchEntries, mostBytes: batchBytes,
	}
	return s, store.LoadDefinitions(ctx, s.state, c.Pos.Seq)
}

// run works until ctx ends or a stage fails.
func (s *shard) run(ctx context.Context) error {
	folded := make(chan *batch, foldAhead)
	stored := make(chan *batch, effectsAhead)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { defer close(folded); return s.foldStage(ctx, folded) })
	g.Go(func() error { defer close(stored); return s.commitStage(ctx, folded, stored) })
	g.Go(func() error { return s.lastStage(ctx, stored) })
	return g.Wait()
}

// lastStage does what follows the batches that are stored: nothing in a rebuild.
func (s *shard) lastStage(ctx context.Context, in <-chan *batch) error {
	if !s.aside {
		return s.effectsStage(ctx, in)
	}
	for range in { // ends with the stages before
	}
	return nil
}

// foldStage takes what has arrived, loads the jobs that it needs and folds it.
func (s *shard) foldStage(ctx context.Context, out chan<- *batch) error {
	tick := time.NewTicker(idleCommit)
	defer tick.Stop()
	moved := s.pos // what the last batch sent to the tables
	for {
		c, passed, err := s.gather(ctx, tick.C)
		if err != nil {
			return err
		}
		if len(c.items) > 0 {
			if err := s.load(ctx, c.items); err != nil {
				return err
			}
		}
		if passed {
			s.pos = c.pos
		}
		if len(c.items) == 0 && (passed || !s.lags(moved)) {
			continue // nothing to write; the tick moves the checkpoint
		}
		b, err := s.fold(c.items, moved)
		if err != nil {
			return err
		}
		moved = s.pos
		select {
		case out <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.memory.trim(s.state, s.committed.Load())
	}
}

// lags reports whether the stored checkpoint is behind what has passed and what
// is done.
func (s *shard) lags(moved Position) bool {
	if s.late.count.Load() > 0 { // a projector that stands by must see that this one is at it
		return true
	}
	return s.pos != moved || s.effectsDone.Load() >= moved.Seq && s.recorded.Load() < moved.Seq
}

// gather waits for a chunk or the tick, and adds the chunks that are there, up
// to a batch. passed is false if only the tick came.
func (s *shard) gather(ctx context.Context, tick <-chan time.Time) (c chunk, passed bool, err error) {
	select {
	case <-ctx.Done():
		return c, false, ctx.Err()
	case <-tick:
		return c, false, nil
	case c = <-s.in:
	}
	for len(c.items) < s.mostEntries && c.bytes < s.mostBytes {
		select {
		case more := <-s.in:
			c.items = append(c.items, more.items...)
			c.bytes += more.bytes
			c.pos = more.pos
		default:
			return c, true, nil
		}
	}
	return c, true, nil
}

// load brings the jobs of a batch that are not in memory there.
func (s *shard) load(ctx context.Context, items []item) error {
	var missing []uuid.UUID
	asked := map[uuid.UUID]bool{}
	for _, it := range items {
		id := it.entry.Job
		if id == (uuid.UUID{}) || s.state.Knows(id) || asked[id] {
			continue
		}
		asked[id] = true
		missing = append(missing, id)
	}
	if len(missing) == 0 {
		return nil
	}
	return s.store.Load(ctx, s.state, missing)
}

// fold folds entries one by one and collects what is to be written and done.
func (s *shard) fold(items []item, from Position) (*batch, error) {
	s.batches++
	b := &batch{number: s.batches, folded: map[Folded]int{}}
	for _, it := range items {
		if b.oldest.IsZero() {
			b.oldest = it.entry.At
		}
		if it.started != (attemptKey{}) {
			s.held.appended(it.started)
			continue
		}
		v, err := s.state.Apply(it.entry)
		if err != nil {
			return nil, err
		}
		b.trace(it.entry.Seq, it.trace)
		v.Effects = s.held.add(it.entry.Seq, v.Effects, b.traces)
		home := it.entry.Job != (uuid.UUID{}) || homeShard(it.entry.Seq, s.shards) == s.number
		if home {
			b.take(it, v, !s.aside)
		}
		if it.entry.Job != (uuid.UUID{}) {
			s.memory.touch(it.entry.Job, b.number)
		}
	}
	for _, h := range s.held.release(s.pos.Seq) {
		b.trace(h.effect.RequestSeq, h.trace)
		b.effects = append(b.effects, h.effect)
	}
	if b.done = s.held.doneUpTo(s.pos.Seq); s.aside {
		b.done = s.held.appendedUpTo(s.pos.Seq)
	}
	b.commit.Shard = s.number
	b.commit.From, b.commit.To = from, s.pos
	b.commit.Rules = s.state.Rules()
	b.commit.Changes = s.state.Drain()
	return b, nil
}

// trace notes the trace context of an entry, if it has one.
func (b *batch) trace(seq uint64, trace string) {
	if trace == "" {
		return
	}
	if b.traces == nil {
		b.traces = map[uint64]string{}
	}
	b.traces[seq] = trace
}

// take adds what follows from one entry to the batch, with its effects and its
// answer or without.
func (b *batch) take(it item, v ledger.Verdict, effects bool) {
	if v.Rejection != nil {
		b.commit.Rejections = append(b.commit.Rejections, v.Rejection)
	}
	if !effects {
		return
	}
	b.effects = append(b.effects, v.Effects...)
	if v.Answer.Decision == "" {
		return
	}
	b.folded[Folded{it.entry.Kind, v.Answer.Decision, v.Answer.Reason}]++
	if it.reply != "" {
		b.answers = append(b.answers, answer{it.reply, v.Answer})
	}
}

// commitStage stores batches in order.
func (s *shard) commitStage(ctx context.Context, in <-chan *batch, out chan<- *batch) error {
	for b := range in {
		b.commit.EffectsSeq = min(s.effectsDone.Load(), b.commit.To.Seq)
		if s.aside { // it performs none, and notes up to where the starts are in the stream
			b.commit.EffectsSeq = min(b.done, b.commit.To.Seq)
		}
		started := time.Now()
		if err := s.store.Commit(ctx, &b.commit); err != nil {
			return fmt.Errorf("store the batch of shard %d after sequence %d: %w", s.number, b.commit.From.Seq, err)
		}
		s.committed.Store(b.number)
		s.recorded.Store(b.commit.EffectsSeq)
		s.obs.Committed(CommitReport{s.number, b.commit.To.Seq, b.folded, b.oldest, time.Since(started), int(s.late.count.Load())})
		select {
		case out <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// effectsStage performs the effects of stored batches, in order, and beside them
// the starts that are late.
func (s *shard) effectsStage(ctx context.Context, in <-chan *batch) error {
	tick := time.NewTicker(latePeriod)
	defer tick.Stop()
	for {
		select {
		case b, ok := <-in:
			if !ok {
				return nil
			}
			late, err := s.effects.perform(ctx, b.answers, b.effects, b.traces, s.late.room())
			if err != nil {
				return err
			}
			s.late.add(late, b.done)
		case <-tick.C:
			if err := s.late.retry(ctx, s.effects); err != nil {
				return err
			}
		}
		s.effectsDone.Store(s.late.doneUpTo())
	}
}

// memory knows which jobs a state holds and when they were last touched. All its
// work is in proportion to what a batch touches.
type memory struct {
	last  map[uuid.UUID]uint64 // number of the batch that touched the job last
	fresh []touch              // touched by batches that were not yet seen stored, oldest first
	idle  []touch              // stored and not at rest, longest untouched first
}

type touch struct {
	job   uuid.UUID
	batch uint64
}

func (m *memory) touch(id uuid.UUID, batch uint64) {
	if m.last == nil {
		m.last = map[uuid.UUID]uint64{}
	}
	if m.last[id] == batch {
		return
	}
	m.last[id] = batch
	m.fresh = append(m.fresh, touch{id, batch})
}

// trim forgets, among the jobs whose last batch is stored, those that are at
// rest, and the longest untouched ones while there are too many.
func (m *memory) trim(state *ledger.State, committed uint64) {
	for len(m.fresh) > 0 && m.fresh[0].batch <= committed {
		t := m.fresh[0]
		m.fresh = m.fresh[1:]
		switch {
		case m.last[t.job] != t.batch: // touched again since
		case atRest(state.Job(t.job)):
			m.forget(state, t.job)
		default:
			m.idle = append(m.idle, t)
		}
	}
	for len(m.last) > memoryJobs && len(m.idle) > 0 {
		t := m.idle[0]
		m.idle = m.idle[1:]
		if m.last[t.job] == t.batch {
			m.forget(state, t.job)
		}
	}
	if len(m.idle) > 2*len(m.last)+batchEntries { // mostly jobs that were touched again
		m.idle = slices.DeleteFunc(m.idle, func(t touch) bool { return m.last[t.job] != t.batch })
	}
}

func (m *memory) forget(state *ledger.State, id uuid.UUID) {
	state.Forget(id)
	delete(m.last, id)
}

// atRest reports whether no more entries are to be expected for a job.
func atRest(j *ledger.Job) bool {
	return j == nil || j.State.Settled() && j.InFlight() == nil
}
