// Package metrics counts what a process of the ledger does and serves the
// figures to Prometheus.
//
// A [Metrics] is told by hooks of publisher, projector, workers and the HTTP API,
// which know nothing of it, and asks the tables and the stream itself, at most
// once in some seconds and only while somebody scrapes.
//
// Labels are names of kinds, providers, roles and routes, and words of closed
// sets: never the id of a job, an owner or a key. Whatever comes from elsewhere
// is bounded: see [words].
package metrics

import (
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// namespace starts every name but those of the Go runtime and the process.
const namespace = "jobledger"

// Buckets, in seconds but for entries.
var (
	// quickSeconds are for what takes milliseconds when all is well.
	quickSeconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	// slowSeconds are for calls of providers and for requests that may wait.
	slowSeconds  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}
	batchEntries = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}
)

// Metrics are the figures of one process. They are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	appends       *prometheus.CounterVec
	appendSeconds *prometheus.HistogramVec
	submissions   *prometheus.CounterVec
	submitSeconds prometheus.Histogram
	claims        *prometheus.CounterVec
	claimSeconds  *prometheus.HistogramVec

	entries       *prometheus.CounterVec
	races         prometheus.Counter
	batches       prometheus.Histogram
	commitSeconds prometheus.Histogram
	applySeconds  prometheus.Histogram
	checkpoints   *prometheus.GaugeVec
	late          *prometheus.GaugeVec

	attempts       *prometheus.CounterVec
	attemptSeconds *prometheus.HistogramVec

	reconciled  *prometheus.CounterVec
	workersLost prometheus.Counter

	requests        *prometheus.CounterVec
	requestSeconds  *prometheus.HistogramVec
	requestsPending prometheus.Gauge
	services        *prometheus.CounterVec
	serviceSeconds  *prometheus.HistogramVec

	live *live

	reasons, kinds, providers *words
}

// New returns Metrics that say that this is the given version of the program.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		reasons:  newWords(maxReasons), kinds: newWords(maxNames), providers: newWords(maxNames),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.describePublisher()
	m.describeProjector()
	m.describeWorkers()
	m.describeReconciler()
	m.describeHTTP()
	m.live = register(m, &live{providers: m.providers})
	m.gauge("build_info", "What runs here: always 1.", prometheus.Labels{"version": version, "go": runtime.Version()}, func() float64 { return 1 })
	return m
}

func (m *Metrics) describePublisher() {
	m.appends = m.counters("appends_total", "Entries that this process appended to the stream, by entry and outcome: stored, duplicate "+
		"(it was stored before), not_appended (provably not stored), unconfirmed (it may be stored).", "entry", "outcome")
	m.appendSeconds = m.histograms("append_seconds", "What an append took, repetitions included, until the stream acknowledged it or it was given up.", quickSeconds, "entry")
	m.submissions = m.counters("submissions_total", "Jobs submitted through this process, by decision; undecided: stored, and no decision came in time; "+
		"not_appended, unconfirmed: see appends.", "outcome")
	m.submitSeconds = m.histogram("submit_seconds", "From the submission of a job to the decision on it.", quickSeconds)
	m.claims = m.counters("claims_total", "Claims of this process's workers, by decision and reason; undecided: nobody said.", "provider", "decision", "reason")
	m.claimSeconds = m.histograms("claim_seconds", "From a claim to the decision on it.", quickSeconds, "provider")
}

func (m *Metrics) describeProjector() {
	m.entries = m.counters("entries_total", "Entries that this process's projector has folded and stored, by decision and reason; those that ask for no decision are left out.",
		"entry", "decision", "reason")
	m.races = m.counter("races_total", "Results that came after another attempt's had won, and were dropped.")
	m.batches = m.histogram("projector_batch_entries", "Entries, of those that ask for a decision, in a stored batch.", batchEntries)
	m.commitSeconds = m.histogram("projector_commit_seconds", "What storing a batch took.", quickSeconds)
	m.applySeconds = m.histogram("projector_apply_seconds", "From the moment at which a batch's first entry was in the stream to the moment at which the batch was in the tables.", quickSeconds)
	m.late = m.gauges("projector_late_starts", "Starts that could not be appended yet, say because the stream is full.", "shard")
	m.checkpoints = m.gauges("projector_checkpoint", "Sequence up to which this process's projector has brought the tables.", "shard")
}

func (m *Metrics) describeWorkers() {
	m.attempts = m.counters("attempts_total", "Attempts that this process's workers claimed, by how they were recorded: succeeded, failed, unsent, unknown.",
		"provider", "kind", "outcome")
	m.attemptSeconds = m.histograms("attempt_seconds", "From an attempt's claim to the record of its end.", slowSeconds, "provider", "kind")
}

func (m *Metrics) describeHTTP() {
	m.requests = m.counters("http_requests_total", "Requests to the API, by route (none: nothing is served there) and status.", "route", "status")
	m.requestSeconds = m.histograms("http_request_seconds", "What requests to the API took, the waiting that they asked for included.", slowSeconds, "route")
	m.requestsPending = m.pending("http_requests_in_flight", "Requests to the API that are being served, waiting ones included.")
	m.services = m.counters("service_requests_total", "Requests to the NATS services, by operation and HTTP status.", "operation", "status")
	m.serviceSeconds = m.histograms("service_request_seconds", "What requests to the NATS services took.", slowSeconds, "operation")
}

func register[C prometheus.Collector](m *Metrics, c C) C {
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	return register(m, prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}))
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(m, prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return register(m, prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}))
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels))
}

func (m *Metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels))
}

func (m *Metrics) pending(name, help string) prometheus.Gauge {
	return register(m, prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}))
}

// gauge registers a figure that is read when somebody scrapes. It panics if the
// same one is registered twice: that is the caller's mistake.
func (m *Metrics) gauge(name, help string, labels prometheus.Labels, read func() float64) {
	register(m, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels}, read))
}

// desc describes a metric of a collector of our own.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// truth is 1 or 0.
func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func shardName(n int) string { return fmt.Sprint(n) }
