// Package wait is how the packages below workers let time pass.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Jitter returns between a half and all of d, so that those who failed together
// do not come again together.
func Jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// Sleep waits for d, and reports false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
