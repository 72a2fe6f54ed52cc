package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"jobledger/internal/testenv"
)

// books is a provider that honours idempotency keys and can be asked what became
// of an attempt. What it does with the first requests for a job is up to the
// test.
type books struct {
	server *httptest.Server

	mu      sync.Mutex
	effects map[string]int    // by idempotency key
	calls   map[string]int    // requests for work, by job and attempt
	bodies  map[string]string // of the first one of each
	lookups map[string]int    // questions, by job and attempt
	answers map[string]string // to questions, by job: the body; "": HTTP 500
	// before and after are what happens to a call before its effect, and before
	// its answer, by job: what is not there is no hindrance.
	before, after map[string]func(n int)
}

func newBooks(t testing.TB) *books {
	t.Helper()
	b := &books{
		effects: map[string]int{}, calls: map[string]int{}, bodies: map[string]string{}, lookups: map[string]int{}, answers: map[string]string{},
		before: map[string]func(int){}, after: map[string]func(int){},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", b.run)
	mux.HandleFunc("GET /runs/{job}/{attempt}", b.look)
	b.server = httptest.NewServer(mux)
	t.Cleanup(b.server.Close)
	return b
}

// provider is a line of the configuration's providers.
func (b *books) provider(name, reconcile string) string {
	return fmt.Sprintf("  %s: {type: http, url: %q, reconcile: {backoff: {initial: 50ms, max: 200ms}, %s}}\n", name, b.server.URL+"/run", reconcile)
}

// lookup is the member of that name.
func (b *books) lookup() string {
	return fmt.Sprintf("lookup: %q", b.server.URL+"/runs/{job_id}/{attempt}")
}

// drop ends a call without an answer.
func drop(int) { panic(http.ErrAbortHandler) }

// dropFirst ends the first call without an answer.
func dropFirst(n int) {
	if n == 1 {
		drop(n)
	}
}

func (b *books) run(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // whoever called is gone
	}
	job, attempt := r.Header.Get("Ledger-Job-Id"), r.Header.Get("Ledger-Attempt")
	b.mu.Lock()
	name := job + "/" + attempt
	b.calls[name]++
	n := b.calls[name]
	if n == 1 {
		b.bodies[name] = string(body)
	} else if b.bodies[name] != string(body) {
		b.bodies[name] = "the requests differ"
	}
	before, after := b.before[job], b.after[job]
	b.mu.Unlock()
	if before != nil {
		before(n)
	}
	b.mu.Lock()
	key := r.Header.Get("Idempotency-Key")
	if b.effects[key] == 0 {
		b.effects[key]++
	}
	b.mu.Unlock()
	if after != nil {
		after(n)
	}
	_, _ = fmt.Fprintf(rw, `{"by":"the books","key":%q}`, key)
}

func (b *books) look(rw http.ResponseWriter, r *http.Request) {
	job, attempt := r.PathValue("job"), r.PathValue("attempt")
	if r.Header.Get("Ledger-Job-Id") != job || r.Header.Get("Ledger-Attempt") != attempt {
		http.Error(rw, "headers and path differ", http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookups[job+"/"+attempt]++
	if b.answers[job] == "" {
		http.Error(rw, "as the test asked", http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(rw, strings.ReplaceAll(b.answers[job], "$attempt", attempt))
}

// set changes something under the lock.
func (b *books) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// awaitCount waits until a count has reached n.
func (b *books) awaitCount(t testing.TB, counts map[string]int, of string, n int) {
	t.Helper()
	testenv.Eventually(t, patience, func() (bool, string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return counts[of] >= n, fmt.Sprintf("%d of %d of %s", counts[of], n, of)
	})
}

func (b *books) count(counts map[string]int, of string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return counts[of]
}
