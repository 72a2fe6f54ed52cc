package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// ErrRebuilding says that another rebuild is at work on the same tables.
var ErrRebuilding = errors.New("another rebuild is at work on these tables; wait for it, or stop it")

// RebuildOptions say what to rebuild. There is nothing among them by which an
// entry could be appended or a decision answered: a rebuild reads the stream
// and writes its own generation of tables, and that is all it can do (I13).
type RebuildOptions struct {
	Pool   *pgxpool.Pool
	Stream jetstream.Stream
	Prefix string // nats.subject_prefix, without the dot
	// AcceptStream folds the stream as it is although the live tables were
	// folded from another one, or from one that was longer. Without it such a
	// stream is a *StreamError.
	AcceptStream bool
	// Progress, if set, is called a few times a second.
	Progress func(RebuildProgress)
	Log      *slog.Logger // nil: nowhere
}

// RebuildPhase says what a rebuild is doing.
type RebuildPhase string

// The phases of a rebuild, in their order.
const (
	RebuildClears  RebuildPhase = "clearing the tables of before"
	RebuildFolds   RebuildPhase = "folding"
	RebuildCatches RebuildPhase = "catching up"
)

// RebuildProgress is how far a rebuild has come.
type RebuildProgress struct {
	Phase  RebuildPhase
	Folded uint64 // entries of the stream that are in the tables
	End    uint64 // where the stream ends; it goes on growing
}

// A RebuildReport says what a rebuild did.
type RebuildReport struct {
	From, To string // generations: the one of before, and the live one now
	Entries  uint64 // that the new generation had folded when it became live
	Took     time.Duration
}

// Bounds of a rebuild.
const (
	rebuildEntries    = 48_000 // of a batch
	rebuildBytes      = 32 << 20
	rebuildChunkAhead = 48
	// rebuildPatience is how long a rebuild tries to go on without getting any
	// further.
	rebuildPatience = 2 * time.Minute
	progressPeriod  = 200 * time.Millisecond
)

// Rebuild folds the whole stream into the generation of tables that is not
// live, while the system works, and then makes it the live one. Readers of the
// views see one whole generation at every moment. Projectors of the old
// generation are fenced and go on in the new one; what they had not done yet
// (starts, decisions) is done from there. The old generation stays until the
// next rebuild.
//
// A rebuild that was interrupted has changed nothing that anybody reads, and is
// simply started again. ErrRebuilding means that one is at work. A stream that
// does not fit the live tables is a *StreamError.
func Rebuild(ctx context.Context, o RebuildOptions) (*RebuildReport, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	began := time.Now()
	lock, err := takeRebuildLock(ctx, o.Pool)
	if err != nil {
		return nil, err
	}
	defer lock.release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go lock.watch(ctx, cancel)

	b := &rebuild{o: o}
	stop := b.tell()
	defer stop()
	if err := b.prepare(ctx); err != nil {
		return nil, rebuildError(ctx, err)
	}
	if err := b.work(ctx); err != nil {
		return nil, rebuildError(ctx, err)
	}
	return &RebuildReport{From: b.from, To: b.store.generation, Entries: b.least(), Took: time.Since(began)}, nil
}

func rebuildError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return fmt.Errorf("rebuild: %w", err)
}

// rebuild is one rebuild at work.
type rebuild struct {
	o     RebuildOptions
	from  string // the live generation
	store *Store // of the other one
	// committed is how far each shard is stored in the new generation.
	committed []atomic.Uint64
	end       atomic.Uint64 // of the stream
	folding   atomic.Bool
	catching  atomic.Bool
	asked     time.Time // when the stream's end was asked for; the switch's goroutine's
	last      int64     // the epoch that the latest try to switch would have set
}

// Committed implements Observer.
func (b *rebuild) Committed(r CommitReport) { b.committed[r.Shard].Store(r.Seq) }

// least returns up to where all shards are stored.
func (b *rebuild) least() uint64 {
	least := b.end.Load()
	for i := range b.committed {
		least = min(least, b.committed[i].Load())
	}
	return least
}

// tell calls Progress until the returned function is called.
func (b *rebuild) tell() (stop func()) {
	if b.o.Progress == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressPeriod)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				b.o.Progress(b.progress())
			}
		}
	}()
	return func() { close(done); <-ended }
}

func (b *rebuild) progress() RebuildProgress {
	switch {
	case b.catching.Load():
		return RebuildProgress{RebuildCatches, b.least(), b.end.Load()}
	case b.folding.Load():
		return RebuildProgress{RebuildFolds, b.least(), b.end.Load()}
	}
	return RebuildProgress{Phase: RebuildClears}
}

// work folds until the new generation is live. What fails on the way is tried
// again from the new generation's checkpoints.
func (b *rebuild) work(ctx context.Context) error {
	b.folding.Store(true)
	wait, last, moved := firstRetry, uint64(0), time.Now()
	for {
		err := b.session(ctx)
		switch {
		case errors.Is(err, errSwitched) || b.isLive(ctx):
			return nil
		case ctx.Err() != nil, isCorruption(err), errors.Is(err, errFenced):
			return err
		case b.least() > last:
			last, moved, wait = b.least(), time.Now(), firstRetry
		case time.Since(moved) > rebuildPatience:
			return fmt.Errorf("it got no further than entry %d for %s: %w", last, rebuildPatience, err)
		}
		b.o.Log.Warn("the rebuild was interrupted", "folded", b.least(), "error", err, "retry_in", wait)
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, lastRetry)
	}
}

// isLive asks whether the new generation is live after all: the answer to the
// commit that made it so may have been lost.
func (b *rebuild) isLive(ctx context.Context) bool {
	live, err := OpenStore(context.WithoutCancel(ctx), b.o.Pool)
	return err == nil && live.generation == b.store.generation && live.epoch == b.last
}

// session folds from the new generation's checkpoints until it is live or
// something fails.
func (b *rebuild) session(ctx context.Context) error {
	points, err := b.store.Checkpoints(ctx, true)
	if errors.Is(err, ErrOtherWriter) {
		return fmt.Errorf("%w: %w", errFenced, err)
	}
	if err != nil {
		return err
	}
	end, err := streamState(ctx, b.o.Stream, 0)
	if err != nil {
		return err
	}
	b.end.Store(max(b.end.Load(), end.LastSeq))
	r := newReader(b.o.Stream, b.o.Prefix, "-", b.o.Log, points, rebuildChunkAhead)
	r.startsUntil = math.MaxUint64
	if err := b.checkLive(ctx, r); err != nil {
		return err
	}
	shards := make([]*shard, len(points))
	for i, c := range points {
		b.committed[i].Store(c.Pos.Seq)
		if shards[i], err = openShard(ctx, b.store, c, r.shards[i]); err != nil {
			return err
		}
		shards[i].obs, shards[i].aside = b, true
		shards[i].held = newHeldStarts(math.MaxUint64)
		if c.Pos.Seq > 0 { // what was held before an interruption is not known any more
			shards[i].held.missed, shards[i].held.knownTo = true, c.EffectsSeq
		}
		shards[i].mostEntries, shards[i].mostBytes = rebuildEntries, rebuildBytes
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.run(ctx) })
	for _, s := range shards {
		g.Go(func() error { return s.run(ctx) })
	}
	g.Go(func() error { return b.switchOver(ctx) })
	return g.Wait()
}

// checkLive has the reader compare the chain with that of the live tables,
// where it comes by their checkpoints.
func (b *rebuild) checkLive(ctx context.Context, r *reader) error {
	if b.o.AcceptStream {
		return nil
	}
	live, err := OpenStore(ctx, b.o.Pool)
	if err != nil {
		return err
	}
	points, err := live.Checkpoints(ctx, false)
	if err != nil {
		return err
	}
	for _, c := range points {
		if err := checkPosition(ctx, b.o.Stream, c.Pos); err != nil {
			return err
		}
		r.marks = append(r.marks, c.Pos)
	}
	return nil
}
