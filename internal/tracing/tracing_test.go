package tracing_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"jobledger/internal/tracing"
	"jobledger/workers"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	parent  = "00-" + traceID + "-b7ad6b7169203331-01"
)

// A sink is an OTLP collector over HTTP.
type sink struct {
	mu    sync.Mutex
	spans []*tracepb.Span
	url   string
}

func newSink(t *testing.T) *sink {
	t.Helper()
	s := &sink{}
	server := httptest.NewServer(http.HandlerFunc(s.take))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *sink) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "no traces", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, group := range request.GetResourceSpans() {
		for _, scope := range group.GetScopeSpans() {
			s.spans = append(s.spans, scope.GetSpans()...)
		}
	}
}

func options(t *testing.T, log io.Writer, env map[string]string) tracing.Options {
	for name, value := range env {
		t.Setenv(name, value)
	}
	return tracing.Options{Version: "v1", Instance: "here/1", Getenv: func(name string) string { return env[name] },
		Log: slog.New(slog.NewTextHandler(log, nil))}
}

func closed(t *testing.T, tr *tracing.Tracing) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, tr.Close(ctx))
}

// TestWithoutAnExporterTheTraceTravels: what comes in goes on unchanged, and what
// is no traceparent goes nowhere.
func TestWithoutAnExporterTheTraceTravels(t *testing.T) {
	tr := tracing.New(t.Context(), options(t, io.Discard, nil))
	defer closed(t, tr)
	for given, want := range map[string]string{
		parent: parent, "": "", "nonsense": "", parent + "\r\nX: 1": "",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": "",
		"00-" + traceID + "-b7ad6b7169203331-00":                  "00-" + traceID + "-b7ad6b7169203331-00",
	} {
		require.Equal(t, want, tracing.Valid(given))
		var seen string
		handler := tr.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = tr.Traceparent(r.Context()) }))
		r := httptest.NewRequest(http.MethodPost, "/v1/jobs", nil)
		r.Header.Set(tracing.Header, given)
		handler.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, want, seen)

		ctx, next, end := tr.Begin(t.Context(), workers.SpanCall, given, workers.Traced{})
		end("succeeded")
		require.Equal(t, want, next)
		require.Equal(t, want, tr.Traceparent(ctx))
	}
}

func TestSpansAreExported(t *testing.T) {
	s := newSink(t)
	tr := tracing.New(t.Context(), options(t, io.Discard, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": s.url}))
	mux := http.NewServeMux()
	var inside string
	mux.HandleFunc("POST /v1/jobs/{id}/cancel", func(w http.ResponseWriter, r *http.Request) {
		inside = tr.Traceparent(r.Context())
		w.Header().Set("Ledger-Job-Id", "the job")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	mux.HandleFunc("GET /readyz", func(_ http.ResponseWriter, r *http.Request) { require.Empty(t, tr.Traceparent(r.Context())) })
	handler := tr.Handler(mux)
	for target, method := range map[string]string{"/v1/jobs/7/cancel": http.MethodPost, "/readyz": http.MethodGet} {
		r := httptest.NewRequest(method, target, nil)
		r.Header.Set(tracing.Header, parent)
		handler.ServeHTTP(httptest.NewRecorder(), r)
		require.NotEmpty(t, r.Pattern, "the route is handed out")
	}
	_, call, end := tr.Begin(t.Context(), workers.SpanCall, inside, workers.Traced{Job: uuid.Nil, Attempt: 1, Kind: "k", Provider: "p"})
	end("unknown")
	require.Contains(t, call, traceID)
	closed(t, tr)

	require.Len(t, s.spans, 2, "none for /readyz")
	server, client := s.spans[0], s.spans[1]
	require.Equal(t, "POST /v1/jobs/{id}/cancel", server.GetName())
	require.Equal(t, "b7ad6b7169203331", hex.EncodeToString(server.GetParentSpanId()))
	require.Equal(t, tracepb.Status_STATUS_CODE_ERROR, server.GetStatus().GetCode())
	require.Contains(t, server.String(), "the job")
	require.Equal(t, workers.SpanCall, client.GetName())
	require.Equal(t, traceID, hex.EncodeToString(client.GetTraceId()))
	require.Equal(t, hex.EncodeToString(server.GetSpanId()), hex.EncodeToString(client.GetParentSpanId()))
	require.Equal(t, tracepb.Status_STATUS_CODE_ERROR, client.GetStatus().GetCode())
}

// TestEnvironmentDecides: what the environment does not ask for, or asks for and
// cannot have, is not done, and the latter is said.
func TestEnvironmentDecides(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, c := range map[string]struct {
		env  map[string]string
		says string
	}{
		"nothing":       {nil, ""},
		"off":           {map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, ""},
		"disabled":      {map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "TRUE"}, ""},
		"endpoint":      {map[string]string{endpoint: "http://127.0.0.1:1"}, "exporting traces"},
		"exporter":      {map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, "exporting traces"},
		"other":         {map[string]string{"OTEL_TRACES_EXPORTER": "console"}, "expected otlp or none"},
		"grpc":          {map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "expected http/protobuf"},
		"grpc for them": {map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, "expected http/protobuf"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			tr := tracing.New(t.Context(), options(t, &log, c.env))
			closed(t, tr)
			if c.says == "" {
				require.Empty(t, log.String())
			}
			require.Contains(t, log.String(), c.says)
		})
	}
}

// TestCloseIsBounded: a collector that does not answer holds nobody up.
func TestCloseIsBounded(t *testing.T) {
	stuck := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stuck }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stuck) })
	tr := tracing.New(t.Context(), options(t, io.Discard, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL}))
	_, _, end := tr.Begin(t.Context(), workers.SpanCall, "", workers.Traced{})
	end("succeeded")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, tr.Close(ctx), context.DeadlineExceeded)
}
