package e2e_test

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// faultAttempt names an attempt as it shows on the wire.
type faultAttempt struct {
	job    string
	number int
}

func (a faultAttempt) String() string { return fmt.Sprintf("%s/%d", a.job, a.number) }

// A faultStub is the provider of the fault tests. It lives in the test's own
// process, which nothing kills, and so knows for certain which attempts reached
// a provider and how often.
type faultStub struct {
	url  string
	mean time.Duration

	mu    sync.Mutex
	calls map[faultAttempt]int
}

func newFaultStub(t *testing.T, mean time.Duration) *faultStub {
	t.Helper()
	s := &faultStub{mean: mean, calls: map[faultAttempt]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	s.url = server.URL
	return s
}

// ServeHTTP counts the call before anything else, takes a while, and answers.
func (s *faultStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := faultAttempt{job: r.Header.Get("Ledger-Job-Id")}
	if _, err := fmt.Sscan(r.Header.Get("Ledger-Attempt"), &a.number); err != nil || a.job == "" {
		http.Error(w, "a call without its attempt", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.calls[a]++
	s.mu.Unlock()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	done := time.NewTimer(rand.N(2 * s.mean))
	defer done.Stop()
	select {
	case <-done.C:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"attempt":%d}`, a.number)
	case <-r.Context().Done(): // the worker is gone
	}
}

// counts returns how often each attempt was called.
func (s *faultStub) counts() map[faultAttempt]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.calls)
}
