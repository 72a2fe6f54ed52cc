package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"jobledger/internal/natsserver"
	"jobledger/internal/pgserver"
	"jobledger/internal/stream"
	"jobledger/ledger"
	"jobledger/projector"
	"jobledger/publisher"
	"jobledger/schema"
	"jobledger/workers"
)

// bench is the stack of a run.
type bench struct {
	o      Options
	stops  []func() error // run in reverse
	pool   *pgxpool.Pool
	stream jetstream.Stream
	client *publisher.Client
	dir    string // of the stack's files
	url    string // of the NATS server
	// database is the URL of PostgreSQL's.
	database string
	// postgres is the process id of PostgreSQL's server.
	postgres int
	ended    atomic.Int64 // attempts that the worker has completed
	batches  atomic.Int64
	cancel   context.CancelFunc
	group    *errgroup.Group
}

func (b *bench) onStop(f func() error) { b.stops = append(b.stops, f) }

func (b *bench) stop() error {
	var errs []error
	if b.cancel != nil {
		b.cancel()
		if err := b.group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	for i := len(b.stops) - 1; i >= 0; i-- {
		errs = append(errs, b.stops[i]())
	}
	return errors.Join(errs...)
}

func bounded(f func(context.Context) error) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return f(ctx)
	}
}

// start brings the stack up.
func (b *bench) start(ctx context.Context) error {
	ns, err := b.servers(ctx)
	if err != nil {
		return err
	}
	return b.connect(ctx, ns)
}

// servers starts the two servers and makes the tables.
func (b *bench) servers(ctx context.Context) (*natsserver.Server, error) {
	dir, err := b.folder()
	if err != nil {
		return nil, err
	}
	b.dir = dir
	pg, err := pgserver.Start(ctx, pgserver.Options{Dir: filepath.Join(dir, "postgres"), Fsync: true, Log: b.o.Log})
	if err != nil {
		return nil, err
	}
	b.onStop(bounded(pg.Stop))
	b.postgres = pg.PID()
	ns, err := natsserver.Start(natsserver.Options{Dir: filepath.Join(dir, "nats"), SyncAlways: b.o.SyncAlways, Log: b.o.Log})
	if err != nil {
		return nil, err
	}
	b.onStop(bounded(ns.Stop))
	b.url, b.database = ns.URL(), pg.URL("postgres")
	if err := schema.Migrate(ctx, b.database, b.o.Log); err != nil {
		return nil, err
	}
	if b.pool, err = projector.NewPool(ctx, b.database, 0); err != nil {
		return nil, err
	}
	b.onStop(func() error { b.pool.Close(); return nil })
	return ns, projector.Initialize(ctx, b.pool, projector.Meta{Stream: streamName, Prefix: prefix, Shards: b.o.Shards})
}

func (b *bench) folder() (string, error) {
	if b.o.Dir != "" {
		return b.o.Dir, nil
	}
	dir, err := os.MkdirTemp("", "jobledger-bench-")
	if err != nil {
		return "", err
	}
	b.onStop(func() error { return os.RemoveAll(dir) })
	return dir, nil
}

// connect makes the connections and starts projector and worker.
func (b *bench) connect(ctx context.Context, ns *natsserver.Server) error {
	connect := func() (*nats.Conn, error) {
		nc, err := nats.Connect(b.url)
		if err == nil {
			b.onStop(func() error { nc.Close(); return nil })
		}
		return nc, err
	}
	var conns [3]*nats.Conn
	for i := range conns {
		var err error
		if conns[i], err = connect(); err != nil {
			return err
		}
	}
	js, err := jetstream.New(conns[0])
	if err != nil {
		return err
	}
	if b.stream, err = stream.Create(ctx, js, stream.Config(streamName, prefix, 1, 0)); err != nil {
		return err
	}
	var clients [3]*publisher.Client
	for i, nc := range conns {
		if clients[i], err = b.newClient(nc); err != nil {
			return err
		}
	}
	b.client = clients[0]
	p, err := projector.New(projector.Options{Pool: b.pool, Conn: conns[1], Stream: b.stream, Prefix: prefix,
		Appender: clients[1], Observer: b, Log: b.o.Log})
	if err != nil {
		return err
	}
	wjs, err := jetstream.New(conns[2])
	if err != nil {
		return err
	}
	w, err := workers.New(workers.Options{Provider: provider, Impl: noop{}, Concurrency: b.o.Concurrency, Ledger: clients[2],
		JetStream: wjs, Stream: streamName, SubjectPrefix: prefix, Name: "bench", Log: b.o.Log,
		Ended: func(string, ledger.Outcome, time.Duration) { b.ended.Add(1) }})
	if err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.group, run = errgroup.WithContext(run)
	b.group.Go(func() error { return p.Run(run) })
	b.group.Go(func() error { return w.Run(run) })
	return b.define(ctx)
}

func (b *bench) newClient(nc *nats.Conn) (*publisher.Client, error) {
	mode := publisher.Single // without an fsync for each, single publishes are cheaper than batches
	if b.o.SyncAlways {
		mode = publisher.Grouped
	}
	o := publisher.Options{Stream: streamName, SubjectPrefix: prefix, Mode: mode}
	a, err := publisher.NewAppender(nc, o)
	if err != nil {
		return nil, err
	}
	b.onStop(bounded(a.Close))
	c, err := publisher.NewClient(nc, a, 0)
	if err != nil {
		return nil, err
	}
	b.onStop(c.Close)
	return c, nil
}

// define appends the kind of the jobs.
func (b *bench) define(ctx context.Context) error {
	k := ledger.DefaultKind()
	k.Name, k.Providers, k.Effects = kindName, []string{provider}, ledger.EffectsNone
	for _, body := range []ledger.Body{&ledger.Rules{Rules: ledger.MaxRules}, &ledger.KindDefinition{Kind: k}} {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		a, err := b.client.Decide(ctx, body.Message())
		if err != nil {
			return err
		}
		if a.Decision != ledger.Accepted {
			return fmt.Errorf("%s: %s %s", body.Message().Subject, a.Decision, a.Detail)
		}
	}
	return nil
}

// Committed implements projector.Observer.
func (b *bench) Committed(r projector.CommitReport) {
	if len(r.Folded) > 0 {
		b.batches.Add(1)
	}
}
