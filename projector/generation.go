package projector

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The generations of tables.
const (
	generationA = "ledger_a"
	generationB = "ledger_b"
)

// clearRows is how many rows are deleted at a time: a statement must not grow
// with the history.
const clearRows = 5000

// errFenced says that another rebuild has taken the generation over.
var errFenced = errors.New("another rebuild has begun on the same tables")

func otherGeneration(name string) string {
	if name == generationA {
		return generationB
	}
	return generationA
}

// prepare makes the generation that is not live this rebuild's own: its
// checkpoints begin anew under an epoch of their own, which fences whoever
// wrote there before, and then its tables are emptied.
func (b *rebuild) prepare(ctx context.Context) error {
	s := &Store{pool: b.o.Pool, token: uuid.New(), bulk: true}
	err := inTx(ctx, b.o.Pool, func(ctx context.Context, tx pgx.Tx) error {
		s.tx = batchTx(tx.Conn())
		err := tx.QueryRow(ctx, "SELECT a.name, m.shards FROM ledger.active AS a, ledger.ledger_meta AS m"+
			" WHERE a.id = 1 AND m.id = 1 FOR UPDATE OF a").Scan(&b.from, &s.shards)
		if errors.Is(err, pgx.ErrNoRows) {
			return errors.New("the tables belong to no ledger yet; run jobledger init")
		}
		if err != nil {
			return err
		}
		s.generation = otherGeneration(b.from)
		return s.begin(ctx, tx)
	})
	if err != nil {
		return err
	}
	s.sql = makeStatements(s.generation)
	b.store, b.committed = s, make([]atomic.Uint64, s.shards)
	for _, t := range clearing {
		if err := s.clear(ctx, t.table, t.key); err != nil {
			return err
		}
	}
	return nil
}

// begin writes the checkpoints of a generation as those of an empty one.
func (s *Store) begin(ctx context.Context, tx pgx.Tx) error {
	var highest *int64
	err := tx.QueryRow(ctx, "SELECT max(c.epoch) FROM (SELECT a.epoch FROM ledger.active AS a"+
		" UNION ALL SELECT t.epoch FROM "+s.generation+".checkpoints AS t) AS c").Scan(&highest)
	if err != nil {
		return err
	}
	s.epoch = *highest + 1
	if _, err := tx.Exec(ctx, "DELETE FROM "+s.generation+".checkpoints WHERE shard >= 0"); err != nil {
		return err
	}
	return insertCheckpoints(ctx, tx, s.generation, s.shards, s.epoch)
}

// insertCheckpoints writes the checkpoints before the first entry.
func insertCheckpoints(ctx context.Context, tx pgx.Tx, generation string, shards int, epoch int64) error {
	zero := Position{}
	for shard := range shards {
		_, err := tx.Exec(ctx, "INSERT INTO "+generation+".checkpoints (shard, seq, chain, chain_prev, effects_seq, epoch, rules, updated_at)"+
			" VALUES ($1, 0, $2, $3, 0, $4, 0, now())", int64(shard), zero.Chain[:], zero.Prev[:], epoch)
		if err != nil {
			return err
		}
	}
	return nil
}

// clearing are the tables of a generation with their keys.
var clearing = []struct{ table, key string }{
	{"jobs", "id"}, {"attempts", "job_id, number"}, {"rejections", "bucket, seq"},
	{"kinds", "name, seq"}, {"providers", "name, seq"}, {"provider_verifications", "name, seq"},
}

// clear deletes all rows of a table, some at a time.
func (s *Store) clear(ctx context.Context, table, key string) error {
	name := s.generation + "." + table
	for {
		tag, err := s.pool.Exec(ctx, "DELETE FROM "+name+" WHERE ("+key+") IN (SELECT "+key+" FROM "+name+
			" ORDER BY "+key+" LIMIT $1)", int64(clearRows))
		if err != nil {
			return fmt.Errorf("empty %s: %w", name, err)
		}
		if tag.RowsAffected() == 0 {
			return nil
		}
	}
}

// Bounds of the switch.
const (
	switchPeriod = 50 * time.Millisecond
	// endPeriod is how often the stream's end is asked for while it is far.
	endPeriod = time.Second
	// switchNear is how many entries the new generation may be behind when the
	// old one is made to wait for it, and switchWait how long at most.
	switchNear = 2000
	switchWait = 2 * time.Second
)

// switchOver waits until the new generation is about where the stream ends and
// then makes it the live one. It returns errSwitched then.
func (b *rebuild) switchOver(ctx context.Context) error {
	tick := time.NewTicker(switchPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		near, err := b.near(ctx)
		if err != nil {
			return err
		}
		if !near {
			continue
		}
		b.catching.Store(true)
		err = b.trySwitch(ctx)
		if err == nil {
			return errSwitched
		}
		if !errors.Is(err, errNotThere) {
			return err
		}
	}
}

var (
	errSwitched = errors.New("the new generation is live")
	errNotThere = errors.New("the new generation is behind the live one")
)

// near reports whether all shards are nearly where the stream ends.
func (b *rebuild) near(ctx context.Context) (bool, error) {
	// The end only grows: far from the one that is known, it is asked for now and
	// then, for those who watch the progress.
	if b.least()+switchNear < b.end.Load() && time.Since(b.asked) < endPeriod {
		return false, nil
	}
	b.asked = time.Now()
	end, err := streamState(ctx, b.o.Stream, 0)
	if err != nil {
		return false, err
	}
	b.end.Store(max(b.end.Load(), end.LastSeq))
	return b.least()+switchNear >= end.LastSeq, nil
}

// trySwitch makes the new generation live in one transaction. The old one's
// checkpoints are locked, so that it stands still; the new one must have come
// as far on every shard, or readers would be sent back in time. It may be
// further: then what the old one had not done is done from effects_seq on.
func (b *rebuild) trySwitch(ctx context.Context) error {
	err := inTx(ctx, b.o.Pool, func(ctx context.Context, tx pgx.Tx) error {
		var name string
		var epoch int64
		err := tx.QueryRow(ctx, "SELECT a.name, a.epoch FROM ledger.active AS a WHERE a.id = 1 FOR UPDATE").Scan(&name, &epoch)
		if err != nil {
			return err
		}
		if name != b.from {
			return fmt.Errorf("%w: %s is live already", errFenced, name)
		}
		live, err := lockCheckpoints(ctx, tx, b.from)
		if err != nil {
			return err
		}
		if !b.await(ctx, live) {
			return errNotThere
		}
		mine, err := lockCheckpoints(ctx, tx, b.store.generation)
		if err != nil {
			return err
		}
		b.last = max(epoch, b.store.epoch) + 1
		return b.point(ctx, tx, live, mine, b.last)
	})
	if err == nil || errors.Is(err, errNotThere) || errors.Is(err, errFenced) {
		return err
	}
	return fmt.Errorf("make %s the live generation: %w", b.store.generation, err)
}

// await waits a little until every shard of the new generation is stored up to
// where the live one stands, and up to where the stream ended just now.
func (b *rebuild) await(ctx context.Context, live []lockedCheckpoint) bool {
	deadline := time.Now().Add(switchWait)
	for {
		there := true
		for i, c := range live {
			folded := b.committed[i].Load()
			there = there && folded >= b.end.Load() && (folded >= c.seq || b.o.AcceptStream)
		}
		switch {
		case there:
			return true
		case time.Now().After(deadline) || pause(ctx, 5*time.Millisecond) != nil:
			return false
		}
	}
}

// point moves the pointer that the views follow, and raises the epoch of both
// generations: writers of the old one are fenced by it, and this rebuild too.
func (b *rebuild) point(ctx context.Context, tx pgx.Tx, live, mine []lockedCheckpoint, epoch int64) error {
	for i, c := range mine {
		if c.epoch != b.store.epoch {
			return errFenced
		}
		done := min(live[i].effects, c.seq)
		if b.o.AcceptStream || live[i].seq == 0 { // the old tables know of no effects of this stream
			done = min(c.effects, c.seq) // but the stream tells which starts were appended
		}
		_, err := tx.Exec(ctx, "UPDATE "+b.store.generation+".checkpoints SET epoch = $1, effects_seq = $2, token = $3, updated_at = now()"+
			" WHERE shard = $4", epoch, int64(done), b.store.token, int64(i))
		if err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, "UPDATE "+b.from+".checkpoints SET epoch = $1 WHERE shard >= 0", epoch); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE ledger.active SET name = $1, epoch = $2, switched_at = now() WHERE id = 1",
		b.store.generation, epoch)
	return err
}

// A lockedCheckpoint is a checkpoint that cannot move until the transaction
// ends.
type lockedCheckpoint struct {
	seq, effects uint64
	epoch        int64
}

func lockCheckpoints(ctx context.Context, tx pgx.Tx, generation string) ([]lockedCheckpoint, error) {
	rows, err := tx.Query(ctx, "SELECT c.seq, c.effects_seq, c.epoch FROM "+generation+".checkpoints AS c ORDER BY c.shard FOR UPDATE")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c lockedCheckpoint, err error) {
		return c, row.Scan(&c.seq, &c.effects, &c.epoch)
	})
}

// inTx runs a short transaction with a deadline.
func inTx(ctx context.Context, pool *pgxpool.Pool, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{}, func(tx pgx.Tx) error { return do(ctx, tx) })
}
