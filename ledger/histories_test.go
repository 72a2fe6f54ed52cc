package ledger_test

import (
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"jobledger/ledger"
)

var (
	historiesFlag = flag.Int("histories", historiesByDefault, "how many histories TestHistories generates")
	shrinkFlag    = flag.Bool("histories.shrink", true, "make a failing history small before it is printed")
	seedFlag      = flag.Uint64("histories.seed", 1, "seed of the first of TestHistories' histories")
)

// TestHistories generates histories of a careless world and holds the fold
// against its naive twin, the invariants of the design, and what must hold
// between different ways of folding the same entries. A failing history is
// made small before it is printed.
func TestHistories(t *testing.T) {
	t.Parallel()
	moves := &moveCounts{counts: map[string]int{}}
	total := *historiesFlag
	t.Run("worlds", func(t *testing.T) {
		for i := range profiles {
			t.Run(profiles[i].name, func(t *testing.T) {
				t.Parallel()
				liveThrough(t, &profiles[i], total, moves)
			})
		}
	})
	if t.Failed() {
		return
	}
	fmt.Fprint(os.Stdout, moves.table())
	for move, n := range moves.counts {
		if total >= fullCoverage && n < leastMoves {
			t.Errorf("%d histories made the move %q %d times; at least %d are expected", total, move, n, leastMoves)
		}
	}
}

// From fullCoverage histories on, each move of the tables must have been made
// leastMoves times. Fewer say nothing about rare moves.
const (
	fullCoverage = 10_000
	leastMoves   = 100
)

// liveThrough generates a profile's share of the histories.
func liveThrough(t *testing.T, p *profile, total int, moves *moveCounts) {
	coverage := ledger.NewCoverage()
	entries := 0
	for i := range max(total*p.share/100, 1) {
		seed := *seedFlag<<32 + uint64(i)
		if moves.failed.Load() {
			return // one failure at a time is enough to look at
		}
		w := newWorld(seed, p, coverage)
		if err := w.live(); err != nil {
			moves.failed.Store(true)
			fatalHistory(t, w.said, seed, err)
		}
		entries += len(w.said)
	}
	moves.add(coverage, max(total*p.share/100, 1), entries)
}

// fatalHistory reports a history that fails, as small as it can be made.
func fatalHistory(t *testing.T, h history, seed uint64, err error) {
	t.Helper()
	if !*shrinkFlag {
		t.Fatalf("seed %d: %v", seed, err)
	}
	small := shrink(h, seed)
	t.Fatalf("seed %d: %v\n\nmade small:\n%v\n%v", seed, err, replay(small, seed), small)
}

// moveCounts sums up coverages.
type moveCounts struct {
	sync.Mutex
	counts             map[string]int
	histories, entries int
	failed             atomic.Bool
}

func (m *moveCounts) add(c *ledger.Coverage, histories, entries int) {
	m.Lock()
	defer m.Unlock()
	m.histories += histories
	m.entries += entries
	c.Each(func(move string, n int) { m.counts[move] += n })
}

// table shows how often each move was made.
func (m *moveCounts) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d histories with %d entries made these moves:\n", m.histories, m.entries)
	names := make([]string, 0, len(m.counts))
	for name := range m.counts {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(&b, "%9d  %s\n", m.counts[name], name)
	}
	return b.String()
}
