package projector

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// MaxShards bounds the shards of a ledger.
const MaxShards = 64

// ErrInitialized says that the tables belong to a ledger already.
var ErrInitialized = errors.New("the tables belong to a ledger already")

// A Meta says which ledger the tables belong to: the row of ledger_meta.
type Meta struct {
	Stream string // the stream's name
	Prefix string // nats.subject_prefix
	Shards int    // fixed for good
}

// Initialize makes migrated, empty tables the tables of a ledger: it writes
// ledger_meta and the checkpoints before the first entry. Tables that belong to
// a ledger are ErrInitialized.
func Initialize(ctx context.Context, pool *pgxpool.Pool, m Meta) error {
	if m.Shards < 1 || m.Shards > MaxShards {
		return fmt.Errorf("%d shards; expected 1 to %d", m.Shards, MaxShards)
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO ledger.ledger_meta (id, stream_name, subject_prefix, shards, created_at)"+
			" VALUES (1, $1, $2, $3, now())", m.Stream, m.Prefix, int64(m.Shards))
		if err != nil {
			return err
		}
		var generation string
		var epoch int64
		err = tx.QueryRow(ctx, "SELECT a.name, a.epoch FROM ledger.active AS a WHERE a.id = 1").Scan(&generation, &epoch)
		if err != nil {
			return err
		}
		return insertCheckpoints(ctx, tx, generation, m.Shards, epoch)
	})
	if isUnique(err) {
		return ErrInitialized
	}
	if err != nil {
		return fmt.Errorf("write ledger_meta and the checkpoints: %w", err)
	}
	return nil
}

// ReadMeta returns which ledger the tables belong to; ok is false if they were
// migrated but never initialized.
func ReadMeta(ctx context.Context, pool *pgxpool.Pool) (m Meta, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	err = pool.QueryRow(ctx, "SELECT m.stream_name, m.subject_prefix, m.shards FROM ledger.ledger_meta AS m WHERE m.id = 1").
		Scan(&m.Stream, &m.Prefix, &m.Shards)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, false, nil
	}
	if err != nil {
		return m, false, fmt.Errorf("read ledger_meta: %w", err)
	}
	return m, true, nil
}
