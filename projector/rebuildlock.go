package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// lockWatch is how often a rebuild looks whether it still holds its lock.
	lockWatch = 2 * time.Second
	// lockIdle is how long the lock outlives a rebuild that says nothing any
	// more, in milliseconds: the machine that it ran on may be gone without a
	// word.
	lockIdle = "60000"
)

// A rebuildLock is the lock of rebuild_lock, held by an open transaction. On
// PostgreSQL it is the table's, because the lock of a row would give the
// transaction an id, and as long as that is open nothing that is deleted in any
// table is cleaned up; on CockroachDB, which has no locks of tables, it is that of
// its one row. It only makes a second rebuild say so at once: what keeps two
// from spoiling each other's tables is the epoch of the checkpoints.
type rebuildLock struct {
	conn *pgxpool.Conn
	tx   pgx.Tx
	busy chan struct{} // holds a token while the connection is free
}

func takeRebuildLock(ctx context.Context, pool *pgxpool.Pool) (*rebuildLock, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("rebuild: %w", err)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		conn.Release()
		return nil, fmt.Errorf("rebuild: %w", err)
	}
	l := &rebuildLock{conn: conn, tx: tx, busy: make(chan struct{}, 1)}
	l.busy <- struct{}{}
	lock := "LOCK TABLE ledger.rebuild_lock IN EXCLUSIVE MODE NOWAIT"
	if batchTx(conn.Conn()).BeginQuery == "" {
		lock = "SELECT l.id FROM ledger.rebuild_lock AS l WHERE l.id = 1 FOR UPDATE NOWAIT"
	}
	if _, err = tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = "+lockIdle); err == nil {
		_, err = tx.Exec(ctx, lock)
	}
	if err == nil {
		return l, nil
	}
	l.release()
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "55P03" {
		return nil, ErrRebuilding
	}
	return nil, fmt.Errorf("rebuild: take the lock: %w", err)
}

// watch ends the rebuild when the lock is lost.
func (l *rebuildLock) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(lockWatch)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-l.busy:
		}
		probe, done := context.WithTimeout(context.WithoutCancel(ctx), acquireTimeout)
		_, err := l.tx.Exec(probe, "SELECT 1")
		done()
		l.busy <- struct{}{}
		if err != nil {
			cancel(fmt.Errorf("the lock was lost with the connection that held it: %w", err))
			return
		}
	}
}

func (l *rebuildLock) release() {
	<-l.busy
	ctx, cancel := context.WithTimeout(context.Background(), acquireTimeout)
	defer cancel()
	if err := l.tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		// The connection is broken, and the lock is gone with it.
		_ = l.conn.Conn().Close(ctx)
	}
	l.conn.Release()
}
