package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// A stub is an HTTP provider that does what the job's input tells it to, in the
// member "do", and counts the requests that reach it:
//
//	answer      200 with {"by","attempt"}; also without "do"
//	stall       answer once it is released; stall:close closes then, and so on
//	close       read the request, then close the connection
//	reset       the same with a reset
//	short       200 with a body shorter than it says
//	long        200 with a body beyond the limit
//	cut         200 with a chunked body without an end
//	prose       200 with a body that is no JSON; empty: with none
//	<a number>  this status, with a problem's body, and a Location if it is 3xx;
//	            429:60 has a Retry-After of so many seconds
//
// An object, such as {"primary":"stall","*":"answer"}, tells stubs apart by name.
type stub struct {
	name string
	url  string
	w    *world

	mu       sync.Mutex
	server   *http.Server // nil: connections are refused
	calls    []stubCall
	hangups  map[string]int           // by job: callers that were gone before their call was released
	changed  chan struct{}            // closed when calls grows
	releases map[string]chan struct{} // by job; closed: go on
	open     bool                     // everything is released
	closing  chan struct{}
}

// A stubCall is one request on the wire.
type stubCall struct {
	job, attempt, key string
}

// newStub starts a stub for a world that does not exist yet: the world's
// configuration names its URL. Hand it to the world with attach.
func newStub(t testing.TB, name string) *stub {

	t.Helper()
	s := &stub{
		name: name, url: fmt.Sprintf("http://127.0.0.1:%d/run", testenv.FreePort(t)),
		changed: make(chan struct{}), hangups: map[string]int{}, releases: map[string]chan struct{}{}, closing: make(chan struct{}),
	}
	require.NoError(t, s.up())
	t.Cleanup(func() {
		close(s.closing)
		s.down()
	})
	return s
}

// provider is the stub as a line of the configuration's providers.
func (s *stub) provider(more ...string) string {
	return fmt.Sprintf("  %s: {%s}\n", s.name, strings.Join(append([]string{"type: http", fmt.Sprintf("url: %q", s.url)}, more...), ", "))
}

// attach makes the world count the stubs' calls when it verifies, and release
// them when it ends.
func (w *world) attach(stubs ...*stub) {
	for _, s := range stubs {
		s.w = w
	}
	w.stubs = append(w.stubs, stubs...)
}

// up makes the stub listen, and down makes it refuse connections.
func (s *stub) up() error {
	address := strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/run")
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.mu.Lock()
	s.server = server
	s.mu.Unlock()
	go func() { _ = server.Serve(listener) }() // always http.ErrServerClosed
	return nil
}

func (s *stub) down() {
	s.mu.Lock()
	server := s.server
	s.server = nil
	s.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
}

// ServeHTTP is a call on the wire.
func (s *stub) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	call := stubCall{job: r.Header.Get("Ledger-Job-Id"), attempt: r.Header.Get("Ledger-Attempt"), key: r.Header.Get("Idempotency-Key")}
	released := s.record(call)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // whoever called is gone
	}
	what, err := s.orders(body)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	if then, stalls := strings.CutPrefix(what, "stall"); stalls {
		select {
		case <-released:
		case <-s.closing:
		case <-r.Context().Done():
			s.hangUp(call.job)
			return
		}
		if what = strings.TrimPrefix(then, ":"); what == "" {
			what = "answer"
		}
	}
	s.perform(rw, r, what, call)
}

func (s *stub) perform(rw http.ResponseWriter, r *http.Request, what string, call stubCall) {
	control := http.NewResponseController(rw)
	switch what {
	case "answer":
		rw.Header().Set("X-Request-Id", s.name+"-"+call.attempt)
		_, _ = fmt.Fprintf(rw, `{"by":%q,"attempt":%s}`, s.name, call.attempt)
	case "close", "reset":
		conn, _, err := control.Hijack()
		if err != nil {
			panic(err)
		}
		if tcp, ok := conn.(*net.TCPConn); ok && what == "reset" {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	case "short":
		rw.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(rw, `{"by":"nobody knows"`)
		_ = control.Flush()
		panic(http.ErrAbortHandler)
	case "cut":
		_, _ = io.WriteString(rw, `{"by":"nobody knows"}`)
		_ = control.Flush()
		panic(http.ErrAbortHandler)
	case "prose":
		_, _ = io.WriteString(rw, "Sure! Here is the JSON that you asked for.")
	case "empty":
	case "long":
		_, _ = io.WriteString(rw, `{"by":"`+strings.Repeat("x", ledger.MaxResultBytes)+`"}`)
	default:
		number, retryAfter, asks := strings.Cut(what, ":")
		status, err := strconv.Atoi(number)
		if err != nil {
			panic(err)
		}
		if asks {
			rw.Header().Set("Retry-After", retryAfter)
		}
		if status/100 == 3 {
			rw.Header().Set("Location", s.url+"?again")
		}
		rw.WriteHeader(status)
		if status != http.StatusNoContent {
			_, _ = io.WriteString(rw, `{"detail":"as the test asked"}`)
		}
	}
}

// orders reads what the stub is to do.
func (s *stub) orders(body []byte) (string, error) {
	var request struct {
		Input struct{ Do json.RawMessage }
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return "", err
	}
	do := request.Input.Do
	if do == nil {
		return "answer", nil
	}
	var one string
	if json.Unmarshal(do, &one) == nil {
		return one, nil
	}
	var each map[string]string
	if err := json.Unmarshal(do, &each); err != nil {
		return "", err
	}
	if what, ok := each[s.name]; ok {
		return what, nil
	}
	if what, ok := each["*"]; ok {
		return what, nil
	}
	return "answer", nil
}

// record counts a call and returns what it is released by.
func (s *stub) record(call stubCall) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	close(s.changed)
	s.changed = make(chan struct{})
	return s.gate(call.job)
}

func (s *stub) gate(job string) chan struct{} {
	gate := s.releases[job]
	if gate == nil {
		gate = make(chan struct{})
		s.releases[job] = gate
		if s.open {
			close(gate)
		}
	}
	return gate
}

// release lets the stalled calls for a job go on.
func (s *stub) release(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	closeOnce(s.gate(job))
}

func (s *stub) releaseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = true
	for gate := range maps.Values(s.releases) {
		closeOnce(gate)
	}
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// count returns the calls for a job; "" counts all.
func (s *stub) count(job string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, call := range s.calls {
		if job == "" || call.job == job {
			n++
		}
	}
	return n
}

// arrived waits until n calls for the job have come.
func (s *stub) arrived(job string, n int) {
	s.w.t.Helper()
	if !s.waitFor(job, n) {
		s.w.t.Fatalf("%d of %d calls for job %s have reached the provider %s within %s", s.count(job), n, job, s.name, patience)
	}
}

// waitFor is arrived for any goroutine; false: they have not come.
func (s *stub) waitFor(job string, n int) bool {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if s.count(job) >= n {
			return true
		}
		select {
		case <-changed:
		case <-late.C:
			return false
		}
	}
}

func (s *stub) hangUp(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangups[job]++
}

// hungUp waits until whoever called for the job is gone, though the call was not
// released.
func (s *stub) hungUp(job string) {
	s.w.t.Helper()
	testenv.Eventually(s.w.t, patience, func() (bool, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.hangups[job] == 1, fmt.Sprintf("%d callers of provider %s for job %s have hung up", s.hangups[job], s.name, job)
	})
}

// perAttempt counts the calls by job and attempt.
func (s *stub) perAttempt() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for _, call := range s.calls {
		counts[call.job+"/"+call.attempt]++
	}
	return counts
}
