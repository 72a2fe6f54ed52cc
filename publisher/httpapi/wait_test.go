package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
	"jobledger/publisher/httpapi"
)

// announcer hands out watches and announces on demand.
type announcer struct {
	mu      sync.Mutex
	watches map[int]watching
	next    int
}

type watching struct {
	job   uuid.UUID
	heard func()
}

func (n *announcer) Watch(job uuid.UUID, heard func()) func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watches == nil {
		n.watches = map[int]watching{}
	}
	n.next++
	name := n.next
	n.watches[name] = watching{job, heard}
	return func() { n.mu.Lock(); defer n.mu.Unlock(); delete(n.watches, name) }
}

func (n *announcer) announce(job uuid.UUID) {
	n.mu.Lock()
	var told []func()
	for _, w := range n.watches {
		if w.job == job {
			told = append(told, w.heard)
		}
	}
	n.mu.Unlock()
	for _, heard := range told {
		heard()
	}
}

func (n *announcer) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.watches)
}

// waiting asks for a job and returns where the answer comes, once the API has
// looked at the job n times after the first read.
func (w *world) waiting(path string, n int) <-chan answer {
	w.t.Helper()
	result := make(chan answer, 1)
	before := w.readsSoFar()
	go func() { result <- w.get(path).do() }()
	w.read(before + 1 + n)
	return result
}

// read waits until the tables have been read n times.
func (w *world) read(n int) {
	w.t.Helper()
	testenv.Eventually(w.t, time.Minute, func() (bool, string) {
		return w.readsSoFar() >= n, fmt.Sprintf("%d reads of %d", w.readsSoFar(), n)
	})
}

func (w *world) looksSoFar() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.looks)
}

func TestWait(t *testing.T) {
	t.Parallel()
	n := &announcer{}
	w := newWorld(t, func(o *httpapi.Options) { o.Outcomes = n })
	w.submit("order-17", simple).do().is(http.StatusCreated)
	short := w.get("/v1/jobs/" + order17 + "?wait=50ms").do().is(http.StatusOK)
	require.Equal(t, "running", short.body["state"])

	claim := w.claimed(order17)
	result := w.waiting("/v1/jobs/"+order17+"?wait=1h", 1)
	require.Equal(t, 1, n.count())
	w.completed(claim, ledger.OutcomeUnknown)
	n.announce(uuid.MustParse(order17))
	require.Equal(t, "unknown", (<-result).is(http.StatusOK).body["state"])

	// While it is unknown, only those who insist on the end go on waiting.
	require.Equal(t, "unknown", w.get("/v1/jobs/" + order17 + "?wait=1h").do().is(http.StatusOK).body["state"])
	result = w.waiting("/v1/jobs/"+order17+"?wait=1m&until=terminal", 2)
	w.completed(claim, ledger.OutcomeSucceeded)
	require.Equal(t, "succeeded", (<-result).is(http.StatusOK).body["state"], "though nothing was announced")
	require.Zero(t, n.count())
	require.Equal(t, "succeeded", w.get("/v1/jobs/" + order17 + "?wait=1h&until=terminal").do().is(http.StatusOK).body["state"])
}

// TestAnnouncedOutcomeIsTakenAtOnce waits so long before it announces that the
// next look would be seconds away.
func TestAnnouncedOutcomeIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	n := &announcer{}
	w := newWorld(t, func(o *httpapi.Options) { o.Outcomes = n })
	w.submit("order-17", simple).do().is(http.StatusCreated)
	claim := w.claimed(order17)
	result := w.waiting("/v1/jobs/"+order17+"?wait=1h", 9)
	w.completed(claim, ledger.OutcomeSucceeded)
	n.announce(uuid.MustParse(order17))
	began := time.Now()
	require.Equal(t, "succeeded", (<-result).is(http.StatusOK).body["state"])
	require.Less(t, time.Since(began), 900*time.Millisecond)
}

func TestAnnouncementBeforeTheTablesHaveIt(t *testing.T) {
	t.Parallel()
	n := &announcer{}
	w := newWorld(t, func(o *httpapi.Options) { o.Outcomes = n })
	w.submit("order-17", simple).do().is(http.StatusCreated)
	claim := w.claimed(order17)
	result := w.waiting("/v1/jobs/"+order17+"?wait=1m", 1)
	w.set(func() { w.frozen = true })
	w.completed(claim, ledger.OutcomeSucceeded)
	looked := w.readsSoFar()
	n.announce(uuid.MustParse(order17))
	w.read(looked + 1)
	w.set(func() { w.frozen = false })
	require.Equal(t, "succeeded", (<-result).is(http.StatusOK).body["state"])
}

func TestUnreadableTablesOnlyDelayAWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit("order-17", simple).do().is(http.StatusCreated)
	claim := w.claimed(order17)
	result := w.waiting("/v1/jobs/"+order17+"?wait=1m", 1)
	looked := w.readsSoFar()
	w.set(func() { w.readFault = errors.New("the database is away") })
	w.completed(claim, ledger.OutcomeSucceeded)
	w.read(looked + 1)
	w.set(func() { w.readFault = nil })
	require.Equal(t, "succeeded", (<-result).is(http.StatusOK).body["state"])
}

func TestClosingEndsWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit("order-17", simple).do().is(http.StatusCreated)
	result := w.waiting("/v1/jobs/"+order17+"?wait=1m", 1)
	w.get("/readyz").do().is(http.StatusOK)
	w.api.EndWaits()
	require.Equal(t, "running", (<-result).is(http.StatusOK).body["state"])
	w.get("/readyz").do().is(http.StatusServiceUnavailable, "not-ready")
	w.get("/v1/jobs/" + order17 + "?wait=1m").do().is(http.StatusOK)
}

// TestManyWaitersShareTheirLooks holds the tables to a few questions, however
// many wait, for one job or for many.
func TestManyWaitersShareTheirLooks(t *testing.T) {
	t.Parallel()
	const jobs, each = 300, 3
	n := &announcer{}
	w := newWorld(t, func(o *httpapi.Options) { o.Outcomes = n })
	var ids []string
	for i := range jobs {
		key := fmt.Sprint("job-", i)
		w.submit(key, simple).do().is(http.StatusCreated)
		ids = append(ids, ledger.JobID("acme", key).String())
	}
	results := make(chan answer, jobs*each)
	for _, id := range ids {
		for range each {
			go func() { results <- w.get("/v1/jobs/" + id + "?wait=1m").do() }()
		}
	}
	testenv.Eventually(t, time.Minute, func() (bool, string) {
		return n.count() == jobs, fmt.Sprintf("%d of %d jobs are watched", n.count(), jobs)
	})
	before := len(w.looksSoFar())
	began := time.Now()
	testenv.Eventually(t, time.Minute, func() (bool, string) {
		looks := w.looksSoFar()
		return slices.Max(looks) >= jobs/30, fmt.Sprintf("the looks were at %v jobs, never at many together", looks)
	})
	rounds := len(w.looksSoFar()) - before
	require.LessOrEqual(t, rounds, 1+int(time.Since(began)/(5*time.Millisecond)), "the pace does not follow the number of waiters")
	for _, id := range ids {
		w.completed(w.claimed(id), ledger.OutcomeSucceeded)
	}
	for range jobs * each {
		require.Equal(t, "succeeded", (<-results).is(http.StatusOK).body["state"])
	}
	testenv.Eventually(t, time.Minute, func() (bool, string) { return n.count() == 0, "a watch was left behind" })
}

func TestTooManyWaiters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *httpapi.Options) { o.MaxWaiters = 2 })
	w.submit("order-17", simple).do().is(http.StatusCreated)
	claim := w.claimed(order17)
	first := w.waiting("/v1/jobs/"+order17+"?wait=1m", 1)
	second := w.waiting("/v1/jobs/"+order17+"?wait=1m", 1)
	w.get("/v1/jobs/"+order17+"?wait=1m").do().is(http.StatusServiceUnavailable, "overloaded")
	w.get("/v1/jobs/" + order17).do().is(http.StatusOK)
	w.completed(claim, ledger.OutcomeSucceeded)
	(<-first).is(http.StatusOK)
	(<-second).is(http.StatusOK)
	require.Equal(t, "succeeded", w.get("/v1/jobs/" + order17 + "?wait=1m").do().is(http.StatusOK).body["state"])
}

// TestCatchingUpIsAskedForAllAtOnce holds those who wait for the tables to one
// question at a time.
func TestCatchingUpIsAskedForAllAtOnce(t *testing.T) {
	t.Parallel()
	const waiters = 50
	w := newWorld(t, func(o *httpapi.Options) { o.BehindWait = time.Minute })
	w.set(func() { w.frozen = true })
	results := make(chan answer, waiters)
	for i := range waiters {
		go func() { results <- w.get("/v1/jobs/" + ledger.JobID("acme", fmt.Sprint(i)).String()).do() }()
	}
	testenv.Eventually(t, time.Minute, func() (bool, string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.Contains(w.applied, waiters), fmt.Sprintf("questions for %v jobs, none for %d", w.applied, waiters)
	})
	w.set(func() { w.frozen = false })
	for range waiters {
		(<-results).is(http.StatusNotFound, "not-found")
	}
}
