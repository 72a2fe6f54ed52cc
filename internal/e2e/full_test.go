package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/stream"
	"jobledger/internal/testenv"
)

// limitStream gives the stream so many bytes.
func (w *world) limitStream(maxBytes int64) {
	w.t.Helper()
	_, err := w.js.UpdateStream(w.ctx(), stream.Config(w.stream, w.prefix, 1, maxBytes))
	require.NoError(w.t, err)
}

func (w *world) streamBytes() uint64 {
	w.t.Helper()
	s, err := w.js.Stream(w.ctx(), w.stream)
	require.NoError(w.t, err)
	return s.CachedInfo().State.Bytes
}

// padded is a request whose input has about the given size.
func padded(kind string, size int, more string) string {
	return fmt.Sprintf(`{"kind":%q,"input":{"pad":%q}%s}`, kind, strings.Repeat("x", size), more)
}

// TestAFullStreamLetsWorkEnd fills the stream to where new requests are refused,
// and lets what is under way end then.
func TestAFullStreamLetsWorkEnd(t *testing.T) {
	t.Parallel()
	const maxBytes, running = 1 << 20, 10
	main := newStub(t, "main")
	w, c := startWorld(t, oneKind("attempt_timeout: 10m", main))
	w.attach(main)
	w.limitStream(maxBytes)
	var jobs []string
	for i := range running {
		jobs = append(jobs, c.create(fmt.Sprint("running ", i), pay(`"stall"`)))
		main.arrived(jobs[i], 1)
	}
	var refusal answer
	for i := 0; ; i++ {
		refusal = c.do(http.MethodPost, "/v1/jobs", padded("pay", 10_000, `,"delay":"1h"`), "Idempotency-Key", fmt.Sprint("filler ", i))
		if refusal.status == http.StatusServiceUnavailable {
			break
		}
		require.Equal(t, http.StatusCreated, refusal.status, "%s", refusal.raw)
	}
	refusal.is(http.StatusServiceUnavailable, "stream-full")
	require.Equal(t, "30", refusal.header.Get("Retry-After"))
	require.Contains(t, refusal.text("detail"), fmt.Sprintf("the stream %s holds", w.stream))
	require.InDelta(t, 0.9*maxBytes, w.streamBytes(), 50_000)
	out := w.run("submit", "--owner", "acme", "--key", "new", "--kind", "pay", "--input", `{"pad":"`+strings.Repeat("x", 20_000)+`"}`).is(t, 7)
	require.Contains(t, out.stderr, "stream-full: the request is not stored")
	c.do(http.MethodPost, "/v1/jobs", padded("pay", 10_000, `,"delay":"1h"`), "Idempotency-Key", "filler 0").replayed()

	for _, id := range jobs {
		main.release(id)
	}
	for _, id := range jobs {
		c.finished(id, "succeeded")
	}
	w.limitStream(2 * maxBytes)
	testenv.Eventually(t, patience, func() (bool, string) { // the API looks at the stream every 2 s
		a := c.do(http.MethodPost, "/v1/jobs", padded("pay", 10_000, ""), "Idempotency-Key", "new")
		return a.status == http.StatusCreated, string(a.raw)
	})
	c.finished(c.jobID("new"), "succeeded")
	w.verify()
}

// TestAStartWaitsForRoom fills the stream by plain publishing, which nobody but
// the server can refuse, until starts do not fit. Nothing is lost: when an
// operator gives the stream more room all goes on by itself, although the
// projector was killed meanwhile.
func TestAStartWaitsForRoom(t *testing.T) {
	t.Parallel()
	const maxBytes = 512 << 10
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind("attempt_timeout: 10m", main)})
	w.attach(main)
	projector := w.serve("projector")
	w.apply()
	w.caughtUp()
	projector.stop()
	w.limitStream(maxBytes)

	accepted := w.fillPlainly(30_000) // half of it would need as much again for its starts
	require.Greater(t, accepted, 10)
	projector.launch()
	w.eventually(accepted, "SELECT count(*) FROM ledger.jobs")
	waits := func() {
		t.Helper()
		before := strings.Count(projector.log.String(), "start was not appended")
		testenv.Eventually(t, patience, func() (bool, string) {
			return strings.Count(projector.log.String(), "start was not appended") > before, "no start has been refused"
		})
	}
	waits()
	projector.kill()
	projector.launch()
	waits()

	w.serve("worker")
	w.limitStream(4 * maxBytes)
	w.eventually(accepted, "SELECT count(*) FROM ledger.jobs WHERE state = 'succeeded'")
	require.Equal(t, accepted, main.count(""))
	w.verify()
}

// fillPlainly publishes requests until the server refuses one for want of room,
// and returns how many it took.
func (w *world) fillPlainly(size int) (accepted int) {
	w.t.Helper()
	for {
		body, err := json.Marshal(map[string]any{
			"v": 1, "owner": "acme", "key": fmt.Sprint("plain ", accepted), "kind": "pay", "input": map[string]string{"pad": strings.Repeat("x", size)},
		})
		require.NoError(w.t, err)
		_, err = w.js.Publish(w.ctx(), w.prefix+".job.request", body, jetstream.WithRetryAttempts(0))
		if err != nil {
			require.ErrorContains(w.t, err, "maximum bytes exceeded")
			return accepted
		}
		accepted++
	}
}
