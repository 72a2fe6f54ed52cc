// Package bench measures the whole path of a job on a throw-away stack of its
// own: an embedded NATS server, a PostgreSQL child, a projector and a worker of
// a provider that does nothing. Request, start, claim and completion all cross
// the stream.
package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
	"jobledger/projector"
	"jobledger/workers"
)

// Options of a run. Zero members mean the defaults.
type Options struct {
	Jobs        int    // of the load phase: 20,000
	Producers   int    // that submit concurrently in the load phase: 2048
	Concurrency int    // of the worker: 4096
	InputBytes  int    // size of a job's input: 200
	IdleJobs    int    // that one producer submits, one after the other, before the load: 300
	SyncAlways  bool   // NATS: fsync before every acknowledgement
	Shards      int    // 1
	Dir         string // for the stack's files; a temporary folder if empty
	CPUProfile  string // file for a profile of the load phase
	MemProfile  string // file for a heap profile after the load phase
	Progress    func(done, jobs int)
	Log         *slog.Logger
}

const (
	streamName = "LEDGER"
	prefix     = "ledger"
	kindName   = "bench"
	provider   = "noop"
	// patience bounds a run without progress.
	patience = 2 * time.Minute
)

func (o *Options) setDefaults() {
	for _, d := range []struct {
		v        *int
		fallback int
	}{{&o.Jobs, 20_000}, {&o.Producers, 2048}, {&o.Concurrency, 4096}, {&o.InputBytes, 200}, {&o.IdleJobs, 300}, {&o.Shards, 1}} {
		if *d.v == 0 {
			*d.v = d.fallback
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Run measures and returns the report. It leaves nothing behind.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	o.setDefaults()
	b := &bench{o: o}
	defer func() { err = errors.Join(err, b.stop()) }()
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	r := &Report{Jobs: o.Jobs, SyncAlways: o.SyncAlways, Producers: o.Producers, Shards: o.Shards, InputBytes: o.InputBytes}
	if r.Idle, err = b.idle(ctx); err != nil {
		return nil, fmt.Errorf("one producer: %w", err)
	}
	if err := b.load(ctx, r); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if err := b.measureTables(ctx, r); err != nil {
		return nil, err
	}
	r.PeakBytes = peakMemory()
	v, err := projector.Verify(ctx, projector.VerifyOptions{Pool: b.pool, Stream: b.stream, Prefix: prefix})
	if err != nil {
		return nil, err
	}
	r.Differences = v.Found
	if len(v.Differences) > 0 {
		r.FirstDifference = v.Differences[0].String()
	}
	return r, nil
}

// noop is a provider that has its answer ready.
type noop struct{}

func (noop) Call(context.Context, workers.Call) (workers.Result, error) {
	return workers.Result{Body: []byte(`{"ok":true}`)}, nil
}

// submit asks for one job and returns how long the decision took.
func (b *bench) submit(ctx context.Context, owner string, n int, input []byte) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req := ledger.Request{Owner: owner, Key: fmt.Sprintf("job-%d", n), Kind: kindName, Input: input}
	began := time.Now()
	a, err := b.client.Decide(ctx, req.Message())
	took := time.Since(began)
	if err == nil && a.Decision != ledger.Accepted {
		err = fmt.Errorf("job %d: %s %s", n, a.Decision, a.Detail)
	}
	return took, err
}

func (b *bench) input(n int) []byte {
	head := fmt.Sprintf(`{"n":%d,"text":"`, n)
	in := make([]byte, 0, b.o.InputBytes+2)
	in = append(in, head...)
	for len(in) < b.o.InputBytes-2 {
		in = append(in, 'x')
	}
	return append(in, `"}`...)
}

// idle submits one job after the other.
func (b *bench) idle(ctx context.Context) (Percentiles, error) {
	var took []time.Duration
	for n := range b.o.IdleJobs {
		d, err := b.submit(ctx, "idle", n, b.input(n))
		if err != nil {
			return Percentiles{}, err
		}
		took = append(took, d)
	}
	return percentiles(took), b.awaitEnded(ctx, int64(b.o.IdleJobs))
}

// load submits the jobs from many producers and waits until all have ended and
// are in the tables.
func (b *bench) load(ctx context.Context, r *Report) error {
	before, err := b.stream.Info(ctx)
	if err != nil {
		return err
	}
	batches := b.batches.Load()
	stopProfile, err := b.profile()
	if err != nil {
		return err
	}
	defer stopProfile()
	began := time.Now()
	if r.Submit, err = b.produce(ctx, "load"); err != nil {
		return err
	}
	r.SubmitSeconds = time.Since(began).Seconds()
	if err := b.awaitEnded(ctx, int64(b.o.IdleJobs+b.o.Jobs)); err != nil {
		return err
	}
	if err := b.awaitTables(ctx); err != nil {
		return err
	}
	r.Seconds = time.Since(began).Seconds()
	stopProfile()
	after, err := b.stream.Info(ctx)
	if err != nil {
		return err
	}
	r.Entries = after.State.LastSeq - before.State.LastSeq
	r.StreamBytes = after.State.Bytes - before.State.Bytes
	r.Batches = b.batches.Load() - batches
	return b.heapProfile()
}

func (b *bench) produce(ctx context.Context, owner string) (Percentiles, error) {
	took := make([]time.Duration, b.o.Jobs)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range b.o.Producers {
		g.Go(func() error {
			for {
				n := int(next.Add(1)) - 1
				if n >= b.o.Jobs {
					return nil
				}
				var err error
				if took[n], err = b.submit(ctx, owner, n, b.input(n)); err != nil {
					return err
				}
			}
		})
	}
	err := g.Wait()
	return percentiles(took), err
}

// awaitEnded waits until the worker has completed n attempts.
func (b *bench) awaitEnded(ctx context.Context, n int64) error {
	last, since := b.ended.Load(), time.Now()
	for {
		done := b.ended.Load()
		switch {
		case done >= n:
			return nil
		case done > last:
			last, since = done, time.Now()
		case time.Since(since) > patience:
			return fmt.Errorf("%d of %d jobs have ended, and none for %s", done, n, patience)
		}
		if b.o.Progress != nil {
			b.o.Progress(int(done), int(n))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// awaitTables waits until the tables have reached the stream's end.
func (b *bench) awaitTables(ctx context.Context) error {
	info, err := b.stream.Info(ctx)
	if err != nil {
		return err
	}
	q := projector.NewQueries(b.pool)
	for deadline := time.Now().Add(patience); ; {
		points, err := q.Checkpoints(ctx)
		if err != nil {
			return err
		}
		behind := false
		for _, p := range points {
			behind = behind || p < info.State.LastSeq
		}
		if !behind {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the tables are at %v, the stream at %d", points, info.State.LastSeq)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// profile starts a CPU profile if one is wanted; the function ends it.
func (b *bench) profile() (stop func(), err error) {
	if b.o.CPUProfile == "" {
		return func() {}, nil
	}
	f, err := os.Create(b.o.CPUProfile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return sync.OnceFunc(func() {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			b.o.Log.Error("the profile was not written", "error", err)
		}
	}), nil
}

func (b *bench) heapProfile() error {
	if b.o.MemProfile == "" {
		return nil
	}
	f, err := os.Create(b.o.MemProfile)
	if err != nil {
		return err
	}
	runtime.GC()
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}

// measureTables reads the durations of the load phase from the tables: all
// times there are the stream's.
func (b *bench) measureTables(ctx context.Context, r *Report) error {
	for _, m := range []struct {
		owner string
		claim *Percentiles
		life  *Percentiles
	}{{"idle", &r.IdleClaim, &r.IdleLife}, {"load", &r.Claim, &r.Life}} {
		rows, err := b.pool.Query(ctx, "SELECT j.id, a.requested_at, a.started_at, j.created_at, j.completed_at FROM ledger.jobs AS j"+
			" JOIN ledger.attempts AS a ON a.job_id = j.id WHERE j.owner_id = $1 AND j.state = 'succeeded'", m.owner)
		if err != nil {
			return err
		}
		var claims, lives []time.Duration
		for rows.Next() {
			var id uuid.UUID
			var requested, started, created, completed time.Time
			if err := rows.Scan(&id, &requested, &started, &created, &completed); err != nil {
				return err
			}
			claims = append(claims, started.Sub(requested))
			lives = append(lives, completed.Sub(created))
		}
		if err := rows.Err(); err != nil {
			return err
		}
		*m.claim, *m.life = percentiles(claims), percentiles(lives)
	}
	if r.Life.N != b.o.Jobs {
		return fmt.Errorf("%d jobs succeeded, of %d", r.Life.N, b.o.Jobs)
	}
	return nil
}
