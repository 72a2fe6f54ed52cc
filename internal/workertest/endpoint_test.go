package workertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

// An endpoint is what the worker calls. It does what the input's member "do"
// says, and counts the calls:
//
//	answer      200 with the result; also for anything else
//	stall       the same once it is released
//	close       read the request, then close the connection
//	prose       200 with a body that is no JSON
//	<a number>  this status
type endpoint struct {
	t   *testing.T
	url string

	mu       sync.Mutex
	calls    map[string][]posted // by "<job>/<attempt>"
	given    map[string]int      // callers that went away while they were stalled
	release  chan struct{}
	released bool
}

// posted is a call on the wire.
type posted struct{ body, key string }

// result is what the endpoint answers. A worker that reads numbers as most
// languages do would change it.
const result = `{"by":"the endpoint","big":9007199254740993}`

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	e := &endpoint{t: t, calls: map[string][]posted{}, given: map[string]int{}, release: make(chan struct{})}
	server := httptest.NewServer(e)
	e.url = server.URL + "/run"
	t.Cleanup(func() {
		e.releaseAll()
		server.Close()
	})
	return e
}

// ServeHTTP is a call on the wire.
func (e *endpoint) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Ledger-Job-Id") + "/" + r.Header.Get("Ledger-Attempt")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // whoever called is gone
	}
	e.mu.Lock()
	e.calls[id] = append(e.calls[id], posted{string(body), r.Header.Get("Idempotency-Key")})
	e.mu.Unlock()
	var request struct {
		Input struct{ Do string }
	}
	if err := json.Unmarshal(body, &request); err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	switch do := request.Input.Do; do {
	case "close":
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.Close()
		return
	case "prose":
		_, _ = io.WriteString(rw, "Sure! Here is the JSON that you asked for.")
		return
	case "stall":
		select {
		case <-e.release:
		case <-r.Context().Done():
			e.mu.Lock()
			e.given[id]++
			e.mu.Unlock()
			return
		}
	default:
		if status, err := strconv.Atoi(do); err == nil {
			rw.Header().Set("Location", e.url)
			rw.WriteHeader(status)
			return
		}
	}
	_, _ = io.WriteString(rw, result)
}

// releaseAll lets stalled calls go on, now and from now on.
func (e *endpoint) releaseAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.released {
		e.released = true
		close(e.release)
	}
}

// count returns the calls for an attempt, and total all of them.
func (e *endpoint) count(id string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.calls[id])
}

func (e *endpoint) total() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, calls := range e.calls {
		n += len(calls)
	}
	return n
}

// last returns the last call for an attempt.
func (e *endpoint) last(id string) posted {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[id][len(e.calls[id])-1]
}

// called waits until an attempt's call has come. More than one is an error at any
// time.
func (e *endpoint) called(id string) {
	e.t.Helper()
	testenv.Eventually(e.t, patience, func() (bool, string) { return e.count(id) > 0, "no call for " + id })
	require.Equal(e.t, 1, e.count(id), "calls for %s", id)
}

// givenUp waits until the caller of a stalled call has gone away.
func (e *endpoint) givenUp(id string) {
	e.t.Helper()
	testenv.Eventually(e.t, patience, func() (bool, string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.given[id] > 0, fmt.Sprintf("the call for %s goes on", id)
	})
}
