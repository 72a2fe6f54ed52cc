package workers

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// A Provider does the work of attempts. It must be safe for concurrent use.
//
// Call is called at most once for an attempt and must itself cause at most one
// request: no retry, no redirect followed, no second connection tried once
// something may have been sent. It must return soon after ctx ends, which it
// does at the attempt's deadline, when the attempt is told to stop and when the
// worker has to exit.
//
// An error tells what is known of the attempt by being a [*CallError], wrapped
// or not. Any other error means that nothing is known: see [Classify]. The
// Result beside an error may still hold ProviderRef and Usage; they are
// recorded, because it is the reference that lets the truth be found later.
type Provider interface {
	Call(ctx context.Context, c Call) (Result, error)
}

// A Call is what a provider learns of the attempt that it is to carry out.
type Call struct {
	JobID   uuid.UUID
	Attempt int    // from 1
	Kind    string // the kind of work; a valid name
	Input   []byte // one accepted JSON value; not to be modified
	// IdempotencyKey is what the provider is to recognise a repetition by.
	IdempotencyKey string
	Traceparent    string    // W3C trace context; "" for none
	Deadline       time.Time // when the attempt's time is over; the context ends then
}

// A Result is what a provider has to say about a call.
type Result struct {
	// Body is the result: one JSON value. The worker checks that the ledger
	// accepts it; one that it does not is an executed failure.
	Body []byte
	// ProviderRef is the provider's own name for the call, "" for none. It may
	// stand beside an error.
	ProviderRef string
	// Usage is what the call cost, as JSON; nil: not told. It may stand beside
	// an error.
	Usage []byte
	// Output is what the provider said where that is no result, such as the text
	// of a model that refused; "" for nothing. It is kept beside an error that
	// leaves the attempt failed or unknown.
	Output string
}
