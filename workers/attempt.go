package workers

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"jobledger/ledger"
	"jobledger/workers/contract"
)

// claimBytes is the size of a claim id before it is written in hex.
const claimBytes = 16

// A delivery is how a start came here: from the consumer or, for a replay, from
// where it is stored.
type delivery interface {
	Ack() error
	NakWithDelay(time.Duration) error
	InProgress() error
	Headers() nats.Header
}

// An attempt is one delivery of a start. Two deliveries of the same start are
// two attempts here; at most one of them gets its claim accepted.
type attempt struct {
	w        *Worker
	msg      delivery
	start    *ledger.Start
	startSeq uint64
	replay   bool // the attempt is unknown; the same request is to be sent again

	traceparent string         // of the attempt's span, or what the start came with
	ended       ledger.Outcome // how it was recorded; "" before, and for ever if it was not claimed

	contract *contract.Contract // that the result has to fulfil; nil: none

	claim   string
	answer  ledger.Answer // to the claim; zero: there was none
	claimed stamp         // before the claim was first published
	timeout time.Duration // from the claim on, by the decision

	ctx       context.Context // the call's
	cancel    context.CancelFunc
	settled   atomic.Bool   // somebody has taken it on to say how the attempt ended
	returned  chan struct{} // closed when the call has returned
	abandoned chan struct{} // closed when the attempt was recorded without it
	stray     bool          // its slot was freed early; valid once abandoned is closed
}

func (a *attempt) id() attemptID { return attemptID{a.start.Job, a.start.Attempt} }

// handle carries out what one delivery asks for. It owns a slot.
func (w *Worker) handle(ctx context.Context, msg jetstream.Msg) {
	defer w.wg.Done()
	a, err := w.read(msg)
	if err != nil { // a newer worker may be able to; dropping it would strand the job
		w.log.Error("a start that cannot be read; it is left to other workers", "error", err)
		w.note(msg.NakWithDelay(w.timing.unreadable), "give a start back")
		<-w.slots
		return
	}
	if ctx.Err() != nil {
		w.note(msg.Nak(), "give a start back")
		<-w.slots
		return
	}
	w.hold(a)
	a.occupy(ctx)
}

// occupy carries the attempt out in the slot that it was given, and frees that.
func (a *attempt) occupy(ctx context.Context) {
	end := a.begin(ctx)
	a.carryOut(ctx)
	end()
	if a.stray {
		<-a.w.strays
	} else {
		<-a.w.slots
	}
}

func (w *Worker) read(msg jetstream.Msg) (*attempt, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, err
	}
	start, err := ledger.ParseStart(w.o.Provider, msg.Data())
	if err != nil {
		return nil, fmt.Errorf("sequence %d: %w", meta.Sequence.Stream, err)
	}
	return &attempt{w: w, msg: msg, start: start, startSeq: meta.Sequence.Stream}, nil
}

// carryOut takes the attempt from the claim to its end.
func (a *attempt) carryOut(ctx context.Context) {
	verdict, err := a.claimIt(ctx)
	switch {
	case verdict == lost:
		a.done()
	case verdict == undecided:
		// Should the claim be accepted later, the attempt must not be left
		// running with nobody. Should it never have been stored, this is
		// refused, and the start has to come again.
		a.complete(Result{}, notCalled("claim_undecided", err))
		a.giveBack()
	case ctx.Err() != nil:
		a.finish(Result{}, notCalled("stopped", errors.New("the worker is told to exit")))
	case a.left() <= a.w.o.margin(a.timeout):
		a.finish(Result{}, notCalled("too_late", fmt.Errorf(
			"%s after the claim there is too little left of the %s that the attempt may take", a.w.clock.since(a.claimed), a.timeout)))
	default:
		if err := a.agree(); err != nil {
			a.finish(Result{}, err)
			return
		}
		a.run()
	}
}

func notCalled(class string, why error) error {
	return &CallError{Known: NotSent, Class: class, Err: fmt.Errorf("the provider was not called: %w", why)}
}

// verdict is what became of a claim.
type verdict uint8

const (
	won       verdict = iota // the attempt is this delivery's
	lost                     // it is not
	undecided                // nobody said; the error says why
)

func (v verdict) String() string { return [...]string{"won", "lost", "undecided"}[v] }

// claimIt claims the attempt and waits for the decision. The claim is repeated,
// as long as the attempt could still be begun, while there is none. The same
// claim is answered "duplicate" if it was accepted before: it is ours because
// nobody else has its id.
func (a *attempt) claimIt(ctx context.Context) (v verdict, err error) {
	ctx, _, end := a.span(ctx, SpanClaim)
	defer func() { end(v.String()) }()
	var random [claimBytes]byte
	rand.Read(random[:]) // never fails
	a.claim = hex.EncodeToString(random[:])
	timeout := time.Duration(a.start.TimeoutMS) * time.Millisecond
	message := (&ledger.Claim{
		Job: a.start.Job, Attempt: a.start.Attempt, JobVersion: a.start.JobVersion, Provider: a.start.Provider,
		Claim: a.claim, Worker: a.w.o.Name, StartSeq: a.startSeq, Replay: a.replay,
	}).Message()

	a.claimed = a.w.clock.stamp()
	patience := min(timeout-a.w.o.margin(timeout), a.w.timing.claimPatience)
	wait, pauses := a.w.timing.claimTry, a.w.newBackoff()
	for {
		answer, err := a.decide(ctx, message, min(wait, max(patience-a.w.clock.since(a.claimed), time.Millisecond)))
		if err == nil {
			return a.judge(answer), nil
		}
		if ctx.Err() != nil || a.w.clock.since(a.claimed) >= patience {
			return undecided, err
		}
		a.w.log.Warn("no decision on a claim; it is repeated", "job", a.start.Job, "attempt", a.start.Attempt, "error", err)
		// A claim has no message id: it is stored again, and so decided again.
		wait = min(2*wait, a.w.timing.claimTryMax)
		if !errors.Is(err, context.DeadlineExceeded) {
			pauses.pause(ctx)
		}
	}
}

func (a *attempt) decide(ctx context.Context, m ledger.Message, wait time.Duration) (ledger.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return a.w.o.Ledger.Decide(ctx, m)
}

func (a *attempt) judge(answer ledger.Answer) verdict {
	a.answer = answer
	if answer.Decision != ledger.Accepted && answer.Decision != ledger.Duplicate {
		level := a.w.log.Debug
		if answer.Decision == ledger.Malformed {
			level = a.w.log.Error // a defect: of this worker, or of whoever named it
		}
		level("the claim was not accepted", "job", a.start.Job, "attempt", a.start.Attempt,
			"decision", answer.Decision, "reason", answer.Reason, "detail", answer.Detail)
		return lost
	}
	a.timeout = time.Duration(answer.TimeoutMS) * time.Millisecond
	if answer.TimeoutMS == 0 {
		a.timeout = time.Duration(a.start.TimeoutMS) * time.Millisecond
	}
	return won
}

// left is how much of the attempt's time is left.
func (a *attempt) left() time.Duration { return a.timeout - a.w.clock.since(a.claimed) }

// run calls the provider, once, and records how that ended.
func (a *attempt) run() {
	deadline := time.Now().Add(a.left())
	a.ctx, a.cancel = context.WithDeadline(a.w.calls, deadline)
	defer a.cancel()
	a.returned, a.abandoned = make(chan struct{}), make(chan struct{})
	a.w.setRunning(a)
	a.w.wg.Add(1)
	unwatch := context.AfterFunc(a.ctx, a.watch)

	result, err := a.call(deadline)

	close(a.returned)
	if unwatch() {
		a.w.wg.Done() // watch will never run
	}
	a.w.setEnded(a)
	if a.settled.CompareAndSwap(false, true) {
		a.finish(result, err)
		return
	}
	<-a.abandoned
	a.addLate(result, err)
}

// call makes the one call. A panic is an error like any other: nothing is known
// of what came before it.
func (a *attempt) call(deadline time.Time) (result Result, err error) {
	ctx, traceparent, end := a.span(a.ctx, SpanCall)
	defer func() { end(outcomeOf(err)) }() // after a panic has become an error
	defer func() {
		if r := recover(); r != nil {
			a.w.log.Error("the provider panicked", "job", a.start.Job, "attempt", a.start.Attempt, "panic", r, "stack", string(debug.Stack()))
			err = &CallError{Class: "panic", Err: fmt.Errorf("the provider panicked: %v", r)}
		}
	}()
	key := a.start.Job.String()
	if a.w.o.KeyPerAttempt {
		key += "/" + strconv.Itoa(a.start.Attempt)
	}
	return a.w.o.Impl.Call(ctx, Call{
		JobID: a.start.Job, Attempt: a.start.Attempt, Kind: a.start.Kind, Input: a.start.Input,
		IdempotencyKey: key, Traceparent: traceparent, Deadline: deadline,
	})
}

// watch runs once the call's context has ended. If the call does not return
// soon, it records the attempt without it.
func (a *attempt) watch() {
	defer a.w.wg.Done()
	if within(a.returned, a.w.timing.overrun) || !a.settled.CompareAndSwap(false, true) {
		return
	}
	a.w.log.Error("the provider goes on after its context's end; the attempt is recorded without it",
		"job", a.start.Job, "attempt", a.start.Attempt)
	select {
	case a.w.strays <- struct{}{}:
		a.stray = true
		<-a.w.slots
	default: // too many of them: this one keeps its slot
	}
	a.finish(Result{}, fmt.Errorf("the provider has not returned: %w", a.ctx.Err()))
	close(a.abandoned)
}
