package testenv

import (
	"testing"
	"time"
)

// pollInterval is short: what is polled for is usually there at once.
const pollInterval = 5 * time.Millisecond

// Eventually waits until condition holds and fails the test if it does not
// within the given time, with what it last said about what is missing.
func Eventually(t testing.TB, within time.Duration, condition func() (ok bool, explanation string)) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		ok, explanation := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, explanation)
		}
		time.Sleep(pollInterval)
	}
}
