package e2e_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

// TestWaitingOutlivesLostOutcomesAndRestarts takes NATS away from the API, so
// that it hears of nothing, and kills the projector: waiting must take longer
// and do nothing else.
func TestWaitingOutlivesLostOutcomesAndRestarts(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind("", main)})
	w.attach(main)
	projector := w.serve("projector")
	w.serve("worker")
	w.apply()
	proxy := testenv.NewProxy(t, w.nats)
	c := w.serve("api", viaNATS(proxy.URL(w.nats))).client("acme")
	id := c.create("order", pay(`"stall"`))
	main.arrived(id, 1)
	events := c.events(id, "")
	first, data := events.next()
	require.Equal(t, "running", data.State)
	waited := make(chan answer, 1)
	go func() {
		a, err := c.try("GET", jobPath(id)+"?wait=60s", "")
		if err != nil {
			t.Errorf("wait: %v", err)
		}
		waited <- a
	}()

	proxy.Cut()
	projector.kill()
	main.release(id)
	projector.restart()
	require.Equal(t, "succeeded", (<-waited).is(http.StatusOK).text("state"))
	last, data := events.next()
	require.Equal(t, "succeeded", data.State)
	events.ends()
	proxy.Restore()

	// Whoever has seen the end is sent away; whoever has not is told.
	c.do("GET", jobPath(id)+"/events", "", "Last-Event-ID", last).is(http.StatusNoContent)
	events = c.events(id, first)
	again, data := events.next()
	require.Equal(t, last, again)
	require.Equal(t, "succeeded", data.State)
	events.ends()
	w.verify()
}

// An eventReader reads the events of a job.
type eventReader struct {
	t     testing.TB
	lines *bufio.Scanner
}

// events begins to read a job's events, after the last one that was seen.
func (c *client) events(id, last string) *eventReader {
	c.t.Helper()
	req, err := http.NewRequest(http.MethodGet, c.base+jobPath(id)+"/events", nil)
	require.NoError(c.t, err)
	req.Header.Set("Ledger-Owner", c.owner)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := c.http.Do(req)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(c.t, http.StatusOK, res.StatusCode)
	return &eventReader{c.t, bufio.NewScanner(io.LimitReader(res.Body, 1<<20))}
}

// next returns the next event's id and some of its data.
func (r *eventReader) next() (id string, data struct{ State string }) {
	r.t.Helper()
	for r.lines.Scan() {
		line := r.lines.Text()
		if text, ok := strings.CutPrefix(line, "id: "); ok {
			id = text
		}
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			require.NoError(r.t, json.Unmarshal([]byte(text), &data))
			return id, data
		}
	}
	require.FailNow(r.t, "the stream of events has ended", "%v", r.lines.Err())
	return "", data
}

// ends insists that nothing more comes.
func (r *eventReader) ends() {
	r.t.Helper()
	for r.lines.Scan() {
		require.Empty(r.t, r.lines.Text())
	}
	require.NoError(r.t, r.lines.Err())
}
