package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// tick is the unit in which Linux counts a process's CPU time, on every
// architecture that Go knows.
const tick = 10 * time.Millisecond

// cpuTime returns the CPU time that this process and PostgreSQL have taken; 0
// where the system does not tell.
func (b *bench) cpuTime() time.Duration {
	self, _, _ := processTime("/proc/self/stat")
	server, children, _ := processTime(filepath.Join("/proc", strconv.Itoa(b.postgres), "stat"))
	all := self + server + children // those that have ended
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	for _, path := range stats {
		if own, _, parent := processTime(path); parent == b.postgres {
			all += own
		}
	}
	return all
}

// processTime reads the CPU time of a process and of its children that have
// ended, and who its parent is: zeros if it is gone.
func processTime(path string) (own, children time.Duration, parent int) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, 0
	}
	// The name, in parentheses, may hold anything; after it come the state, the
	// parent, and the times as the twelfth to the fifteenth.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 15 {
		return 0, 0, 0
	}
	number := func(i int) int {
		n, err := strconv.Atoi(string(fields[i]))
		if err != nil {
			return 0
		}
		return n
	}
	return time.Duration(number(11)+number(12)) * tick, time.Duration(number(13)+number(14)) * tick, number(1)
}
