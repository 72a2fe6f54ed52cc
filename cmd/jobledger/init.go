package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"jobledger/internal/config"
	"jobledger/internal/stream"
	"jobledger/ledger"
	"jobledger/projector"
	"jobledger/schema"
	"jobledger/workers/presence"
)

type initOptions struct {
	replicas int
	maxBytes int64
	shards   int
	// tablesOnly is for a ledger whose database was lost: its stream is there.
	tablesOnly bool
}

// initWait bounds the making of a ledger, migrations apart.
const initWait = time.Minute

func (c *cli) initCommand() *cobra.Command {
	var o initOptions
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create a ledger: the stream, and the tables in the database",
		Long: "Create a ledger: the stream, and the tables in the database. Neither may exist as a ledger's already.\n" +
			"With --tables-only the stream must exist, and is left as it is: the ledger's database was lost, and new\n" +
			"tables are to be folded from the stream, by jobledger rebuild or, more slowly, by serve.",
		Args: cobra.NoArgs,
		RunE: ran(func(ctx context.Context, _ []string) error { return c.init(ctx, o) }),
	}
	f := cmd.Flags()
	f.IntVar(&o.replicas, "replicas", 1, "servers that keep the stream: 1, 3 or 5")
	f.Int64Var(&o.maxBytes, "max-bytes", 0, "bytes at which the stream refuses new entries; 0: no limit")
	f.IntVar(&o.shards, "shards", 1, fmt.Sprintf("parts of the projection that work side by side, 1 to %d; fixed for good", projector.MaxShards))
	f.BoolVar(&o.tablesOnly, "tables-only", false, "make tables for the stream that exists already: its database was lost (see docs/runbook.md)")
	cmd.MarkFlagsMutuallyExclusive("tables-only", "replicas")
	cmd.MarkFlagsMutuallyExclusive("tables-only", "max-bytes")
	return cmd
}

func (c *cli) init(ctx context.Context, o initOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	t, cfg, err := c.target()
	if err != nil {
		return err
	}
	if err := t.needDatabase(); err != nil {
		return err
	}
	f, err := openFoundation(ctx, t, cfg, c.log)
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.create(ctx, o); err != nil {
		return err
	}
	if c.output == "json" {
		made := map[string]any{
			"stream": f.meta.Stream, "subject_prefix": f.meta.Prefix, "shards": o.shards, "schema": schema.Target(),
		}
		if !o.tablesOnly {
			made["replicas"], made["max_bytes"] = o.replicas, o.maxBytes
		}
		return c.printJSON(made)
	}
	if o.tablesOnly {
		_, err = fmt.Fprintf(c.stdout, "created tables for the stream %s (subjects %s.…), with %d shards; they are empty: run jobledger rebuild\n",
			f.meta.Stream, f.meta.Prefix, o.shards)
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "created the stream %s (subjects %s.…) and its tables, with %d shards\n", f.meta.Stream, f.meta.Prefix, o.shards)
	return err
}

func (o initOptions) check() error {
	switch {
	case o.replicas != 1 && o.replicas != 3 && o.replicas != 5:
		return exitWith(exitUsage, "--replicas is %d; expected 1, 3 or 5", o.replicas)
	case o.maxBytes < 0:
		return exitWith(exitUsage, "--max-bytes is %d; expected 0 or more", o.maxBytes)
	case o.shards < 1 || o.shards > projector.MaxShards:
		return exitWith(exitUsage, "--shards is %d; expected 1 to %d", o.shards, projector.MaxShards)
	}
	return nil
}

// A foundation is what a ledger stands on: its stream and its tables, either of
// which may be missing.
type foundation struct {
	log  *slog.Logger
	link *link
	pool *pgxpool.Pool
	meta projector.Meta // as the configuration says

	stream   jetstream.Stream // nil: there is none
	tables   projector.Meta
	isLedger bool // the tables belong to a ledger: tables says which
}

// openFoundation connects, brings the schema up to date, and looks at what is
// there.
func openFoundation(ctx context.Context, t target, cfg *config.Config, log *slog.Logger) (*foundation, error) {
	meta := projector.Meta{Stream: cfg.NATS.Stream, Prefix: cfg.NATS.SubjectPrefix}
	l, err := openLink(t.nats, meta.Stream, meta.Prefix, "jobledger init", log)
	if err != nil {
		return nil, err
	}
	f := &foundation{log: log, link: l, meta: meta}
	if err := f.look(ctx, t.database); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (f *foundation) look(ctx context.Context, databaseURL string) error {
	if err := schema.Migrate(ctx, databaseURL, f.log); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, initWait)
	defer cancel()
	var err error
	if f.pool, err = projector.NewPool(ctx, databaseURL, 2); err != nil {
		return err
	}
	if f.tables, f.isLedger, err = projector.ReadMeta(ctx, f.pool); err != nil {
		return err
	}
	f.stream, err = stream.Open(ctx, f.link.js, f.meta.Stream, f.meta.Prefix)
	if errors.Is(err, stream.ErrMissing) {
		f.stream, err = nil, nil
	}
	return err
}

func (f *foundation) close() error {
	err := f.link.close()
	if f.pool != nil {
		f.pool.Close()
	}
	return err
}

// create makes stream and tables where there are none, and refuses both to
// adopt and to repair: whoever runs init may have the wrong server.
func (f *foundation) create(ctx context.Context, o initOptions) error {
	switch {
	case f.isLedger:
		return exitWith(exitRefused, "the database holds the tables of the ledger %s (subjects %s.…) already; use another database", f.tables.Stream, f.tables.Prefix)
	case o.tablesOnly && f.stream == nil:
		return exitWith(exitRefused, "there is no stream %s to make tables for; restore it from a backup, or correct nats.url and nats.stream", f.meta.Stream)
	case !o.tablesOnly && f.stream != nil:
		return exitWith(exitRefused, "the stream %s exists already; give another nats.stream and nats.subject_prefix,"+
			" or, if this ledger's database was lost, use --tables-only", f.meta.Stream)
	}
	return f.fill(ctx, o)
}

// fill makes what is missing: the stream, the bucket of the workers' presence,
// the stream's first entry, the tables' first row. It can be repeated after a crash.
func (f *foundation) fill(ctx context.Context, o initOptions) error {
	ctx, cancel := context.WithTimeout(ctx, initWait)
	defer cancel()
	if f.stream == nil {
		s, err := stream.Create(ctx, f.link.js, stream.Config(f.meta.Stream, f.meta.Prefix, o.replicas, o.maxBytes))
		if err != nil {
			return fmt.Errorf("create the stream: %w", err)
		}
		f.stream = s
	}
	if err := presence.Create(ctx, f.link.js, f.meta.Stream, o.replicas); err != nil {
		f.log.Warn("work goes on without it: attempts of workers that die become unknown at their deadlines only", "error", err)
	}
	info, err := f.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("look at the stream: %w", err)
	}
	if info.State.LastSeq == 0 {
		rules := &ledger.Rules{Rules: ledger.MaxRules, Actor: actor()}
		if _, err := f.link.client.Append(ctx, rules.Message()); err != nil {
			return fmt.Errorf("append the first entry, which sets the rules: %w", err)
		}
	}
	if f.isLedger {
		return nil
	}
	f.meta.Shards = o.shards
	f.tables, f.isLedger = f.meta, true
	return projector.Initialize(ctx, f.pool, f.meta)
}

// ensureLedger makes the ledger of a dev stack on its first start, and finds it
// on later ones.
func ensureLedger(ctx context.Context, t target, cfg *config.Config, o initOptions, log *slog.Logger) (projector.Meta, error) {
	f, err := openFoundation(ctx, t, cfg, log)
	if err != nil {
		return projector.Meta{}, err
	}
	if f.isLedger && (f.tables.Stream != f.meta.Stream || f.tables.Prefix != f.meta.Prefix) {
		err = otherLedger(f.tables, f.meta)
	} else if f.isLedger && f.stream == nil {
		err = exitWith(exitRefused, "the tables are those of the stream %s, which is gone: restore it, or start with a new data directory", f.tables.Stream)
	} else {
		err = f.fill(ctx, o)
	}
	return f.tables, errors.Join(err, f.close())
}

// otherLedger says that the tables are not those of the configured ledger.
func otherLedger(found, expected projector.Meta) error {
	return exitWith(exitRefused, "the tables are those of the stream %s (subjects %s.…), but the configuration names %s (%s.…): correct nats.stream and nats.subject_prefix, or the database",
		found.Stream, found.Prefix, expected.Stream, expected.Prefix)
}
