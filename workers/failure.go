package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"jobledger/ledger"
)

// Known is what is known of a call that gave no result.
type Known uint8

// What may be known. The zero value is the one that claims nothing.
const (
	Ambiguous Known = iota // it may have had its effect, now or later
	NotSent                // the provider provably saw nothing of it
	Refused                // the provider declined it, without any effect
	Executed               // the provider did the work, and there is no usable result
)

func (k Known) String() string {
	switch k {
	case NotSent:
		return "not sent"
	case Refused:
		return "refused"
	case Executed:
		return "executed without a usable result"
	}
	return "ambiguous"
}

// A CallError is a call's end without a result, with what is known of it.
type CallError struct {
	Known Known
	// Class names the failure for programs, such as timeout or http_422. What
	// is no valid name is recorded as "error".
	Class string
	// Reach says how far a refusal or a failure to send reaches; "": transient.
	Reach ledger.Reach
	// RetryAfter is the provider's wish; 0: none. It is a floor, which the
	// ledger caps.
	RetryAfter time.Duration
	Err        error // what happened, for people
}

func (e *CallError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: %s", e.Known, e.Class)
	}
	return fmt.Sprintf("%s: %s: %v", e.Known, e.Class, e.Err)
}

func (e *CallError) Unwrap() error { return e.Err }

// Classify turns what a provider returned into what is recorded. A nil error is
// a success, with no failure. An error that is, or wraps, a *CallError means
// what that says. Everything else is unknown, and so are joined errors: of two
// statements about a call the bolder one is not to win.
func Classify(err error) (ledger.Outcome, ledger.Failure) {
	if err == nil {
		return ledger.OutcomeSucceeded, ledger.Failure{}
	}
	e := callError(err)
	if e == nil {
		e = &CallError{Class: endClass(err, "ambiguous"), Err: err}
	}
	failure := ledger.Failure{Class: className(e.Class), Message: ledger.ValidText(message(err, e))}
	switch e.Known {
	case NotSent:
		failure.Reach, failure.RetryAfterMS = reach(e.Reach), milliseconds(e.RetryAfter)
		return ledger.OutcomeUnsent, failure
	case Refused:
		failure.Reach, failure.RetryAfterMS = reach(e.Reach), milliseconds(e.RetryAfter)
		return ledger.OutcomeFailed, failure
	case Executed:
		failure.Executed, failure.Reach = true, reach(e.Reach)
		return ledger.OutcomeFailed, failure
	}
	failure.Executed = true // or may have been, which is the same to whoever repeats it
	return ledger.OutcomeUnknown, failure
}

// callError follows the chain of wrapped errors, but does not look into joins.
func callError(err error) *CallError {
	for ; err != nil; err = errors.Unwrap(err) {
		if e, ok := err.(*CallError); ok {
			return e
		}
	}
	return nil
}

// message is what people read. The class and what is known stand beside it in
// the record already.
func message(err error, e *CallError) string {
	if top, ok := err.(*CallError); ok && top == e && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}

// endClass names an error after the context's end, if that is what it is.
func endClass(err error, otherwise string) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "stopped"
	}
	return otherwise
}

func className(class string) string {
	if ledger.ValidName(class) {
		return class
	}
	return "error"
}

func reach(r ledger.Reach) ledger.Reach {
	switch r {
	case ledger.ReachRequest, ledger.ReachProvider:
		return r
	}
	return ledger.ReachTransient
}

// milliseconds rounds up, so that a wish for half a millisecond is not lost,
// and stays within what an entry may say.
func milliseconds(d time.Duration) int64 {
	d = min(max(d, 0), ledger.MaxDelay)
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
