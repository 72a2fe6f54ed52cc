package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"jobledger/internal/config"
	"jobledger/projector"
)

// A direct is a command's own way to a ledger: its stream and its tables.
type direct struct {
	*link
	*tables
	cfg *config.Config
}

// tables are a command's way to the tables alone.
type tables struct {
	pool    *pgxpool.Pool
	queries *projector.Queries
	meta    projector.Meta
}

const (
	commandConnections = 8
	tablesTimeout      = 10 * time.Second
)

// direct connects to the ledger. Which stream it is the tables tell.
func (c *cli) direct(ctx context.Context) (*direct, error) {
	target, cfg, err := c.target()
	if err != nil {
		return nil, err
	}
	t, err := openTables(ctx, target)
	if err != nil {
		return nil, err
	}
	l, err := openLink(target.nats, t.meta.Stream, t.meta.Prefix, "jobledger cli", c.log, commandTrace)
	if err != nil {
		t.pool.Close()
		return nil, err
	}
	return &direct{l, t, cfg}, nil
}

// tables connects to the tables.
func (c *cli) tables(ctx context.Context) (*tables, error) {
	target, _, err := c.target()
	if err != nil {
		return nil, err
	}
	return openTables(ctx, target)
}

func openTables(ctx context.Context, t target) (*tables, error) {
	if err := t.needDatabase(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, tablesTimeout)
	defer cancel()
	pool, err := projector.NewPool(ctx, t.database, commandConnections)
	if err != nil {
		return nil, exitWith(exitUnreachable, "open the database: %w", err)
	}
	meta, ok, err := projector.ReadMeta(ctx, pool)
	if err == nil && !ok {
		err = exitWith(exitRefused, "the tables belong to no ledger yet; run jobledger init")
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &tables{pool, projector.NewQueries(pool), meta}, nil
}

// close ends the connections.
func (d *direct) close() error {
	err := d.link.close()
	d.pool.Close()
	return err
}

// closeLogged is close for where the command's outcome is settled already.
func (d *direct) closeLogged(log *slog.Logger) {
	if err := d.close(); err != nil && !errors.Is(err, context.Canceled) {
		log.Debug("the connections were not closed cleanly", "error", err)
	}
}
