package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/metrics"
	"jobledger/internal/testenv"
	"jobledger/ledger"
	"jobledger/projector"
	"jobledger/publisher/httpapi"
)

// TestMetricsAddress: processes of one machine may share a configuration; what
// the command line asks for is had or refused.
func TestMetricsAddress(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	taken, err := metricsAt("", "127.0.0.1:0").listenTo(t.Context(), quiet)
	require.NoError(t, err)
	defer taken.Close()
	address := taken.Addr().String()

	var log strings.Builder
	other, err := metricsAt("", address).listenTo(t.Context(), slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	defer other.Close()
	require.NotEqual(t, address, other.Addr().String())
	require.Equal(t, "127.0.0.1", other.Addr().(*net.TCPAddr).IP.String(), "not beyond the host that was asked for")
	require.Contains(t, log.String(), other.Addr().String())

	_, err = metricsAt(address, "127.0.0.1:0").listenTo(t.Context(), quiet)
	require.ErrorContains(t, err, "address already in use")
	_, err = metricsAt("", "no address").listenTo(t.Context(), quiet)
	require.Error(t, err)
}

func TestProjectorState(t *testing.T) {
	t.Parallel()
	for want, status := range map[string]projector.Status{
		metrics.ProjectorActive:     {Active: true},
		metrics.ProjectorStandby:    {Err: fmt.Errorf("store: %w", projector.ErrOtherWriter)},
		metrics.ProjectorRecovering: {Err: errors.New("the database is away")},
		metrics.ProjectorStopped:    {Err: fmt.Errorf("read: %w", &projector.StreamError{})},
	} {
		require.Equal(t, want, projectorState(status))
	}
	require.Equal(t, metrics.ProjectorStopped, projectorState(projector.Status{Err: &ledger.CorruptionError{}}))
}

// TestRequestsAreLoggedWithoutTheirQuery: owners and keys stand there.
func TestRequestsAreLoggedWithoutTheirQuery(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/jobs", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(httpapi.JobHeader, "the-job")
		w.WriteHeader(http.StatusTeapot)
	})
	serve := func(level slog.Level) {
		h := logged(mux, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level})))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/jobs?owner=acme&key=secret", nil))
	}
	serve(slog.LevelInfo)
	require.Empty(t, log.String())
	serve(slog.LevelDebug)
	require.Regexp(t, `route="GET /v1/jobs" status=418 job=the-job took=`, log.String())
	require.NotContains(t, log.String(), "secret")
}

// TestDevServesMetrics: where dev.json says, with what happened in it and
// nothing of whose it was.
func TestDevServesMetrics(t *testing.T) {
	t.Parallel()
	dev := shared.get(t)
	require.NotEmpty(t, dev.where.Metrics)
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequest(http.MethodPost, dev.where.HTTP+"/v1/jobs", strings.NewReader(`{"kind":"echo","input":"a-payload"}`))
	require.NoError(t, err)
	request.Header.Set("Ledger-Owner", "measured-owner")
	request.Header.Set("Idempotency-Key", "measured-key")
	resp, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	job := resp.Header.Get("Ledger-Job-Id")
	scrape := func() string {
		resp, err := client.Get(dev.where.Metrics)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return string(body)
	}
	for _, series := range []string{
		`jobledger_submissions_total{outcome="accepted"} `, `jobledger_submit_seconds_count `,
		`jobledger_entries_total{decision="accepted",entry="job.request",reason=""} `,
		`jobledger_appends_total{entry="attempt.start",outcome="stored"} `,
		`jobledger_attempts_total{kind="echo",outcome="succeeded",provider="echo"} `,
		`jobledger_attempt_seconds_count{kind="echo",provider="echo"} `,
		`jobledger_claims_total{decision="accepted",provider="echo",reason=""} `,
		`jobledger_http_requests_total{route="POST /v1/jobs",status="201"} `,
		`jobledger_projector_state{state="active"} 1`, `jobledger_projector_lag_entries{shard="0"} `,
		`jobledger_nats_connected{role="api"} 1`, `jobledger_stream_bytes `, `jobledger_tables_readable 1`, `jobledger_stream_readable 1`,
		`jobledger_calls_limit{provider="echo"} 16`, `jobledger_worker_pulls{provider="echo"} `,
	} {
		testenv.Eventually(t, 30*time.Second, func() (bool, string) {
			return strings.Contains(scrape(), "\n"+series), "no series " + series
		})
	}
	text := scrape()
	for _, private := range []string{job, "measured-owner", "measured-key", "a-payload"} {
		require.False(t, strings.Contains(text, private), private)
	}
}
