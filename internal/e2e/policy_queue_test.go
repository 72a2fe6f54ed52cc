package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/pgserver"
	"jobledger/internal/testenv"
)

// A start that nobody claims in time expires only where the kind says so; it ran
// nowhere, so it does not count for max_attempts, and has a bound of its own.
func TestStartsExpireOnlyWhereTheKindSaysSo(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: `
kinds:
  pay:     {providers: [main], attempt_timeout: 100ms}
  hurried: {providers: [main], start_timeout: 100ms, max_attempts: 1, backoff: {initial: 1ms, max: 1ms}}
providers:
` + main.provider()})
	w.attach(main)
	c := w.serve("api,projector").client("acme")
	w.apply()
	patient, hurried := c.create("patient", pay(`"answer"`)), c.create("hurried", `{"kind":"hurried","input":{}}`)
	w.becomes(hurried, "waiting held")
	require.Equal(t, 20, w.number("SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND state = 'expired' AND failure_class = 'expired'", hurried))
	require.Equal(t, "running starting", c.state(patient)+" "+c.job(patient).text("attempts.0.state"))
	w.serve("worker")
	c.finished(patient, "succeeded")
	require.Zero(t, main.count(hurried))
	c.press(hurried, "now that there is a worker", "").created()
	c.finished(hurried, "succeeded")
	w.verify()
}

// queuedEnv says how many jobs TestQueued queues; without it the test is skipped.
const queuedEnv = "JOBLEDGER_QUEUED"

const (
	fewQueued = 10_000
	// mostAbove is what the process may have above that with fewQueued, in MiB.
	mostAbove = 64
	// queueWatched is how long the full queue is watched.
	queueWatched = 30 * time.Second
	// queuePatience bounds what the queue's length makes slow.
	queuePatience = 20 * time.Minute
)

// TestQueued measures by hand what a long queue before slow workers costs the
// process, and that it does not churn:
//
//	JOBLEDGER_QUEUED=100000 go test -run TestQueued -timeout 1h -v ./internal/e2e
//
// NATS and PostgreSQL are processes of their own; the ledger is one process with
// all roles. First it queues 10,000 jobs, then the given number, each in a ledger
// of its own.
func TestQueued(t *testing.T) {
	many, err := strconv.Atoi(os.Getenv(queuedEnv))
	if err != nil || many < fewQueued {
		t.Skipf("%s is %q; expected a number of jobs, at least %d", queuedEnv, os.Getenv(queuedEnv), fewQueued)
	}
	nats := testenv.StartNATS(t, natsserver.Options{SyncAlways: true})
	postgres := testenv.StartPostgres(t, pgserver.Options{})
	var costs []queueCost
	for _, n := range []int{fewQueued, many} {
		costs = append(costs, queueUp(t, nats, postgres, n))
	}
	for _, c := range costs {
		t.Log(c)
	}
	require.LessOrEqual(t, costs[1].watched-costs[0].watched, mostAbove, "MiB above, while the queue was full")
	require.LessOrEqual(t, costs[1].peak-costs[0].peak, mostAbove, "MiB above, at the peak")
}

// A queueCost is what a queue cost the process, in MiB of resident memory, and
// of the heap that was live.
type queueCost struct {
	jobs                int
	took                time.Duration // until all were queued
	peak, watched, heap int
	entries, done       int    // while it was watched: appended, and attempts that ended
	collecting          string // percent of its life that it has spent collecting garbage
}

func (c queueCost) String() string {
	return fmt.Sprintf("%d jobs, queued within %.1f s: resident %d MiB at most, %d MiB with the full queue, of which %d MiB of heap are live (%s %% of the time went into collecting); %d entries and %d ended attempts in %s",
		c.jobs, c.took.Seconds(), c.peak, c.watched, c.heap, c.collecting, c.entries, c.done, queueWatched)
}

// slowConfig has a provider whose calls take seconds.
func slowConfig(s *faultStub) string {
	return fmt.Sprintf("kinds:\n  work: {providers: [slow], attempt_timeout: 10m}\nproviders:\n  slow: {type: http, url: %q}\n", s.url)
}

func queueUp(t *testing.T, nats *testenv.NATSProcess, postgres *testenv.Postgres, n int) queueCost {
	t.Helper()
	w := newWorld(t, setup{nats: nats.URL(), database: postgres.Database(t), yaml: slowConfig(newFaultStub(t, 2*time.Second))})
	p := w.serve("api,projector,worker", withGCTrace)
	w.apply()
	resident := p.watchMemory()
	began := time.Now()
	w.fill(n)
	w.eventuallyQueued(n, "SELECT count(*) FROM ledger.attempts")
	w.caughtUpWithin(queuePatience)
	c := queueCost{jobs: n, took: time.Since(began)}

	ended := "SELECT count(*) FROM ledger.attempts WHERE state NOT IN ('starting', 'running')"
	end, done := w.streamEnd(), w.number(ended)
	resident.again()
	passTime(queueWatched)
	c.watched = resident.most()
	c.entries, c.done = int(w.streamEnd()-end), w.number(ended)-done
	c.peak = p.peakMemory()
	c.collecting, c.heap = p.collected()
	require.Equal(t, n, w.number("SELECT count(*) FROM ledger.attempts"), "attempts; one for each job")
	require.Zero(t, w.number("SELECT count(*) FROM ledger.attempts WHERE state IN ('expired', 'unknown', 'unsent', 'failed')"))
	require.Zero(t, w.number("SELECT count(*) FROM ledger.rejections"))
	require.LessOrEqual(t, c.entries, 2*c.done+2*16, "a claim and a completion for each attempt, and nothing else")
	p.stop()
	return c
}

// passTime waits where time itself is what is measured.
func passTime(d time.Duration) { <-time.After(d) }

// withGCTrace makes a process tell its log of every collection.
func withGCTrace(p *process) { p.env = append(slices.Clone(p.env), "GODEBUG=gctrace=1") }

// fill publishes n requests, as fast as the server takes them.
func (w *world) fill(n int) {
	w.t.Helper()
	js, err := jetstream.New(testenv.Connect(w.t, w.nats), jetstream.WithPublishAsyncMaxPending(1024))
	require.NoError(w.t, err)
	text := strings.Repeat("x", 150)
	for i := range n {
		body := fmt.Appendf(nil, `{"v":1,"owner":"acme","key":"queued %d","kind":"work","input":{"text":%q}}`, i, text)
		_, err := js.PublishAsync(w.prefix+".job.request", body, jetstream.WithStallWait(patience))
		require.NoError(w.t, err)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(queuePatience):
		w.t.Fatalf("the server has not acknowledged %d requests within %s", n, queuePatience)
	}
}

// eventuallyQueued is eventually, for what takes long and is dear to ask.
func (w *world) eventuallyQueued(n int, sql string) {
	w.t.Helper()
	for deadline := time.Now().Add(queuePatience); ; passTime(200 * time.Millisecond) {
		found := w.number(sql)
		if found == n {
			return
		}
		require.True(w.t, time.Now().Before(deadline), "%s gives %d, expected %d", sql, found, n)
	}
}

// caughtUpWithin waits until the tables have come to where the stream ended, all
// effects done. Workers go on meanwhile.
func (w *world) caughtUpWithin(d time.Duration) {
	w.t.Helper()
	end := w.streamEnd()
	testenv.Eventually(w.t, d, func() (bool, string) {
		seq := w.number("SELECT min(effects_seq) FROM ledger.checkpoints")
		return uint64(seq) >= end, fmt.Sprintf("the tables and effects are at %d of %d entries", seq, end)
	})
}

// A memoryWatch knows the most resident memory of a process since it began, or
// since again.
type memoryWatch struct {
	mu   sync.Mutex
	mib  int
	read func() int
}

func (p *process) watchMemory() *memoryWatch {
	m := &memoryWatch{read: func() int { return p.memory("VmRSS") }}
	stop, ended := make(chan struct{}), make(chan struct{})
	p.w.t.Cleanup(func() { close(stop); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				m.most()
			}
		}
	}()
	return m
}

func (m *memoryWatch) again() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mib = 0
}

func (m *memoryWatch) most() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mib = max(m.mib, m.read())
	return m.mib
}

func (p *process) peakMemory() int { return p.memory("VmHWM") }

// memory is a line of the process's status, in MiB; 0: the process has ended.
func (p *process) memory(line string) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte(line+":"))
	kib, err := strconv.Atoi(strings.Fields(string(rest) + " 0")[0])
	if err != nil {
		return 0
	}
	return kib >> 10
}

// collection matches a line of gctrace: the percentage of time spent collecting
// so far; the heap before, after, and live.
var collection = regexp.MustCompile(`gc \d+ @\S+ (\d+)%:.* \d+->\d+->(\d+) MB`)

// collected returns what the process's latest collection says: the percentage of
// its life spent collecting, and the MiB that are live.
func (p *process) collected() (percent string, live int) {
	p.w.t.Helper()
	all := collection.FindAllStringSubmatch(p.log.String(), -1)
	require.NotEmpty(p.w.t, all, "collections")
	last := all[len(all)-1]
	live, err := strconv.Atoi(last[2])
	require.NoError(p.w.t, err)
	return last[1], live
}

// TestQueuedOnAPausedProvider measures by hand, with the same number, what jobs
// cost that wait for a paused provider, and how fast they start when it is
// resumed.
func TestQueuedOnAPausedProvider(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(queuedEnv))
	if err != nil || n < 1 {
		t.Skipf("%s is %q; expected a number of jobs", queuedEnv, os.Getenv(queuedEnv))
	}
	nats := testenv.StartNATS(t, natsserver.Options{SyncAlways: true})
	postgres := testenv.StartPostgres(t, pgserver.Options{})
	w := newWorld(t, setup{nats: nats.URL(), database: postgres.Database(t), yaml: slowConfig(newFaultStub(t, 2*time.Second))})
	p := w.serve("api,projector")
	w.apply()
	w.brake("slow", true)
	w.fill(n)
	w.eventuallyQueued(n, "SELECT count(*) FROM ledger.jobs WHERE state_reason = 'provider-paused'")
	w.caughtUpWithin(queuePatience)

	end := w.streamEnd()
	passTime(queueWatched)
	require.Equal(t, end, w.streamEnd(), "entries, while all of them waited")
	w.brake("slow", false)
	began := time.Now()
	w.eventuallyQueued(n, "SELECT count(*) FROM ledger.attempts")
	w.caughtUpWithin(queuePatience)
	took := time.Since(began)
	t.Logf("%d jobs waited %s for a paused provider: no entry; %.1f s after it was resumed all had started (%.0f a second), with %d entries; resident %d MiB at most",
		n, queueWatched, took.Seconds(), float64(n)/took.Seconds(), w.streamEnd()-end, p.peakMemory())
	require.Equal(t, n, w.number("SELECT count(*) FROM ledger.attempts WHERE state = 'starting'"))
}
