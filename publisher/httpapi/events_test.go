package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
	"jobledger/publisher/httpapi"
)

// unbuffered is a listener whose connections hold nothing: who writes waits
// until the other side has read.
type unbuffered struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *unbuffered) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *unbuffered) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *unbuffered) Addr() net.Addr { return &net.UnixAddr{Name: "unbuffered", Net: "unix"} }

func (l *unbuffered) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve serves the world's API until the test ends, and returns a client.
func (w *world) serve() *http.Client {
	w.t.Helper()
	l := &unbuffered{conns: make(chan net.Conn), closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- w.api.Serve(ctx, l, time.Minute) }()
	client := &http.Client{Transport: &http.Transport{DialContext: l.dial}}
	w.t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			w.t.Error(err)
		}
		client.CloseIdleConnections()
	})
	return client
}

// A reader reads a stream of events.
type reader struct {
	t    *testing.T
	res  *http.Response
	text *bufio.Reader
	last string // the latest event's id
}

const events17 = "/v1/jobs/" + order17 + "/events"

// stream begins to read order17's events; last is the Last-Event-ID.
func (w *world) stream(client *http.Client, last string, change ...func(*http.Request)) *reader {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), "GET", "http://ledger"+events17, nil)
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer p-acme")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	for _, f := range change {
		f(req)
	}
	res, err := client.Do(req)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { res.Body.Close() })
	return &reader{t: w.t, res: res, text: bufio.NewReader(res.Body)}
}

func (r *reader) is(status int) *reader {
	r.t.Helper()
	require.Equal(r.t, status, r.res.StatusCode)
	return r
}

// block reads up to the next empty line.
func (r *reader) block() []string {
	r.t.Helper()
	var lines []string
	for {
		line, err := r.text.ReadString('\n')
		require.NoError(r.t, err, "after %q", lines)
		if line == "\n" {
			return lines
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
}

// next returns the next event's data.
func (r *reader) next() (data struct {
	ID, Owner, Kind, State string
	Version                int
	Attempts               []struct {
		Number          int
		Provider, State string
	}
}) {
	r.t.Helper()
	for {
		lines := r.block()
		if len(lines) == 1 && (strings.HasPrefix(lines[0], "retry: ") || strings.HasPrefix(lines[0], ": ")) {
			continue
		}
		require.Len(r.t, lines, 2)
		r.last = strings.TrimPrefix(lines[0], "id: ")
		require.NotEqual(r.t, r.last, lines[0])
		require.NoError(r.t, json.Unmarshal([]byte(strings.TrimPrefix(lines[1], "data: ")), &data), lines[1])
		return data
	}
}

// ends requires that the stream ends, cleanly, without another event.
func (r *reader) ends() {
	r.t.Helper()
	rest, err := io.ReadAll(r.text)
	require.NoError(r.t, err)
	require.NotContains(r.t, string(rest), "data:")
}

func TestEventsFromTheStateToTheEnd(t *testing.T) {
	t.Parallel()
	n := &announcer{}
	w := newWorld(t, func(o *httpapi.Options) { o.Outcomes = n })
	client := w.serve()
	w.submit("order-17", `{"kind":"echo","input":"a-big-input"}`).do().is(http.StatusCreated)
	r := w.stream(client, "").is(http.StatusOK)
	require.Equal(t, "text/event-stream", r.res.Header.Get("Content-Type"))
	require.Equal(t, order17, r.res.Header.Get("Ledger-Job-Id"))
	require.Regexp(t, `^retry: 1\d\d\d$`, r.block()[0])
	first := r.next()
	require.Equal(t, order17, first.ID)
	require.Equal(t, "running", first.State)
	require.Equal(t, "starting", first.Attempts[0].State)

	claim := w.claimed(order17)
	require.Equal(t, "running", r.next().Attempts[0].State, "an attempt has changed, and the job has not")
	w.completed(claim, ledger.OutcomeUnknown)
	n.announce(uuid.MustParse(order17))
	require.Equal(t, "unknown", r.next().State)
	w.completed(claim, ledger.OutcomeSucceeded)
	last := r.next()
	require.Equal(t, "succeeded", last.State)
	require.Equal(t, 2, last.Version)
	require.Equal(t, fmt.Sprint(w.appended()), r.last, "the id is the sequence of the entry")
	r.ends()
	require.Zero(t, n.count())
}

func TestEventsGoOnAfterTheLastOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := w.serve()
	w.submit("order-17", simple).do().is(http.StatusCreated)
	r := w.stream(client, "").is(http.StatusOK)
	r.next()
	seen := r.last
	r.res.Body.Close()

	r = w.stream(client, seen).is(http.StatusOK)
	claim := w.claimed(order17)
	require.Equal(t, "running", r.next().Attempts[0].State, "what was seen is left out")
	r.res.Body.Close()

	w.completed(claim, ledger.OutcomeSucceeded)
	r = w.stream(client, seen).is(http.StatusOK)
	require.Equal(t, "succeeded", r.next().State, "what happened meanwhile is told at once")
	seen = r.last
	r.ends()
	w.stream(client, seen).is(http.StatusNoContent)
	w.stream(client, "tomorrow").is(http.StatusBadRequest)
}

func TestEventsAreForWhomTheJobIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.get(events17).do().is(http.StatusNotFound, "not-found")
	w.submit("order-17", simple).do().is(http.StatusCreated)
	w.get(events17).as("p-other").do().is(http.StatusNotFound, "not-found")
	w.get(events17).without("Authorization").do().is(http.StatusUnauthorized, "unauthorized")
	w.get(events17+"?wait=1s").do().is(http.StatusBadRequest, "bad-query")
	w.get("/v1/jobs/nonsense/events").do().is(http.StatusBadRequest, "bad-request")
	client := w.serve()
	w.stream(client, "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer o-root") }).is(http.StatusOK).next()
	r := w.stream(client, "", func(r *http.Request) { r.Method = http.MethodHead }).is(http.StatusOK)
	r.ends()
}

func TestStreamSaysThatItLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *httpapi.Options) { o.KeepAlive = time.Millisecond })
	client := w.serve()
	w.submit("order-17", simple).do().is(http.StatusCreated)
	r := w.stream(client, "").is(http.StatusOK)
	r.next()
	require.Equal(t, []string{": alive"}, r.block())
	require.Equal(t, []string{": alive"}, r.block())
}

// TestStalledReaderIsDropped takes the only stream that there may be and reads
// nothing of it.
func TestStalledReaderIsDropped(t *testing.T) {
	t.Parallel()
	n := &announcer{}
	w := newWorld(t, func(o *httpapi.Options) {
		o.MaxStreams, o.SlowReader, o.KeepAlive, o.Outcomes = 1, 100*time.Millisecond, 10*time.Millisecond, n
	})
	client := w.serve()
	w.submit("order-17", simple).do().is(http.StatusCreated)
	r := w.stream(client, "").is(http.StatusOK)
	r.next()
	w.get(events17).do().is(http.StatusServiceUnavailable, "overloaded")
	testenv.Eventually(t, time.Minute, func() (bool, string) { return n.count() == 0, "the stream of a reader that does not read lives on" })
	_, err := io.ReadAll(r.text)
	require.Error(t, err, "the answer is cut, so that the reader knows")
	require.Equal(t, "running", w.stream(client, r.last, func(r *http.Request) { r.Header.Del("Last-Event-ID") }).is(http.StatusOK).next().State)
}

// TestStreamsOfAJobShareItsReads follows one job from many readers.
func TestStreamsOfAJobShareItsReads(t *testing.T) {
	t.Parallel()
	const readers = 50
	w := newWorld(t)
	client := w.serve()
	w.submit("order-17", simple).do().is(http.StatusCreated)
	var all []*reader
	for range readers {
		r := w.stream(client, "").is(http.StatusOK)
		r.next()
		all = append(all, r)
	}
	w.set(func() { w.jobReads = 0 })
	w.claimed(order17)
	for _, r := range all {
		require.Equal(t, "running", r.next().Attempts[0].State)
	}
	w.set(func() { require.Equal(t, 1, w.jobReads) })
}

func TestClosingEndsStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := w.serve()
	w.submit("order-17", simple).do().is(http.StatusCreated)
	r := w.stream(client, "").is(http.StatusOK)
	r.next()
	w.api.EndWaits()
	r.ends()
}

func TestUnreadableTablesEndAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	client := w.serve()
	w.submit("order-17", simple).do().is(http.StatusCreated)
	r := w.stream(client, "").is(http.StatusOK)
	r.next()
	claim := w.claimed(order17)
	r.next()
	w.set(func() { w.jobFault = errors.New("the database is away") })
	w.completed(claim, ledger.OutcomeSucceeded)
	r.ends()
	w.set(func() { w.jobFault = nil })
	require.Equal(t, "succeeded", w.stream(client, r.last).is(http.StatusOK).next().State)
}
