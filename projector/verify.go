package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// VerifyOptions say what to compare. Progress, MaxDifferences and Log are
// optional.
type VerifyOptions struct {
	Pool   *pgxpool.Pool
	Stream jetstream.Stream
	Prefix string // nats.subject_prefix, without the dot
	// MaxDifferences bounds the differences that are reported; 20 if 0. All are
	// counted.
	MaxDifferences int
	// Progress, if set, is called a few times a second with the last sequence
	// that is folded, and the one where the work ends. Its calls do not overlap.
	Progress func(folded, end uint64)
	Log      *slog.Logger
}

// A Difference is a cell, or a row, that is not what the fold of the stream
// says.
type Difference struct {
	Table  string
	Key    string // of the row
	Column string // "" if the whole row is missing or should not be there
	Want   string // what the fold says
	Got    string // what the table holds
	// Entries are the sequences of the entries that made the row what it should
	// be, the last ones if there are many; of a row that should not be there,
	// those that it names itself.
	Entries []uint64
}

// entriesShown bounds the entries of a Difference.
const entriesShown = 20

func (d Difference) String() string {
	var b strings.Builder
	b.WriteString(d.Table)
	if d.Key != "" {
		b.WriteString(" " + d.Key)
	}
	if d.Column != "" {
		b.WriteString(", column " + d.Column)
	}
	fmt.Fprintf(&b, ": expected %s, found %s", d.Want, d.Got)
	for i, seq := range d.Entries {
		b.WriteString([]string{" (entries ", ", "}[min(i, 1)] + strconv.FormatUint(seq, 10))
	}
	if len(d.Entries) > 0 {
		b.WriteString(")")
	}
	return b.String()
}

// A VerifyReport is what Verify found.
type VerifyReport struct {
	Generation  string
	Entries     uint64 // of the stream that were folded
	Rows        int    // of the tables that were compared
	Found       int    // differences in all
	Differences []Difference
	Checkpoints []uint64
	// Stopped is set if so many jobs differ that Verify did not go on to the
	// end: Found is then what it had found by then.
	Stopped bool
	Took    time.Duration
}

// verifyLimits bound what Verify holds in memory.
type verifyLimits struct {
	jobs       int // that a verification holds for their next entry
	batch      int // jobs that are compared by one query
	step       int // entries that are folded between two looks at the jobs in memory
	suspects   int // jobs that differ; with more it stops
	rejections int // that are compared by one query
	window     uint64
	candidates int // rows that may be too many, and are looked at one by one
}

var defaultVerifyLimits = verifyLimits{
	jobs: 8192, batch: 500, step: chunkEntries, suspects: 20_000, rejections: 500, window: 100_000, candidates: 20_000,
}

// Verify folds each shard's part of the stream up to the shard's checkpoint and
// compares every cell of every row of the live generation with it, in one
// snapshot of the database. It changes nothing. A stream that does not fit the
// stored hash chain is a *StreamError.
//
// What it holds in memory does not grow with the history: a job leaves memory
// once the tables are known to hold it as it will be at the checkpoint, and is
// loaded back if an entry comes for it after all. What grows is with the jobs
// that are between their first and their last entry at one moment.
func Verify(ctx context.Context, o VerifyOptions) (*VerifyReport, error) {
	began := time.Now()
	var report *VerifyReport
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, o.Pool, snapshot, func(tx pgx.Tx) error {
		v, err := newVerifier(ctx, o, tx)
		if err != nil {
			return err
		}
		report = v.report
		return v.run(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	report.Took = time.Since(began)
	return report, nil
}

// A verifier folds and compares. The reader, a fold for each shard, and the
// comparison run concurrently; the comparison alone reports.
type verifier struct {
	o      VerifyOptions
	limits verifyLimits
	report *VerifyReport
	points []Checkpoint
	snap   *snapshot
	// source reads the stream into a channel for each shard until ctx ends.
	source func(ctx context.Context, shards []chan chunk) error
	shards []*foldedShard

	keys       *keySums
	rejections rejectionWindows
	scratch    []byte // of the comparison
	// work is what the folds ask of the comparison, in order.
	work     chan func(context.Context) error
	suspects atomic.Int64
	stop     func() // ends the folding because of too many suspects
	stopped  chan struct{}

	progress struct {
		mu   sync.Mutex
		last time.Time
		at   []uint64 // by shard
	}
}

// workAhead is how much the comparison may be behind.
const workAhead = 4

// newVerifier reads in the snapshot which generation is live and how far it is,
// so that a switch of generations at this moment cannot come between.
func newVerifier(ctx context.Context, o VerifyOptions, tx pgx.Tx) (*verifier, error) {
	if o.MaxDifferences == 0 {
		o.MaxDifferences = 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	snap, points, err := openSnapshot(ctx, tx)
	if err != nil {
		return nil, err
	}
	v := &verifier{
		o: o, limits: defaultVerifyLimits, points: points, snap: snap, keys: newKeySums(),
		report: &VerifyReport{Generation: snap.store.generation},
		work:   make(chan func(context.Context) error, workAhead), stopped: make(chan struct{}),
	}
	v.stop = sync.OnceFunc(func() { close(v.stopped) })
	v.source = v.readStream
	for _, c := range points {
		v.report.Checkpoints = append(v.report.Checkpoints, c.Pos.Seq)
		v.report.Entries = max(v.report.Entries, c.Pos.Seq)
	}
	v.progress.at = make([]uint64, len(points))
	return v, nil
}

// run folds and compares everything.
func (v *verifier) run(ctx context.Context) error {
	for i, c := range v.points {
		v.shards = append(v.shards, newFoldedShard(v, i, c))
	}
	v.rejections.reset(v)
	if err := v.fold(ctx); err != nil {
		return err
	}
	v.report.Stopped = v.isStopped()
	if !v.report.Stopped {
		if err := v.finish(ctx); err != nil {
			return err
		}
	}
	v.report.settle(v.o.MaxDifferences)
	return nil
}

func (v *verifier) isStopped() bool {
	select {
	case <-v.stopped:
		return true
	default:
		return false
	}
}

// fold folds the stream up to the checkpoints and compares jobs and rejections
// meanwhile.
func (v *verifier) fold(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	channels := make([]chan chunk, len(v.shards))
	var folds sync.WaitGroup
	for i, s := range v.shards {
		channels[i] = make(chan chunk, chunkAhead)
		folds.Add(1)
		g.Go(func() error { defer folds.Done(); return s.run(ctx, channels[i]) })
	}
	g.Go(func() error { return sourceError(reading, v.source(reading, channels)) })
	g.Go(func() error { folds.Wait(); stop(); close(v.work); return nil })
	g.Go(func() error {
		for do := range v.work {
			if err := do(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return g.Wait()
}

// sourceError tells an error of the reader from its end.
func sourceError(reading context.Context, err error) error {
	var wrong *StreamError
	if reading.Err() != nil && !errors.As(err, &wrong) {
		return nil
	}
	return err
}

// ask hands work to the comparison.
func (v *verifier) ask(ctx context.Context, do func(context.Context) error) error {
	select {
	case v.work <- do:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readStream is the source: the stream itself, checked against the chain at
// every checkpoint. A shard that has enough is handed nothing more.
func (v *verifier) readStream(ctx context.Context, shards []chan chunk) error {
	r := &reader{
		stream: v.o.Stream, prefix: v.o.Prefix + ".", inbox: "-", log: v.o.Log,
		shards: shards, after: make([]uint64, len(shards)), until: v.report.Checkpoints,
	}
	for _, c := range v.points {
		if err := checkPosition(ctx, v.o.Stream, c.Pos); err != nil {
			return err
		}
		r.marks = append(r.marks, c.Pos)
	}
	if v.report.Entries == 0 {
		return nil
	}
	return r.run(ctx)
}

// progressed notes how far a shard is.
func (v *verifier) progressed(shard int, seq uint64) {
	p := &v.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at[shard] = seq
	if v.o.Progress == nil || time.Since(p.last) < progressPeriod {
		return
	}
	p.last = time.Now()
	least := v.report.Entries
	for i, at := range p.at {
		if at < v.points[i].Pos.Seq {
			least = min(least, at)
		}
	}
	v.o.Progress(least, v.report.Entries)
}

// finish compares what is compared as a whole, after the last entry.
func (v *verifier) finish(ctx context.Context) error {
	if v.o.Progress != nil {
		v.o.Progress(v.report.Entries, v.report.Entries)
	}
	if err := v.finishRejections(ctx); err != nil {
		return err
	}
	for _, s := range v.shards {
		if s.storedRules != s.state.Rules() {
			v.differ(Difference{Table: "checkpoints", Key: "shard=" + strconv.Itoa(s.number), Column: "rules",
				Want: strconv.Itoa(s.state.Rules()), Got: strconv.Itoa(s.storedRules)})
		}
	}
	if err := v.compareDefinitions(ctx); err != nil {
		return err
	}
	return v.compareKeys(ctx)
}

// compareDefinitions compares the tables that all shards write: they hold what
// the shard that is furthest has seen.
func (v *verifier) compareDefinitions(ctx context.Context) error {
	furthest := v.shards[0]
	for _, s := range v.shards {
		if s.to > furthest.to {
			furthest = s
		}
	}
	defs := furthest.defs
	if err := compareRows(ctx, v, kindsTable, "true", pointers(defs.Kinds)); err != nil {
		return err
	}
	if err := compareRows(ctx, v, providersTable, "true", pointers(defs.Providers)); err != nil {
		return err
	}
	return compareRows(ctx, v, verificationsTable, "true", pointers(defs.Verifications))
}
