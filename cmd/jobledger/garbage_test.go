package main

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

func TestGarbagePercent(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for live, percent := range map[uint64]int{0: 300, 1: 300, 10 * mib: 300, 32 * mib: 200, 64 * mib: 100, 128 * mib: 50, 10_000 * mib: 50} {
		require.Equal(t, percent, garbagePercent(live), "%d bytes live", live)
	}
}

func TestAfterCollections(t *testing.T) {
	t.Parallel()
	calls := make(chan struct{}, 100)
	afterCollections(func() {
		select {
		case calls <- struct{}{}:
		default:
		}
	})
	for range 3 { // it is called again and again
		testenv.Eventually(t, 10*time.Second, func() (bool, string) {
			runtime.GC()
			select {
			case <-calls:
				return true, ""
			default:
				return false, "no call after a collection"
			}
		})
	}
}
