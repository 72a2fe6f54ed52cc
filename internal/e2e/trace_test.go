package e2e_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"jobledger/internal/testenv"
)

const (
	testTraceID = "0af7651916cd43dd8448eb211c80319c"
	testSpanID  = "b7ad6b7169203331"
	testTrace   = "00-" + testTraceID + "-" + testSpanID + "-01"
)

// withEnv adds NAME=value pairs to a process's environment.
func withEnv(pairs ...string) serveOption {
	return func(p *process) { p.env = append(slices.Clip(p.env), pairs...) }
}

// withArgs adds arguments to a process's command line.
func withArgs(args ...string) serveOption {
	return func(p *process) { p.args = append(p.args, args...) }
}

// heard is an HTTP provider that notes the trace of each call.
type heard struct {
	url string

	mu     sync.Mutex
	traces map[string]string // by job
}

func newHeard(t testing.TB) *heard {
	t.Helper()
	h := &heard{traces: map[string]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.traces[r.Header.Get("Ledger-Job-Id")] = r.Header.Get("traceparent")
		_, _ = io.WriteString(w, `{"ok":true}`)
	}))
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

func (h *heard) of(job string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.traces[job]
}

// An otlpSink is a collector of spans over HTTP.
type otlpSink struct {
	url string

	mu    sync.Mutex
	spans []*tracepb.Span
}

func newOTLPSink(t testing.TB) *otlpSink {
	t.Helper()
	s := &otlpSink{}
	server := httptest.NewServer(http.HandlerFunc(s.take))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *otlpSink) take(w http.ResponseWriter, r *http.Request) {
	var request collector.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
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

// byName returns the spans of a trace by their names, of which each is there once.
func (s *otlpSink) byName(t testing.TB, traceID string) map[string]*tracepb.Span {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]*tracepb.Span{}
	for _, span := range s.spans {
		if hex.EncodeToString(span.GetTraceId()) == traceID {
			require.NotContains(t, found, span.GetName())
			found[span.GetName()] = span
		}
	}
	return found
}

// entryTraces returns the traceparents of the stream's entries, by subject
// without prefix.
func (w *world) entryTraces() map[string]string {
	w.t.Helper()
	s, err := w.js.Stream(w.ctx(), w.stream)
	require.NoError(w.t, err)
	traces := map[string]string{}
	for seq := uint64(1); seq <= w.streamEnd(); seq++ {
		m, err := s.GetMsg(w.ctx(), seq)
		require.NoError(w.t, err)
		traces[strings.TrimPrefix(m.Subject, w.prefix+".")] = m.Header.Get("traceparent")
	}
	return traces
}

func tracedYAML(url string) string {
	return fmt.Sprintf(`
kinds:
  call: {providers: [web]}
  run:  {providers: [tool]}
providers:
  web:  {type: http, url: %q}
  tool: {type: exec, command: [sh, -c, "cat >/dev/null; printf '\"%%s\"' \"$TRACEPARENT\""]}
`, url)
}

// TestOneTraceFromSubmissionToCompletion: spans of the API and of the worker are
// one trace, which the caller began and the provider goes on with.
func TestOneTraceFromSubmissionToCompletion(t *testing.T) {
	t.Parallel()
	web, sink := newHeard(t), newOTLPSink(t)
	w := newWorld(t, setup{yaml: tracedYAML(web.url)})
	exporting := withEnv("OTEL_EXPORTER_OTLP_ENDPOINT="+sink.url, "OTEL_BSP_SCHEDULE_DELAY=50")
	w.serve("projector") // hands the trace on without an exporter
	api := w.serve("api", exporting)
	w.serve("worker", exporting)
	w.apply()
	c := api.client("acme")
	c.do("POST", "/v1/jobs", `{"kind":"call","input":1}`, "Idempotency-Key", "k", "Traceparent", testTrace).created()
	id := c.jobID("k")
	c.finished(id, "succeeded")

	var spans map[string]*tracepb.Span
	names := []string{"POST /v1/jobs", "attempt", "claim", "call", "complete"}
	testenv.Eventually(t, patience, func() (bool, string) {
		spans = sink.byName(t, testTraceID)
		return len(spans) >= len(names), fmt.Sprintf("%d spans of %q", len(spans), names)
	})
	parents := map[string]string{"POST /v1/jobs": testSpanID, "attempt": spanID(spans["POST /v1/jobs"])}
	for _, step := range []string{"claim", "call", "complete"} {
		parents[step] = spanID(spans["attempt"])
	}
	for _, name := range names {
		require.Contains(t, spans, name)
		require.Equal(t, parents[name], hex.EncodeToString(spans[name].GetParentSpanId()), name)
		require.Contains(t, spans[name].String(), id, "%s names the job", name)
	}
	require.Equal(t, traceOf(spans["call"]), web.of(id), "the provider goes on below the call")
	traces := w.entryTraces()
	require.Equal(t, traceOf(spans["POST /v1/jobs"]), traces["job.request"])
	require.Equal(t, traces["job.request"], traces["attempt.start.web"])
	require.Equal(t, traceOf(spans["claim"]), traces["attempt.claim.web"])
	require.Equal(t, traceOf(spans["complete"]), traces["attempt.complete.web"])

	// Without a caller's trace the API begins one.
	id = c.create("k2", `{"kind":"call","input":1}`)
	c.finished(id, "succeeded")
	require.Regexp(t, `^00-[0-9a-f]{32}-[0-9a-f]{16}-0[13]$`, web.of(id))
	require.NotContains(t, web.of(id), testTraceID)
	w.verify()
}

func spanID(s *tracepb.Span) string { return hex.EncodeToString(s.GetSpanId()) }

func traceOf(s *tracepb.Span) string {
	return "00-" + hex.EncodeToString(s.GetTraceId()) + "-" + spanID(s) + fmt.Sprintf("-%02x", s.GetFlags()&0xff)
}

// TestTraceTravelsWithoutAnExporter: through each door, to both kinds of
// providers; what is no trace goes no further, and none is made up.
func TestTraceTravelsWithoutAnExporter(t *testing.T) {
	t.Parallel()
	web := newHeard(t)
	w, c := startWorld(t, tracedYAML(web.url))
	finish := func(key, want string) {
		t.Helper()
		id := c.jobID(key)
		w.eventually(1, "SELECT count(*) FROM ledger.jobs WHERE id = $1 AND state = 'succeeded'", id)
		require.Equal(t, want, web.of(id), key)
	}
	for key, trace := range map[string]string{"http": testTrace, "nonsense": "00-nonsense", "none": ""} {
		c.mustVerdict("POST", "/v1/jobs", `{"kind":"call","input":1}`, "Idempotency-Key", key, "Traceparent", trace)
	}
	finish("http", testTrace)
	finish("nonsense", "")
	finish("none", "")

	message := func(subject, body, trace string) *nats.Msg {
		return &nats.Msg{Subject: w.prefix + "." + subject, Data: []byte(body), Header: nats.Header{"traceparent": {trace}}}
	}
	_, err := w.js.PublishMsg(w.ctx(), message("job.request", `{"v":1,"owner":"acme","key":"plain","kind":"call","input":1}`, testTrace))
	require.NoError(t, err)
	finish("plain", testTrace)
	_, err = w.js.PublishMsg(w.ctx(), message("job.request", `{"v":1,"owner":"acme","key":"odd","kind":"call","input":1}`, "who knows"))
	require.NoError(t, err)
	finish("odd", "")
	_, err = w.js.Conn().RequestMsgWithContext(w.ctx(), message("api.job.submit", `{"owner":"acme","key":"service","kind":"call","input":1}`, testTrace))
	require.NoError(t, err)
	finish("service", testTrace)

	path, err := program()
	require.NoError(t, err)
	command := exec.Command(path, "submit", "--owner", "acme", "--key", "command", "--kind", "call", "--input", "1")
	command.Dir, command.Env = w.dir, append(w.environment(w.database), "TRACEPARENT="+testTrace)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	finish("command", testTrace)

	id := c.jobID("program")
	c.mustVerdict("POST", "/v1/jobs", `{"kind":"run","input":1}`, "Idempotency-Key", "program", "Traceparent", testTrace)
	require.Equal(t, testTrace, c.finished(id, "succeeded").text("result"))
	require.Equal(t, testTrace, w.entryTraces()["attempt.complete.tool"])
	w.verify()
}
