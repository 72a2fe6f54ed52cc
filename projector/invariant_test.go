package projector

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv/ledgerenv"
)

// historyEntries is how long the histories of these tests are.
const historyEntries = 2000

// TestTablesEqualTheFold is I10: one stream, projected into several databases
// with other shards, batches, restarts and rivals, gives the same tables, cell
// by cell, and they are what Verify folds.
func TestTablesEqualTheFold(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	source := newWorld(t, 1)
	last := appendHistory(source, seed, historyEntries)
	stop := source.project(appendTo(silent{}))
	source.caughtUp(last)
	stop()
	source.verify()
	want := source.dump()
	for table, rows := range want {
		require.NotEmpty(t, rows, "the history reaches the table %s", table)
	}
	for _, c := range []struct {
		shards, batch, restarts, rivals int
	}{
		{shards: 1, batch: 7, restarts: 0, rivals: 0},
		{shards: 1, batch: 150, restarts: 12, rivals: 0},
		{shards: 2, batch: 300, restarts: 6, rivals: 0},
		{shards: 2, batch: 100, restarts: 8, rivals: 1},
		{shards: 5, batch: 90, restarts: 8, rivals: 1},
	} {
		t.Run(fmt.Sprintf("%d shards, %d restarts, %d rivals", c.shards, c.restarts, c.rivals), func(t *testing.T) {
			t.Parallel()
			w := source.onDatabase(t, ledgerenv.Database(t), c.shards)
			w.replay(rand.New(rand.NewPCG(seed, uint64(c.batch))), last, c.batch, c.restarts, c.rivals)
			for table, rows := range w.dump() {
				if rows != want[table] {
					require.Equal(t, firstDifference(want[table], rows), "", "table %s", table)
				}
			}
			w.verify()
		})
	}
}

// replay projects up to last in batches of at most batch entries, ends the
// projectors at random moments and starts others, with rivals beside them.
func (w *world) replay(rnd *rand.Rand, last uint64, batch, restarts, rivals int) {
	w.t.Helper()
	g := newGate()
	open := func() func() {
		return w.project(appendTo(silent{}), func(o *Options) { o.Stream = gatedStream{w.stream, g} })
	}
	var running []func()
	for range rivals + 1 {
		running = append(running, open())
	}
	for at := uint64(0); at < last; {
		at = min(last, at+1+uint64(rnd.IntN(batch)))
		g.open(at)
		if restarts == 0 || rnd.Uint64N(last) >= uint64(restarts*batch/2) {
			if rnd.IntN(3) == 0 {
				w.caughtUp(at)
			}
			continue
		}
		n := rnd.IntN(len(running)) // in the middle of things
		running[n]()
		running[n] = open()
		if rivals > 0 { // the new one works at once, whatever the others do
			w.caughtUp(at)
		}
	}
	w.caughtUp(last)
	for _, stop := range running {
		stop()
	}
}

func firstDifference(a, b string) string {
	want, got := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			return fmt.Sprintf("row %d:\nwant %.2000s\ngot  %.2000s", i, row(want, i), row(got, i))
		}
	}
	return ""
}

func row(rows []string, i int) string {
	if i < len(rows) {
		return rows[i]
	}
	return "(none)"
}
