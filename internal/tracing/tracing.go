// Package tracing carries W3C trace context through a process and, where the
// environment asks for it, records spans and exports them by OTLP over HTTP.
//
// Without an exporter the trace that a request comes with still travels: into
// the entries that the request causes, and from a start to the provider. It is
// never made up then: the job's id tells as much, and nobody would record it.
//
// Spans hold names, ids and outcomes, never anything of an input, a result, an
// error or a key.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"jobledger/internal/httpstatus"
	"jobledger/ledger"
	"jobledger/workers"
)

// Header is the header that holds the trace context.
const Header = "traceparent"

// scope names whoever records these spans.
const scope = "jobledger"

// Options of a Tracing.
type Options struct {
	Version  string // of the program
	Instance string // names the process among those of the service
	// Getenv reads the environment, as os.Getenv does. The exporter and the SDK
	// read theirs from the process's own.
	Getenv func(string) string
	Log    *slog.Logger
}

// Tracing records spans, or only hands traces on. It is safe for concurrent use.
type Tracing struct {
	tracer trace.Tracer
	close  func(context.Context) error
}

// New makes a Tracing as the environment says. Spans are exported if
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set, or
// OTEL_TRACES_EXPORTER is otlp, and neither OTEL_TRACES_EXPORTER is none nor
// OTEL_SDK_DISABLED is true. What it cannot do it logs as a warning and goes on
// without an exporter: a ledger does not stand still because of its traces.
func New(ctx context.Context, o Options) *Tracing {
	t := &Tracing{tracer: noop.NewTracerProvider().Tracer(scope), close: func(context.Context) error { return nil }}
	wanted, err := exporterWanted(o.Getenv)
	if err == nil && !wanted {
		return t
	}
	var provider *sdktrace.TracerProvider
	if err == nil {
		provider, err = newProvider(ctx, o)
	}
	if err != nil {
		o.Log.Warn("no traces are exported", "error", err)
		return t
	}
	// The SDK knows only one place for what goes wrong later.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Log.Warn("traces could not be exported", "error", err) }))
	o.Log.Info("exporting traces by OTLP over HTTP")
	return &Tracing{tracer: provider.Tracer(scope, trace.WithInstrumentationVersion(o.Version)), close: provider.Shutdown}
}

// exporterWanted reads the variables that say whether and how to export.
func exporterWanted(getenv func(string) string) (bool, error) {
	exporter := getenv("OTEL_TRACES_EXPORTER")
	endpoint := getenv("OTEL_EXPORTER_OTLP_ENDPOINT") + getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	switch {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none", exporter == "" && endpoint == "":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q; expected otlp or none", exporter)
	}
	protocol := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	if protocol != "" && !strings.HasPrefix(protocol, "http/") {
		return false, fmt.Errorf("the protocol of OTEL_EXPORTER_OTLP_PROTOCOL is %q; expected http/protobuf, and a collector's HTTP port", protocol)
	}
	return true, nil
}

func newProvider(ctx context.Context, o Options) (*sdktrace.TracerProvider, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("make the exporter: %w", err)
	}
	about, err := resource.New(ctx, // what comes later goes first
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", "jobledger"),
			attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Instance)),
		resource.WithFromEnv())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("describe this process: %w", err), exporter.Shutdown(ctx))
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)), nil
}

// Close exports what is still to be exported, until ctx ends.
func (t *Tracing) Close(ctx context.Context) error {
	if err := t.close(ctx); err != nil {
		return fmt.Errorf("export the last traces: %w", err)
	}
	return nil
}

// Traceparent returns the traceparent of the span that ctx carries, "" if it
// carries none.
func (t *Tracing) Traceparent(ctx context.Context) string { return traceparent(ctx) }

func traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[Header]
}

// Enter returns ctx below the span that a traceparent names, or ctx itself if it
// is empty or no traceparent.
func Enter(ctx context.Context, parent string) context.Context {
	if parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{Header: parent})
}

// Valid returns a traceparent as it is, or "" if it is none.
func Valid(parent string) string {
	return traceparent(Enter(context.Background(), parent))
}

// Begin implements [workers.Tracer].
func (t *Tracing) Begin(ctx context.Context, span, parent string, a workers.Traced) (context.Context, string, func(outcome string)) {
	kind := trace.SpanKindInternal
	switch span {
	case workers.SpanAttempt:
		kind = trace.SpanKindConsumer
	case workers.SpanCall:
		kind = trace.SpanKindClient
	case workers.SpanClaim, workers.SpanComplete:
		kind = trace.SpanKindProducer
	}
	ctx, s := t.tracer.Start(Enter(ctx, parent), span, trace.WithSpanKind(kind), trace.WithAttributes(
		attribute.String("ledger.job_id", a.Job.String()), attribute.Int("ledger.attempt", a.Attempt),
		attribute.String("ledger.kind", a.Kind), attribute.String("ledger.provider", a.Provider)))
	return ctx, traceparent(ctx), func(outcome string) {
		s.SetAttributes(attribute.String("ledger.outcome", outcome))
		if outcome == string(ledger.OutcomeFailed) || outcome == string(ledger.OutcomeUnknown) {
			s.SetStatus(codes.Error, outcome)
		}
		s.End()
	}
}

// BeginService begins the span of a request to a NATS service, below the one
// that a traceparent names; end ends it with the answer's HTTP status and the
// job's id, "" for none.
func (t *Tracing) BeginService(ctx context.Context, operation, parent string) (_ context.Context, end func(status int, job string)) {
	ctx, span := t.tracer.Start(Enter(ctx, parent), operation, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("rpc.system", "nats")))
	return ctx, func(status int, job string) {
		endRequest(span, status, job)
		span.End()
	}
}

// endRequest says how a request was answered.
func endRequest(span trace.Span, status int, job string) {
	span.SetAttributes(attribute.Int("http.response.status_code", status))
	if job != "" {
		span.SetAttributes(attribute.String("ledger.job_id", job))
	}
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
}

// jobHeader names the job in answers.
const jobHeader = "Ledger-Job-Id"

// Handler makes next serve requests in their traces: in that of the request's
// traceparent, or else in one of their own if spans are recorded. Requests
// beyond /v1/ are served without a span.
func (t *Tracing) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			next.ServeHTTP(w, r)
			return
		}
		ctx := Enter(r.Context(), r.Header.Get(Header))
		ctx, span := t.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", r.Method)))
		defer span.End()
		traced, answer := r.WithContext(ctx), httpstatus.New(w)
		next.ServeHTTP(answer, traced)
		r.Pattern = traced.Pattern // for whoever else wants to know the route
		if !span.IsRecording() {
			return
		}
		if traced.Pattern != "" {
			span.SetName(traced.Pattern)
			span.SetAttributes(attribute.String("http.route", traced.Pattern))
		}
		endRequest(span, answer.Status(), w.Header().Get(jobHeader))
	})
}
