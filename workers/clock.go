package workers

import (
	"context"
	"time"

	"jobledger/workers/internal/wait"
)

// A clock measures the time since a claim twice: wall time goes on while the
// machine sleeps, monotonic time cannot be set back.
type clock struct {
	wall func() time.Time
	mono func() time.Duration // since some fixed moment
}

func systemClock() clock {
	start := time.Now()
	return clock{
		wall: func() time.Time { return time.Now().Round(0) },
		mono: func() time.Duration { return time.Since(start) },
	}
}

// A stamp is a moment on both clocks.
type stamp struct {
	wall time.Time
	mono time.Duration
}

func (c clock) stamp() stamp { return stamp{c.wall(), c.mono()} }

// since returns the longer of the two times since s.
func (c clock) since(s stamp) time.Duration {
	return max(c.wall().Sub(s.wall), c.mono()-s.mono)
}

// A backoff makes pauses that double up to most. Each is between half and all
// of its length, so that those who failed together do not come again together.
type backoff struct {
	next, most time.Duration
}

// pause waits, and reports false if ctx ended first.
func (b *backoff) pause(ctx context.Context) bool {
	d := min(b.next, b.most)
	b.next = min(2*d, b.most)
	return wait.Sleep(ctx, wait.Jitter(d))
}

// within reports whether done is closed within d.
func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
