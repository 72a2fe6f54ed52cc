package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
)

// Options of a Projector. All but Inbox, Observer, WithTrace and Log are
// required.
type Options struct {
	Pool     *pgxpool.Pool
	Conn     *nats.Conn
	Stream   jetstream.Stream
	Prefix   string // nats.subject_prefix, without the dot
	Appender Appender
	// Inbox is what the subject of a reply must start with; "_INBOX" if empty.
	Inbox    string
	Observer Observer
	// WithTrace puts the trace context of a job's request into the context that
	// the Appender gets for its starts; nil: traces end here.
	WithTrace func(ctx context.Context, traceparent string) context.Context
	Log       *slog.Logger

	redoMost uint64 // see there; fewer in tests
}

func (o *Options) check() error {
	switch {
	case o.Pool == nil:
		return errors.New("projector: Options.Pool is missing")
	case o.Conn == nil || o.Stream == nil:
		return errors.New("projector: Options.Conn or Options.Stream is missing")
	case o.Prefix == "":
		return errors.New("projector: Options.Prefix is empty")
	case o.Appender == nil:
		return errors.New("projector: Options.Appender is missing")
	}
	if o.Inbox == "" {
		o.Inbox = "_INBOX"
	}
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.redoMost == 0 {
		o.redoMost = redoMost
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Bounds of starting, failing and standing by.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 2 * time.Second
	// standbyPeriod is how often a projector that stands by looks at the
	// checkpoints; takeOver is how long they must not have moved while entries
	// wait before it takes over, plus a jitter of up to a half.
	standbyPeriod = 500 * time.Millisecond
	// switchWatch is how often a projector looks which generation is live.
	switchWatch = time.Second
	takeOver    = 3 * time.Second
)

// A Projector keeps the tables up with the stream.
type Projector struct {
	o      Options
	status atomic.Pointer[Status]
	// The generation that the latest session wrote, and its epoch. Only Run's
	// goroutine uses them.
	generation string
	epoch      int64
}

// Status is what a Projector is doing.
type Status struct {
	Active bool // it folds; otherwise it stands by or recovers
	// Err is why it does not fold; a *StreamError or *ledger.CorruptionError
	// means that it has stopped for good.
	Err error
}

// New returns a Projector. Run makes it work.
func New(o Options) (*Projector, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	p := &Projector{o: o}
	p.status.Store(&Status{Err: errors.New("not started")})
	return p, nil
}

// Status returns what the projector is doing. It may be called at any time.
func (p *Projector) Status() Status { return *p.status.Load() }

// Run projects until ctx ends, and returns nil then. Lost connections to either
// side and other projectors are lived with. The error is a *StreamError or a
// *ledger.CorruptionError: the stream does not fit the tables, and going on
// would spoil them.
func (p *Projector) Run(ctx context.Context) error {
	wait := firstRetry
	for {
		began := time.Now()
		err := p.session(ctx)
		if ctx.Err() != nil {
			p.status.Store(&Status{Err: errors.New("stopped")})
			return nil
		}
		p.status.Store(&Status{Err: err})
		if isCorruption(err) {
			p.o.Log.Error("the projector stops", "error", err)
			return err
		}
		if errors.Is(err, ErrOtherWriter) {
			if p.moved(ctx) {
				p.o.Log.Info("the live generation has changed; going on there")
				continue
			}
			p.o.Log.Info("another projector is at work; standing by")
			p.standBy(ctx)
			continue
		}
		if time.Since(began) > 10*lastRetry {
			wait = firstRetry
		}
		p.o.Log.Warn("the projector was interrupted", "error", err, "retry_in", wait)
		if pause(ctx, wait) != nil {
			continue // the loop ends by ctx
		}
		wait = min(2*wait, lastRetry)
	}
}

// watchSwitch ends a session when a rebuild has switched generations. One that
// has nothing to write would not notice, and its clock would go on looking at
// tables that nobody uses.
func (p *Projector) watchSwitch(ctx context.Context) error {
	tick := time.NewTicker(switchWatch)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if p.moved(ctx) {
			return ErrOtherWriter
		}
	}
}

// moved reports whether a rebuild has switched generations, once or more often,
// since the last session began.
func (p *Projector) moved(ctx context.Context) bool {
	store, err := OpenStore(ctx, p.o.Pool)
	return err == nil && (store.generation != p.generation || store.epoch != p.epoch)
}

func isCorruption(err error) bool {
	var stream *StreamError
	var fold *ledger.CorruptionError
	return errors.As(err, &stream) || errors.As(err, &fold)
}

// session loads the checkpoints, performs again what may not have been done,
// and projects until something fails.
func (p *Projector) session(ctx context.Context) error {
	if limit := p.o.Conn.MaxPayload(); limit > 0 && limit < ledger.MaxPayloadBytes {
		return fmt.Errorf("the NATS server takes messages of at most %d bytes; a ledger needs max_payload %d, or starts may not fit",
			limit, ledger.MaxPayloadBytes)
	}
	store, err := OpenStore(ctx, p.o.Pool)
	if err != nil {
		return err
	}
	p.generation, p.epoch = store.generation, store.epoch
	points, err := store.Checkpoints(ctx, true)
	if err != nil {
		return err
	}
	r := newReader(p.o.Stream, p.o.Prefix, p.o.Inbox, p.o.Log, points, chunkAhead)
	shards := make([]*shard, len(points))
	for i, c := range points {
		if shards[i], err = openShard(ctx, store, c, r.shards[i]); err != nil {
			return err
		}
		shards[i].obs = p.o.Observer
		shards[i].effects = &effects{nc: p.o.Conn, stream: p.o.Stream, prefix: p.o.Prefix + ".", appender: p.o.Appender,
			withTrace: p.o.WithTrace, log: p.o.Log}
	}
	for _, c := range points {
		if err := checkPosition(ctx, r.stream, c.Pos); err != nil {
			return err
		}
	}
	end, err := streamState(ctx, r.stream, 0)
	if err != nil {
		return err
	}
	r.startsUntil = end.LastSeq
	for _, s := range shards {
		s.held = newHeldStarts(end.LastSeq)
	}
	for i, c := range points {
		if err := shards[i].redo(ctx, r, c, p.o.redoMost); err != nil {
			return err
		}
	}
	p.o.Log.Info("projecting", "generation", store.generation, "shards", len(shards), "after", r.pos.Seq)
	p.status.Store(&Status{Active: true})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.run(ctx) })
	for _, s := range shards {
		g.Go(func() error { return s.run(ctx) })
	}
	g.Go(func() error { return p.watchSwitch(ctx) })
	c := &clock{store: store, appender: p.o.Appender, log: p.o.Log}
	g.Go(func() error { return c.run(ctx) })
	return g.Wait()
}

// standBy waits until the checkpoints have not moved for a while although
// entries wait, or until they cannot be read: whoever moved them is gone then.
func (p *Projector) standBy(ctx context.Context) {
	patience := takeOver + rand.N(takeOver/2)
	var last uint64
	moved := time.Now()
	for pause(ctx, standbyPeriod) == nil {
		sum, waiting, err := p.progress(ctx)
		switch {
		case err != nil:
			p.o.Log.Warn("standing by: the checkpoints cannot be read", "error", err)
			moved = time.Now() // the one at work cannot move them either
		case sum != last || !waiting:
			last, moved = sum, time.Now()
		case time.Since(moved) > patience:
			p.o.Log.Info("taking over: the checkpoints have stopped moving while entries wait")
			return
		}
	}
}

// progress returns a number that changes whenever a checkpoint moves, and
// whether there is something to do for whoever projects: entries to fold,
// effects to perform, or due times to say.
func (p *Projector) progress(ctx context.Context) (sum uint64, waiting bool, err error) {
	store, err := OpenStore(ctx, p.o.Pool)
	if err != nil {
		return 0, false, err
	}
	points, err := store.Checkpoints(ctx, false)
	if err != nil {
		return 0, false, err
	}
	state, err := streamState(ctx, p.o.Stream, 0)
	if err != nil {
		return 0, false, err
	}
	overdue, err := store.DueRows(ctx, time.Now().Add(-takeOver), 1)
	if err != nil {
		return 0, false, err
	}
	waiting = len(overdue) > 0
	for _, c := range points {
		sum += c.Pos.Seq + c.EffectsSeq + uint64(c.UpdatedAt.UnixMicro())
		waiting = waiting || c.Pos.Seq < state.LastSeq || c.EffectsSeq < c.Pos.Seq
	}
	return sum, waiting, nil
}
