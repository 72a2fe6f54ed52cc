package projector

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// columnOf is a column of a table as the database describes it.
type columnOf struct {
	Table, Name, Type string
	Nullable          bool
}

// changes are, by type, expressions that give another value than the column's.
var changes = map[string]string{
	"uuid":                     "gen_random_uuid()",
	"text":                     "COALESCE(%s, '') || 'x'",
	"bigint":                   "COALESCE(%s, 0) + 100000",
	"boolean":                  "NOT COALESCE(%s, false)",
	"bytea":                    "COALESCE(%s, ''::bytea) || '\\x00'::bytea",
	"timestamp with time zone": "COALESCE(%s, now()) + '1 us'::interval",
	"jsonb":                    "jsonb_build_array(%s)",
	"ARRAY":                    "array_append(%s, 999999)",
}

// TestVerifyFindsEveryChange changes a cell in each column of each table in
// turn, and rows, and each time Verify must say exactly that.
func TestVerifyFindsEveryChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	last := appendHistory(w, rand.Uint64(), 500)
	stop := w.project(appendTo(silent{}))
	w.caughtUp(last)
	stop()
	w.verify()
	w.dropChecks()
	c := w.corruptor()
	columns := w.columns()
	require.Greater(t, len(columns), 90)
	for _, col := range columns {
		other, ok := changes[col.Type]
		require.True(t, ok, "a change for type %s", col.Type)
		if strings.Contains(other, "%s") {
			other = fmt.Sprintf(other, "t."+col.Name)
		}
		c.finds(col, "UPDATE ledger_a."+col.Table+" AS t SET "+col.Name+" = "+other+" WHERE "+c.one(col, "true"))
		if col.Nullable {
			c.finds(col, "UPDATE ledger_a."+col.Table+" AS t SET "+col.Name+" = NULL WHERE "+c.one(col, col.Name+" IS NOT NULL"))
		}
	}
	for table := range tables {
		row := columnOf{Table: table}
		c.finds(row, "DELETE FROM ledger_a."+table+" AS t WHERE "+c.one(row, "true"))
	}
	c.finds(columnOf{Table: "rejections"}, "INSERT INTO ledger_a.rejections (bucket, seq, at, entry, decision, reason)"+
		" VALUES (1, 1000001, now(), 'job.request', 'refused', 'unknown_kind')")
	c.finds(columnOf{Table: "kinds"}, "INSERT INTO ledger_a.kinds SELECT t.name || 'x', t.seq, t.definition, t.digest, t.at, t.actor"+
		" FROM ledger_a.kinds AS t ORDER BY t.seq LIMIT 1")
	c.swap()
}

// TestVerifyLooksAtCheckpoints: what cannot be compared with rows fits the
// stream, or Verify says that it does not.
func TestVerifyLooksAtCheckpoints(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	last := appendHistory(w, rand.Uint64(), 100)
	stop := w.project(appendTo(silent{}))
	w.caughtUp(last)
	stop()
	w.verify()
	w.dropChecks()
	for _, set := range []string{
		"seq = seq - 1", "seq = seq + 1", `chain = '\x00'`, `chain_prev = '\x00'`, "epoch = epoch + 1", "rules = 0", "shard = 2",
	} {
		before := w.whole()
		_, err := w.pool.Exec(w.ctx(), "CREATE TABLE ledger_a.kept AS SELECT * FROM ledger_a.checkpoints")
		require.NoError(t, err)
		_, err = w.pool.Exec(w.ctx(), "UPDATE ledger_a.checkpoints SET "+set+" WHERE shard = 1")
		require.NoError(t, err)
		r, err := Verify(w.ctx(), VerifyOptions{Pool: w.pool, Stream: w.stream, Prefix: w.prefix})
		require.True(t, err != nil || r.Found > 0, set)
		for _, sql := range []string{
			"DELETE FROM ledger_a.checkpoints", "INSERT INTO ledger_a.checkpoints SELECT * FROM ledger_a.kept", "DROP TABLE ledger_a.kept",
		} {
			_, err = w.pool.Exec(w.ctx(), sql)
			require.NoError(t, err)
		}
		require.Equal(t, before, w.whole())
	}
	_, err := w.pool.Exec(w.ctx(), "DELETE FROM ledger_a.checkpoints WHERE shard = 1")
	require.NoError(t, err)
	_, err = Verify(w.ctx(), VerifyOptions{Pool: w.pool, Stream: w.stream, Prefix: w.prefix})
	require.ErrorContains(t, err, "checkpoint")
}

// TestVerifyOfNothing: an empty ledger is as it should be.
func TestVerifyOfNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.verify()
	_, err := w.pool.Exec(w.ctx(), "INSERT INTO ledger_a.rejections (bucket, seq, at, entry, decision, reason)"+
		" VALUES (1, 1, now(), 'job.request', 'refused', 'unknown_kind')")
	require.NoError(t, err)
	require.Equal(t, 1, w.compare().Found)
}

// dropChecks lets a test write what the database would refuse.
func (w *world) dropChecks() {
	w.t.Helper()
	rows, err := w.pool.Query(w.ctx(), "SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', c.conrelid::regclass, c.conname)"+
		" FROM pg_constraint AS c WHERE c.contype = 'c' AND c.connamespace = 'ledger_a'::regnamespace")
	require.NoError(w.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	for _, sql := range list {
		_, err := w.pool.Exec(w.ctx(), sql)
		require.NoError(w.t, err)
	}
}

// columns lists the columns of the projected tables.
func (w *world) columns() []columnOf {
	w.t.Helper()
	rows, err := w.pool.Query(w.ctx(), "SELECT table_name, column_name, data_type, is_nullable = 'YES' FROM information_schema.columns"+
		" WHERE table_schema = 'ledger_a' AND table_name <> 'checkpoints' ORDER BY table_name, ordinal_position")
	require.NoError(w.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[columnOf])
	require.NoError(w.t, err)
	return list
}

// A corruptor changes tables within transactions that it takes back, and lets
// a verifier that has folded the stream compare them.
type corruptor struct {
	w      *world
	folded *verifier
	gen    string
}

func (w *world) corruptor() *corruptor {
	w.t.Helper()
	store, err := OpenStore(w.ctx(), w.pool)
	require.NoError(w.t, err)
	points, err := store.Checkpoints(w.ctx(), false)
	require.NoError(w.t, err)
	v := &verifier{o: VerifyOptions{Stream: w.stream, Prefix: w.prefix, MaxDifferences: 9, Log: slog.New(slog.DiscardHandler)}, report: &VerifyReport{}}
	require.NoError(w.t, v.fold(w.ctx(), points))
	return &corruptor{w, v, store.generation}
}

// one selects a random row of a column's table, among those with a condition.
func (c *corruptor) one(col columnOf, where string) string {
	key := strings.ReplaceAll(tables[col.Table], ", ", ", u.")
	return fmt.Sprintf("(%s) = (SELECT u.%s FROM ledger_a.%s AS u WHERE %s ORDER BY random() LIMIT 1)", tables[col.Table], key, col.Table, where)
}

// after returns what is found after a change. ok is false if there was nothing
// to be changed.
func (c *corruptor) after(sql string) (found []Difference, ok bool) {
	c.w.t.Helper()
	ctx := c.w.ctx()
	tx, err := c.w.pool.Begin(ctx)
	require.NoError(c.w.t, err)
	defer func() { require.NoError(c.w.t, tx.Rollback(ctx)) }()
	tag, err := tx.Exec(ctx, sql)
	require.NoError(c.w.t, err, sql)
	c.folded.report = &VerifyReport{}
	require.NoError(c.w.t, c.folded.compare(ctx, tx, c.gen))
	return c.folded.report.Differences, tag.RowsAffected() > 0
}

// finds requires that a change is found, where it was made.
func (c *corruptor) finds(col columnOf, sql string) {
	c.w.t.Helper()
	found, ok := c.after(sql)
	if !ok { // nothing but NULL in the column
		return
	}
	require.NotEmpty(c.w.t, found, sql)
	require.LessOrEqual(c.w.t, len(found), 2, "%s: %v", sql, found)
	for _, d := range found {
		require.Equal(c.w.t, col.Table, d.Table)
		if len(found) == 1 { // a changed key is a row too many and one too few
			require.Equal(c.w.t, col.Name, d.Column, sql)
			require.NotEqual(c.w.t, d.Want, d.Got)
		}
		require.NotEmpty(c.w.t, d.String())
	}
}

// swap exchanges the results of two jobs.
func (c *corruptor) swap() {
	c.w.t.Helper()
	found, ok := c.after("UPDATE ledger_a.jobs AS t SET result = s.other FROM (" +
		"SELECT a.id, b.result AS other, b.id AS from_id, a.result AS mine FROM ledger_a.jobs AS a, ledger_a.jobs AS b" +
		" WHERE a.result <> b.result ORDER BY a.id, b.id LIMIT 1) AS p," +
		" LATERAL (VALUES (p.id, p.other), (p.from_id, p.mine)) AS s (id, other) WHERE t.id = s.id")
	require.True(c.w.t, ok, "two jobs with other results")
	require.Len(c.w.t, found, 2)
	for _, d := range found {
		require.Equal(c.w.t, "result", d.Column)
	}
}
