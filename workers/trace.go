package workers

import (
	"context"

	"github.com/google/uuid"
)

// TraceHeader is the header of starts, and of the requests that providers get,
// that holds the W3C trace context.
const TraceHeader = "traceparent"

// The spans of an attempt. SpanAttempt is all of it, from the delivery of its
// start on; the others are its children, one after the other.
const (
	SpanAttempt  = "attempt"
	SpanClaim    = "claim"
	SpanCall     = "call"
	SpanComplete = "complete"
)

// Traced names the attempt that a span is about.
type Traced struct {
	Job      uuid.UUID
	Attempt  int
	Kind     string
	Provider string
}

// A Tracer records spans and says what carries a trace on. It must be safe for
// concurrent use.
type Tracer interface {
	// Begin begins a span below the one that a W3C traceparent names; "", or
	// what is none, begins a trace of its own or none at all. The context that it
	// returns is ctx with the span in it, for whoever appends; the traceparent
	// names the span for the provider. end ends the span with a short word that
	// says how: never with anything of an input, a result or an error.
	Begin(ctx context.Context, span, parent string, a Traced) (_ context.Context, traceparent string, end func(outcome string))
}

// noTracer hands on the trace that it finds.
type noTracer struct{}

func (noTracer) Begin(ctx context.Context, _, parent string, _ Traced) (context.Context, string, func(string)) {
	return ctx, parent, func(string) {}
}

// span begins a span of the attempt, below that of the whole attempt.
func (a *attempt) span(ctx context.Context, name string) (context.Context, string, func(outcome string)) {
	return a.w.o.Tracer.Begin(ctx, name, a.traceparent, a.traced())
}

func (a *attempt) traced() Traced {
	return Traced{Job: a.start.Job, Attempt: a.start.Attempt, Kind: a.start.Kind, Provider: a.start.Provider}
}

// begin begins the attempt's span. The function that it returns ends it.
func (a *attempt) begin(ctx context.Context) (end func()) {
	_, traceparent, endSpan := a.w.o.Tracer.Begin(ctx, SpanAttempt, a.msg.Headers().Get(TraceHeader), a.traced())
	a.traceparent = traceparent
	return func() {
		if a.ended == "" {
			endSpan("not_claimed")
			return
		}
		endSpan(string(a.ended))
	}
}

// outcomeOf is how a call is to be recorded, as a span's outcome.
func outcomeOf(err error) string {
	outcome, _ := Classify(err)
	return string(outcome)
}
