package metrics

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
	"jobledger/projector"
	"jobledger/publisher"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

var quiet = slog.New(slog.DiscardHandler)

// scrape returns what Prometheus would get.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Scrapes(quiet).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	return w.Body.String()
}

// sample returns the value of a series, as it stands in a scrape.
func sample(t *testing.T, text, series string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	require.Fail(t, "no such series", "%s\n%s", series, ours(text))
	return ""
}

// ours leaves out the figures of the Go runtime.
func ours(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, namespace+"_") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// exercised has been told, and asked, everything there is.
func exercised(t *testing.T) *Metrics {
	t.Helper()
	m := New("v1")
	m.Appended("job.request", publisher.Ack{Seq: 1}, nil, time.Millisecond)
	m.Decided("job.request", ledger.Answer{Decision: ledger.Accepted}, nil, time.Millisecond)
	m.Decided("attempt.claim.primary", ledger.Answer{Decision: ledger.Refused, Reason: ledger.AlreadyClaimed}, nil, time.Millisecond)
	m.Committed(projector.CommitReport{Shard: 1, Seq: 7, Oldest: time.Now().Add(-time.Second), Took: time.Millisecond,
		Folded: map[projector.Folded]int{{Entry: ledger.AttemptComplete, Decision: ledger.Refused, Reason: ledger.ResultAlreadyClaimed}: 2}})
	m.Ended("primary")("echo", ledger.OutcomeUnknown, time.Second)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/jobs/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	m.Handler(mux).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/jobs/7", nil))
	m.Served("job.get", http.StatusOK, time.Second)
	m.Reconciled("primary", "settled")
	m.WorkerLost("w")
	m.AddLink(Link{Role: "api", Connected: func() bool { return true }, Waiting: func() int { return 3 }, Dropped: func() uint64 { return 1 }})
	m.AddPool(Pool{Provider: "primary", Concurrency: 16, Calls: func() int { return 2 }})
	m.SetProjector(func() string { return ProjectorStandby })
	m.SetWatches(func() int { return 5 })
	m.AddSource(newSource(t))
	return m
}

// newSource is a source with everything in it: a limited stream of five entries
// of which three are in the tables, a consumer, unknown attempts, waiting jobs.
func newSource(t *testing.T) Source {
	t.Helper()
	js, name, prefix := testenv.Stream(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	for range 5 {
		_, err := js.Publish(ctx, prefix+".attempt.start.primary", []byte("x"))
		require.NoError(t, err)
	}
	stream, err := js.Stream(ctx, name)
	require.NoError(t, err)
	config := stream.CachedInfo().Config
	config.MaxBytes = 1 << 20
	_, err = js.UpdateStream(ctx, config)
	require.NoError(t, err)
	_, err = js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{Durable: "worker-primary", FilterSubject: prefix + ".attempt.start.primary",
		AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	return Source{Stream: stream, Log: quiet, Tables: func(context.Context) (projector.Gauges, error) {
		return projector.Gauges{
			Unknown: []projector.UnknownGroup{{Provider: "primary", Kind: "echo", Attempts: 2, Since: time.Now().Add(-time.Hour)}},
			Waiting: map[ledger.StateReason]int64{ledger.Held: 4}, Checkpoints: []uint64{3, 5},
			Proofs: []projector.ProofGauge{
				{Provider: "fallback", Kind: "echo", ExpiresAt: time.Now().Add(time.Hour)},
				{Provider: "third", Kind: "echo", Lapsed: "contract changed", ExpiresAt: time.Now().Add(time.Hour)},
				{Provider: "fourth", Kind: "echo", Lapsed: "none"},
			},
		}, nil
	}}
}

var typeLine = regexp.MustCompile(`^# TYPE (jobledger_\w+) (\w+)`)

// TestNamesAndLabels: what dashboards and alerts rely on changes only on
// purpose, and docs/operations.md has every name.
func TestNamesAndLabels(t *testing.T) {
	t.Parallel()
	text := scrape(t, exercised(t))
	var b strings.Builder
	docs, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		if found := typeLine.FindStringSubmatch(line); found != nil {
			fmt.Fprintf(&b, "%s %s %s\n", found[1], found[2], strings.Join(labelsOf(text, found[1]), ","))
			require.Contains(t, string(docs), "`"+found[1]+"`", "docs/operations.md")
		}
	}
	golden := filepath.Join("testdata", "names.txt")
	if *rewrite {
		require.NoError(t, os.WriteFile(golden, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String(), "go test -rewrite writes the file anew")
}

var labelName = regexp.MustCompile(`(\w+)="`)

// labelsOf returns the labels of a metric's series.
func labelsOf(text, name string) []string {
	series := regexp.MustCompile(`(?m)^` + name + `(_bucket|_sum|_count)?(\{.*\})? `)
	var labels []string
	for _, line := range series.FindAllString(text, -1) {
		for _, found := range labelName.FindAllStringSubmatch(line, -1) {
			if found[1] != "le" && !slices.Contains(labels, found[1]) {
				labels = append(labels, found[1])
			}
		}
	}
	slices.Sort(labels)
	return labels
}

// An alertFile is the part of a Prometheus rule file that ours uses.
type alertFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For string
			Labels           map[string]string
			Annotations      map[string]string
		}
	}
}

var (
	metricInExpr   = regexp.MustCompile(`jobledger_\w+`)
	matchersInExpr = regexp.MustCompile(`(jobledger_\w+)\{([^}]*)\}`)
	matcher        = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"[^"]*"`)
)

// TestAlertsNameWhatThereIs: a rule on a metric or a label that nobody exports is
// silent for ever, and looks like peace.
func TestAlertsNameWhatThereIs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../scripts/prometheus-alerts.yml")
	require.NoError(t, err)
	var file alertFile
	require.NoError(t, yaml.UnmarshalWithOptions(data, &file, yaml.Strict()))
	text := scrape(t, exercised(t))
	docs, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	require.NotEmpty(t, file.Groups)
	seen := map[string]bool{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			require.False(t, seen[rule.Alert], "%s is there twice", rule.Alert)
			seen[rule.Alert] = true
			require.Contains(t, []string{"page", "warn"}, rule.Labels["severity"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			require.Contains(t, string(docs), "`"+rule.Alert+"`", "docs/operations.md")
			checkRunbook(t, rule.Alert, rule.Annotations["runbook"])
			if rule.For != "" {
				_, err := time.ParseDuration(rule.For)
				require.NoError(t, err, rule.Alert)
			}
			checkExpr(t, rule.Alert, rule.Expr, text)
		}
	}
}

// checkRunbook checks that a link leads to a heading of a document.
func checkRunbook(t *testing.T, alert, link string) {
	t.Helper()
	path, anchor, _ := strings.Cut(link, "#")
	text, err := os.ReadFile("../../" + path)
	require.NoError(t, err, "%s: the runbook %s", alert, link)
	for line := range strings.Lines(string(text)) {
		heading, found := strings.CutPrefix(line, "## ")
		if found && strings.ReplaceAll(strings.ToLower(strings.TrimSpace(heading)), " ", "-") == anchor {
			return
		}
	}
	require.Fail(t, "no such heading", "%s: the runbook %s", alert, link)
}

func checkExpr(t *testing.T, alert, expr, text string) {
	t.Helper()
	names := metricInExpr.FindAllString(expr, -1)
	require.NotEmpty(t, names, "%s: %s", alert, expr)
	for _, name := range names {
		require.Contains(t, text, "\n# TYPE "+name+" ", "%s: no process exports %s", alert, name)
	}
	for _, found := range matchersInExpr.FindAllStringSubmatch(expr, -1) {
		for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
			require.Contains(t, labelsOf(text, found[1]), m[1], "%s: %s has no such label", alert, found[1])
		}
	}
	require.Equal(t, strings.Count(expr, "("), strings.Count(expr, ")"), "%s: parentheses", alert)
}

// TestHooksCount: each outcome is counted under its own name.
func TestHooksCount(t *testing.T) {
	t.Parallel()
	m := New("v1")
	unconfirmed, lost := &publisher.AppendError{Unconfirmed: true, Cause: io.EOF}, &publisher.AppendError{Cause: io.EOF}
	m.Appended("job.request.web", publisher.Ack{}, nil, 0)
	m.Appended("job.request", publisher.Ack{Duplicate: true}, nil, 0)
	m.Appended("attempt.start.primary", publisher.Ack{}, unconfirmed, 0)
	m.Appended("attempt.start.primary", publisher.Ack{}, lost, 0)
	m.Appended("nonsense", publisher.Ack{}, nil, 0)
	for _, d := range []struct {
		answer ledger.Answer
		err    error
	}{
		{answer: ledger.Answer{Decision: ledger.Accepted}}, {answer: ledger.Answer{Decision: ledger.Conflict}},
		{err: &publisher.DuplicateAppendError{Seq: 1}}, {err: &publisher.NoDecisionError{Seq: 1}}, {err: unconfirmed}, {err: lost},
		{err: errors.New("anything else")},
	} {
		m.Decided("job.request", d.answer, d.err, 0)
	}
	m.Committed(projector.CommitReport{Folded: map[projector.Folded]int{}}) // nothing but a checkpoint
	m.Committed(projector.CommitReport{Oldest: time.Now().Add(time.Hour), Folded: map[projector.Folded]int{
		{Entry: ledger.AttemptComplete, Decision: ledger.Refused, Reason: ledger.ResultAlreadyClaimed}: 2,
		{Entry: ledger.AttemptComplete, Decision: ledger.Accepted}:                                     3,
	}})
	text := scrape(t, m)
	for series, want := range map[string]string{
		`jobledger_appends_total{entry="job.request",outcome="stored"}`:                                        "1",
		`jobledger_appends_total{entry="job.request",outcome="duplicate"}`:                                     "1",
		`jobledger_appends_total{entry="attempt.start",outcome="unconfirmed"}`:                                 "1",
		`jobledger_appends_total{entry="attempt.start",outcome="not_appended"}`:                                "1",
		`jobledger_appends_total{entry="other",outcome="stored"}`:                                              "1",
		`jobledger_submissions_total{outcome="accepted"}`:                                                      "1",
		`jobledger_submissions_total{outcome="conflict"}`:                                                      "1",
		`jobledger_submissions_total{outcome="duplicate"}`:                                                     "1",
		`jobledger_submissions_total{outcome="undecided"}`:                                                     "1",
		`jobledger_submissions_total{outcome="unconfirmed"}`:                                                   "1",
		`jobledger_submissions_total{outcome="not_appended"}`:                                                  "2",
		`jobledger_submit_seconds_count`:                                                                       "7",
		`jobledger_races_total`:                                                                                "2",
		`jobledger_projector_batch_entries_sum`:                                                                "5",
		`jobledger_projector_batch_entries_count`:                                                              "1",
		`jobledger_projector_commit_seconds_count`:                                                             "2",
		`jobledger_projector_apply_seconds_sum`:                                                                "0",
		`jobledger_entries_total{decision="accepted",entry="attempt.complete",reason=""}`:                      "3",
		`jobledger_entries_total{decision="refused",entry="attempt.complete",reason="result_already_claimed"}`: "2",
	} {
		require.Equal(t, want, sample(t, text, series), series)
	}
}

// TestRoutesAreCounted: by the mux's pattern, never by the path, which holds the
// ids of jobs; a handler that gives up is counted, too.
func TestRoutesAreCounted(t *testing.T) {
	t.Parallel()
	m := New("v1")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/jobs/{id}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") })
	mux.HandleFunc("GET /abort", func(w http.ResponseWriter, _ *http.Request) {
		require.Equal(t, "1", sample(t, scrape(t, m), "jobledger_http_requests_in_flight"))
		w.WriteHeader(http.StatusConflict)
		panic(http.ErrAbortHandler)
	})
	h := m.Handler(mux)
	for _, path := range []string{"/v1/jobs/7", "/v1/jobs/8", "/favicon.ico", "/abort"} {
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
		}()
	}
	text := scrape(t, m)
	for series, want := range map[string]string{
		`jobledger_http_requests_total{route="GET /v1/jobs/{id}",status="200"}`: "2",
		`jobledger_http_requests_total{route="none",status="404"}`:              "1",
		`jobledger_http_requests_total{route="GET /abort",status="409"}`:        "1",
		`jobledger_http_requests_in_flight`:                                     "0",
	} {
		require.Equal(t, want, sample(t, text, series), series)
	}
}

// TestLabelsAreBounded: whoever defines kinds without end, or answers with
// reasons of his own, does not fill the memory.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	m := New("v1")
	ended := m.Ended("primary")
	for i := range 2 * maxNames {
		ended(fmt.Sprint("kind", i), ledger.OutcomeSucceeded, 0)
		m.Decided(fmt.Sprint("attempt.claim.p", i), ledger.Answer{Reason: ledger.Reason(fmt.Sprint("reason", i))}, nil, 0)
	}
	text := scrape(t, m)
	require.Equal(t, maxNames+1, strings.Count(text, "\njobledger_attempts_total{"))
	require.LessOrEqual(t, strings.Count(text, "\njobledger_claims_total{"), maxNames+1)
	require.Equal(t, fmt.Sprint(maxNames), sample(t, text, `jobledger_attempts_total{kind="other",outcome="succeeded",provider="primary"}`))
	require.NotContains(t, text, fmt.Sprint("reason", maxReasons))
}

// TestLedgerFigures: the lag is what the tables have not applied, and how old
// that is; figures are asked once in a while, and left out when they cannot be had.
func TestLedgerFigures(t *testing.T) {
	t.Parallel()
	source := newSource(t)
	var asked atomic.Int32
	var broken atomic.Bool
	read := source.Tables
	source.Tables = func(ctx context.Context) (projector.Gauges, error) {
		asked.Add(1)
		if broken.Load() {
			return projector.Gauges{}, errors.New("no database")
		}
		return read(ctx)
	}
	var log bytes.Buffer
	source.Log = slog.New(slog.NewTextHandler(&log, nil))
	now := time.Now()
	m := New("v1")
	m.registry.MustRegister(&ledgerFigures{source: source, kinds: m.kinds, providers: m.providers, now: func() time.Time { return now }})
	entry, err := source.Stream.GetMsg(t.Context(), 4)
	require.NoError(t, err)

	now = entry.Time.Add(90 * time.Second)
	text := scrape(t, m)
	for series, want := range map[string]string{
		`jobledger_tables_readable`:                                                       "1",
		`jobledger_stream_readable`:                                                       "1",
		`jobledger_projector_lag_entries{shard="0"}`:                                      "2",
		`jobledger_projector_lag_entries{shard="1"}`:                                      "0",
		`jobledger_projector_lag_seconds{shard="0"}`:                                      "90",
		`jobledger_projector_lag_seconds{shard="1"}`:                                      "0",
		`jobledger_unknown_attempts{kind="echo",provider="primary"}`:                      "2",
		`jobledger_jobs_waiting{reason="held"}`:                                           "4",
		`jobledger_stream_messages`:                                                       "5",
		`jobledger_provider_proof{kind="echo",provider="fallback",state="valid"}`:         "1",
		`jobledger_provider_proof{kind="echo",provider="third",state="contract_changed"}`: "1",
		`jobledger_provider_proof{kind="echo",provider="fourth",state="none"}`:            "1",
		`jobledger_provider_proof_expires_seconds{kind="echo",provider="third"}`:          "0",
		`jobledger_stream_limit_bytes`:                                                    "1.048576e+06",
		`jobledger_starts_waiting{provider="primary"}`:                                    "5",
		`jobledger_worker_pulls{provider="primary"}`:                                      "0",
	} {
		require.Equal(t, want, sample(t, text, series), series)
	}
	oldest := sample(t, text, `jobledger_unknown_oldest_seconds{kind="echo",provider="primary"}`)
	require.Regexp(t, `^3[67]\d\d`, oldest)
	left := sample(t, text, `jobledger_provider_proof_expires_seconds{kind="echo",provider="fallback"}`)
	require.Regexp(t, `^3[0-5]\d\d`, left)

	broken.Store(true)
	now = now.Add(keepFor - time.Millisecond)
	require.Equal(t, "1", sample(t, scrape(t, m), "jobledger_tables_readable"))
	require.EqualValues(t, 1, asked.Load(), "the answer is still good")

	now = now.Add(time.Millisecond)
	text = scrape(t, m)
	require.EqualValues(t, 2, asked.Load())
	require.Equal(t, "0", sample(t, text, "jobledger_tables_readable"))
	require.Equal(t, "1", sample(t, text, "jobledger_stream_readable"))
	require.NotContains(t, text, "\njobledger_unknown_attempts", "nothing is better than yesterday's figures")
	require.NotContains(t, text, "\njobledger_projector_lag_seconds")
	require.Contains(t, log.String(), "no database")
}

// TestServe: only GET /metrics, and it ends with its context.
func TestServe(t *testing.T) {
	t.Parallel()
	m := New("v1")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- m.Serve(ctx, l, quiet) }()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for path, status := range map[string]int{"/metrics": http.StatusOK, "/": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound} {
		resp, err := client.Get("http://" + l.Addr().String() + path)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode, path)
		require.Equal(t, path == "/metrics", strings.Contains(string(body), `jobledger_build_info{go="go`), path)
	}
	cancel()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("the server does not end")
	}
}
