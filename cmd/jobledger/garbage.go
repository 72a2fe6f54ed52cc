package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// collectRarely trades memory for time unless GOGC says otherwise: what lives
// for long in a ledger's process is little, and what passes through is much.
func collectRarely() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(mostGarbagePercent)
	}
}

const (
	// mostGarbagePercent is how much garbage may lie about, in percent of what
	// lives, and leastGarbagePercent what is always allowed, so that a big heap is
	// not collected all the time.
	mostGarbagePercent, leastGarbagePercent = 300, 50
	// garbageBytes bounds it between the two. With a long backlog some 60 MiB live
	// for as long as it is worked off; thrice that, as garbage, would stay with the
	// process for minutes.
	garbageBytes = 64 << 20
	liveMetric   = "/gc/heap/live:bytes"
)

// garbagePercent returns what GOGC ought to be with so many bytes alive.
func garbagePercent(live uint64) int {
	if live == 0 {
		return mostGarbagePercent
	}
	return int(min(max(garbageBytes*100/live, leastGarbagePercent), mostGarbagePercent))
}

// boundGarbage bounds, from now on and for as long as the process lives, the
// garbage that collectRarely allows. It looks after each collection at what is
// left.
func boundGarbage() {
	if os.Getenv("GOGC") != "" {
		return
	}
	sample := []metrics.Sample{{Name: liveMetric}}
	set := mostGarbagePercent
	afterCollections(func() {
		metrics.Read(sample)
		if want := garbagePercent(sample[0].Value.Uint64()); want != set {
			set = want
			debug.SetGCPercent(want)
		}
	})
}

// afterCollections calls f after each collection, one call at a time.
func afterCollections(f func()) {
	type sentinel struct{ _ *byte } // with a pointer: not one of many in a shared block
	var again func(*sentinel)
	again = func(s *sentinel) {
		f()
		runtime.SetFinalizer(s, again)
	}
	runtime.SetFinalizer(&sentinel{}, again)
}
