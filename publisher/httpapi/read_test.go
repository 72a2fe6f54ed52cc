package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/publisher/httpapi"
)

func TestGetJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.get("/v1/jobs/"+order17).do().is(http.StatusNotFound, "not-found")
	w.submit("order-17", simple).do().is(http.StatusCreated)
	a := w.get("/v1/jobs/" + order17).do().is(http.StatusOK)
	require.Equal(t, order17, a.header.Get("Ledger-Job-Id"))
	w.get("/v1/jobs/nonsense").do().is(http.StatusBadRequest, "bad-request")
	w.get("/v1/jobs/"+order17+"?wat=1s").do().is(http.StatusBadRequest, "bad-query")
	w.get("/v1/jobs/"+order17+"?wait=long").do().is(http.StatusBadRequest, "bad-query")
	w.get("/v1/jobs/"+order17+"?until=late").do().is(http.StatusBadRequest, "bad-query")
}

func TestAnotherOwnersJobLooksAbsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	absent := w.get("/v1/jobs/"+order17).do().is(http.StatusNotFound, "not-found")
	w.submit("order-17", simple).do().is(http.StatusCreated)
	hidden := w.get("/v1/jobs/"+order17).as("p-other").do().is(http.StatusNotFound, "not-found")
	require.Equal(t, absent.body, hidden.body)
	w.get("/v1/jobs/" + order17).as("o-root").do().is(http.StatusOK)
}

func TestAbsenceNeedsTablesThatAreNotBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *httpapi.Options) { o.BehindWait = 300 * time.Millisecond })
	w.submit("order-17", simple).do().is(http.StatusCreated)
	w.set(func() { w.frozen = true })
	w.get("/v1/jobs/"+order17).do().is(http.StatusServiceUnavailable, "read-model-behind")

	result := make(chan answer)
	before := w.readsSoFar()
	go func() { result <- w.get("/v1/jobs/" + order17).do() }()
	require.Eventually(t, func() bool { return w.readsSoFar() > before }, time.Minute, time.Millisecond)
	w.set(func() { w.frozen = false })
	(<-result).is(http.StatusOK)
}

func (w *world) readsSoFar() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

func TestUnreadableTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.readFault = errors.New("password=secret")
	for _, path := range []string{"/v1/jobs/" + order17, "/v1/jobs", "/v1/attempts"} {
		a := w.get(path).do().is(http.StatusServiceUnavailable, "unavailable")
		require.NotContains(t, a.body["detail"], "secret")
		require.Equal(t, a.header.Get("Ledger-Request-Id"), a.body["request_id"])
	}
	w.submit("k", simple).do().is(http.StatusAccepted)
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []*call{
		w.get("/v1/jobs").without("Authorization"),
		w.get("/v1/jobs").as("x-acme"),
		w.get("/v1/jobs").with("Authorization", "Basic cDp4"),
		w.submit("k", simple).without("Authorization"),
		w.request("POST", attemptsPath+"/1/resolve", "").without("Authorization"),
	} {
		a := c.do().is(http.StatusUnauthorized, "unauthorized")
		require.True(t, strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer "))
	}
	w.get("/v1/jobs").with("Ledger-Owner", "other").do().is(http.StatusForbidden, "forbidden")
	w.get("/v1/jobs").with("Ledger-Owner", "acme").do().is(http.StatusOK)
	a := w.submit("k", simple).as("o-root").with("Ledger-Owner", "other").do().is(http.StatusCreated)
	require.Equal(t, "other", a.body["owner"])
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
		w.get(path).without("Authorization").do().is(http.StatusOK)
	}
}

func TestDevAuth(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *httpapi.Options) { o.Auth = httpapi.DevAuth() })
	w.submit("order-17", simple).do().is(http.StatusUnauthorized, "unauthorized")
	w.submit("order-17", simple).with("Ledger-Owner", "").do().is(http.StatusUnauthorized, "unauthorized")
	w.submit("order-17", simple).with("Ledger-Owner", "a\tb").do().is(http.StatusBadRequest, "bad-owner")
	twice := w.submit("order-17", simple).with("Ledger-Owner", "acme")
	twice.req.Header.Add("Ledger-Owner", "acme")
	twice.do().is(http.StatusBadRequest, "bad-owner")
	a := w.submit("order-17", simple).with("Ledger-Owner", "acme").do().is(http.StatusCreated)
	require.Equal(t, order17, a.body["id"])
	a = w.submit("x y", simple).with("Ledger-Owner", "é").do().is(http.StatusCreated)
	require.Equal(t, "baba3ee4-4223-54c7-a329-15c54a63cc55", a.body["id"])
}

func TestRoutesThatAreNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.get("/v2/jobs").do().is(http.StatusNotFound, "not-found")
	a := w.request("DELETE", "/v1/jobs/"+order17, "").do().is(http.StatusMethodNotAllowed, "method-not-allowed")
	require.Equal(t, "GET, HEAD", a.header.Get("Allow"))
	a = w.request("PUT", "/v1/jobs", "").do().is(http.StatusMethodNotAllowed, "method-not-allowed")
	require.Contains(t, a.header.Get("Allow"), "POST")
}

func TestPanicIsAnswered(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	w := newWorld(t, func(o *httpapi.Options) {
		o.Auth = func(*http.Request) (httpapi.Principal, error) { panic("secret") }
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	a := w.get("/v1/jobs").with("Ledger-Request-Id", "my-id").do().is(http.StatusInternalServerError, "internal")
	require.Equal(t, "my-id", a.header.Get("Ledger-Request-Id"))
	require.NotContains(t, a.body["detail"], "secret")
	require.Contains(t, log.String(), "my-id")
	require.Contains(t, log.String(), "secret")
}

func TestOpenAPIDescribesEveryRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	doc := w.get("/openapi.json").do().is(http.StatusOK)
	require.Equal(t, "3.1.0", doc.body["openapi"])
	require.ElementsMatch(t, []string{"/v1/jobs", "/v1/jobs/{id}", "/v1/jobs/{id}/events", "/v1/jobs/{id}/cancel", "/v1/jobs/{id}/attempts",
		"/v1/jobs/{id}/attempts/{n}", "/v1/jobs/{id}/attempts/{n}/resolve", "/v1/attempts",
		"/v1/providers", "/v1/providers/{name}/pause", "/v1/providers/{name}/resume", "/healthz", "/readyz", "/openapi.json"},
		keys(doc.body["paths"].(map[string]any)))
	text, err := json.Marshal(doc.body)
	require.NoError(t, err)
	for _, name := range []string{"state_reason", "next_cursor", "Idempotency-Key", "application/problem+json", "text/event-stream"} {
		require.Contains(t, string(text), name)
	}
}

func TestServeStopsWithinItsGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit("order-17", simple).do().is(http.StatusCreated)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- w.api.Serve(ctx, l, time.Minute) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	before := w.readsSoFar()
	status := make(chan int)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Addr().String()+"/v1/jobs/"+order17+"?wait=1m", nil)
		if err != nil {
			t.Error(err)
		}
		req.Header.Set("Authorization", "Bearer p-acme")
		res, err := client.Do(req)
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		_ = res.Body.Close()
		status <- res.StatusCode
	}()
	require.Eventually(t, func() bool { return w.readsSoFar() >= before+2 }, time.Minute, time.Millisecond)
	cancel()
	require.Equal(t, http.StatusOK, <-status)
	require.NoError(t, <-served)
}
