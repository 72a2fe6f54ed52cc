package projector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
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
	last := appendHistory(w, rand.Uint64(), 400)
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
	c.rows()
	c.seqs()
	for _, column := range []string{"input", "result", "seqs"} {
		c.swap(column)
	}
}

// rows deletes and adds rows.
func (c *corruptor) rows() {
	c.w.t.Helper()
	for table := range tables {
		row := columnOf{Table: table}
		c.finds(row, "DELETE FROM ledger_a."+table+" AS t WHERE "+c.one(row, "true"))
	}
	for table, sql := range map[string]string{
		"rejections": "INSERT INTO ledger_a.rejections (bucket, seq, at, entry, decision, reason)" +
			" VALUES (1, 1000001, now(), 'job.request', 'refused', 'unknown_kind')",
		"kinds": "INSERT INTO ledger_a.kinds SELECT t.name || 'x', t.seq, t.definition, t.digest, t.at, t.actor" +
			" FROM ledger_a.kinds AS t ORDER BY t.seq LIMIT 1",
		"jobs": c.copied("jobs", map[string]string{"id": "gen_random_uuid()", "idempotency_key": "'another'"}),
		// An attempt of a job that there is, of one that a row too many is of, and of none.
		"attempts":                c.copied("attempts", map[string]string{"number": "t.number + 1000"}),
		"attempts, of no job":     c.copied("attempts", map[string]string{"job_id": "gen_random_uuid()"}),
		"attempts, number 0":      c.copied("attempts", map[string]string{"number": "0"}),
		"rejections, in a window": c.copied("rejections", map[string]string{"bucket": "(t.bucket + 1) % 16"}),
		"rejections, in none":     c.copied("rejections", map[string]string{"bucket": "t.bucket - 16"}),
		"rejections, before all":  c.copied("rejections", map[string]string{"seq": "-5"}),
		"providers":               c.copied("providers", map[string]string{"seq": "1000001"}),
		"provider_verifications":  c.copied("provider_verifications", map[string]string{"name": "t.name || 'x'"}),
	} {
		found, ok := c.after(sql)
		require.True(c.w.t, ok, sql)
		require.Len(c.w.t, found, 1, sql)
		table, _, _ := strings.Cut(table, ",")
		require.Equal(c.w.t, table, found[0].Table)
		require.Equal(c.w.t, "no row", found[0].Want)
		require.NotEmpty(c.w.t, found[0].Entries)
	}
	// One too many for one too few in the same table: counts agree, keys do not.
	job := columnOf{Table: "jobs"}
	found, _ := c.after("DELETE FROM ledger_a.jobs AS t WHERE "+c.one(job, "true"),
		c.copied("jobs", map[string]string{"id": "gen_random_uuid()", "idempotency_key": "'another'"}))
	require.Len(c.w.t, found, 2)
	found, _ = c.after("DELETE FROM ledger_a.jobs", "DELETE FROM ledger_a.attempts")
	require.Len(c.w.t, found, 9)
}

// copied inserts a copy of a row with some columns changed.
func (c *corruptor) copied(table string, set map[string]string) string {
	var names, values []string
	for _, col := range c.w.columns() {
		if col.Table != table {
			continue
		}
		names = append(names, col.Name)
		if v, ok := set[col.Name]; ok {
			values = append(values, v)
		} else {
			values = append(values, "t."+col.Name)
		}
	}
	return "INSERT INTO ledger_a." + table + " (" + strings.Join(names, ", ") + ") SELECT " + strings.Join(values, ", ") +
		" FROM ledger_a." + table + " AS t WHERE " + c.one(columnOf{Table: table}, "true")
}

// seqs makes rows claim other entries than those that touched them.
func (c *corruptor) seqs() {
	c.w.t.Helper()
	for _, table := range []string{"jobs", "attempts"} {
		col := columnOf{Table: table, Name: "seqs"}
		for _, other := range []string{
			"t.seqs[:array_length(t.seqs, 1) - 1]", // without the last one
			"'{}'",                                 // none
			"t.seqs[:1]",                           // the first only
			"array_append(t.seqs, t.seqs[array_length(t.seqs, 1)] + 1)", // one that touched it not
			"array_append(t.seqs, (SELECT max(p.seq) FROM ledger_a.checkpoints AS p))",
			"array_append(t.seqs, (SELECT max(p.seq) + 1 FROM ledger_a.checkpoints AS p))",
			"array_append(t.seqs, -1)",
			"array_prepend(1, t.seqs)",
		} {
			c.finds(col, "UPDATE ledger_a."+table+" AS t SET seqs = "+other+" WHERE "+
				c.one(col, "array_length(u.seqs, 1) > 1"))
		}
	}
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

// A corruptor changes tables within transactions that it takes back, and
// verifies them there: with no job leaving memory before the end, and with every
// one leaving as soon as can be. Both must find the same.
type corruptor struct {
	w   *world
	raw []storedEntry
}

// A storedEntry is an entry as the stream has it.
type storedEntry struct {
	at      time.Time
	subject string
	data    []byte
}

func (w *world) corruptor() *corruptor {
	w.t.Helper()
	c := &corruptor{w: w}
	for seq := uint64(1); seq <= w.last(); seq++ {
		m, err := w.stream.GetMsg(w.ctx(), seq)
		require.NoError(w.t, err)
		c.raw = append(c.raw, storedEntry{m.Time, strings.TrimPrefix(m.Subject, w.prefix+"."), m.Data})
	}
	return c
}

// read is a source: the stream, but without its server.
func (c *corruptor) read(ctx context.Context, shards []chan chunk) error {
	const size = 100
	for from := 0; from < len(c.raw); from += size {
		chunks := make([]chunk, len(shards))
		to := min(from+size, len(c.raw))
		for i := from; i < to; i++ {
			e := ledger.Decode(uint64(i+1), c.raw[i].at, c.raw[i].subject, c.raw[i].data)
			first, last := shardsOf(e, len(shards))
			for s := first; s <= last; s++ {
				chunks[s].items = append(chunks[s].items, item{entry: e})
			}
		}
		for s := range shards {
			chunks[s].pos.Seq = uint64(to)
			select {
			case shards[s] <- chunks[s]:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// greedy are limits under which jobs leave memory nearly at once.
var greedy = verifyLimits{jobs: 0, batch: 8, step: 20, suspects: 1000, rejections: 3, window: 30, candidates: 100}

// one selects a random row of a column's table, among those with a condition.
func (c *corruptor) one(col columnOf, where string) string {
	key := strings.ReplaceAll(tables[col.Table], ", ", ", u.")
	return fmt.Sprintf("(%s) = (SELECT u.%s FROM ledger_a.%s AS u WHERE %s ORDER BY random() LIMIT 1)", tables[col.Table], key, col.Table, where)
}

// after returns what is found after some changes. ok is false if one of them
// changed nothing.
func (c *corruptor) after(changes ...string) (found []Difference, ok bool) {
	c.w.t.Helper()
	ctx := c.w.ctx()
	tx, err := c.w.pool.Begin(ctx)
	require.NoError(c.w.t, err)
	defer func() { require.NoError(c.w.t, tx.Rollback(ctx)) }()
	ok = true
	for _, sql := range changes {
		tag, err := tx.Exec(ctx, sql)
		require.NoError(c.w.t, err, sql)
		ok = ok && tag.RowsAffected() > 0
	}
	report := c.verify(tx, defaultVerifyLimits)
	require.Equal(c.w.t, report, c.verify(tx, greedy), "%q, with jobs that leave memory", changes)
	require.Len(c.w.t, report.Differences, min(report.Found, 9))
	return report.Differences, ok
}

func (c *corruptor) verify(tx pgx.Tx, limits verifyLimits) *VerifyReport {
	c.w.t.Helper()
	ctx := c.w.ctx()
	v, err := newVerifier(ctx, VerifyOptions{MaxDifferences: 9}, tx)
	require.NoError(c.w.t, err)
	v.limits, v.source = limits, c.read
	require.NoError(c.w.t, v.run(ctx))
	return v.report
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

// swap exchanges a column of two jobs.
func (c *corruptor) swap(column string) {
	c.w.t.Helper()
	found, ok := c.after("UPDATE ledger_a.jobs AS t SET " + column + " = s.other FROM (" +
		"SELECT a.id, b." + column + " AS other, b.id AS from_id, a." + column + " AS mine FROM ledger_a.jobs AS a, ledger_a.jobs AS b" +
		" WHERE a." + column + " <> b." + column + " ORDER BY a.id, b.id LIMIT 1) AS p," +
		" LATERAL (VALUES (p.id, p.other), (p.from_id, p.mine)) AS s (id, other) WHERE t.id = s.id")
	require.True(c.w.t, ok, "two jobs with other values of %s", column)
	require.Len(c.w.t, found, 2)
	for _, d := range found {
		require.Equal(c.w.t, column, d.Column)
		require.NotEmpty(c.w.t, d.Entries)
	}
}
