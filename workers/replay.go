package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"jobledger/ledger"
)

// ErrNotWorking is returned by Replay when the worker's Run has not begun, or has
// been told to stop.
var ErrNotWorking = errors.New("workers: the worker is not at work")

// Replay claims an unknown attempt again and, if the fold accepts that, sends
// the same request once more: for a provider that honours idempotency keys and
// says so in its definition. The request is made of the start entry, which is
// fetched by its sequence, so that the input is the same to the byte.
//
// a is what the tables say of the attempt; its Job, Number, Provider and
// StartSeq are looked at. Replay waits for one of the worker's slots, and
// returns when how the call ended is recorded under the new claim. The answer
// is the decision on the claim: unless it was accepted, nothing was sent.
// With an error there was no claim, or no decision on it; then the attempt's
// state tells. ctx ends the waiting only: a call that is under way goes on and
// ends as any other of the worker's.
//
// What the new claim accepts is a promise like any other: if this process ends
// before it is kept, the attempt becomes unknown again at its deadline.
func (w *Worker) Replay(ctx context.Context, a *ledger.Attempt) (ledger.Answer, error) {
	if a.Provider != w.o.Provider {
		return ledger.Answer{}, fmt.Errorf("workers: attempt %d of job %s is for provider %s, and this worker is for %s", a.Number, a.Job, a.Provider, w.o.Provider)
	}
	if !w.begin() {
		return ledger.Answer{}, ErrNotWorking
	}
	again, err := w.refetch(ctx, a)
	if err != nil {
		w.wg.Done()
		return ledger.Answer{}, err
	}
	if !w.takeSlot(ctx) {
		w.wg.Done()
		return ledger.Answer{}, fmt.Errorf("workers: wait for one of %d slots: %w", cap(w.slots), ctx.Err())
	}
	ended := make(chan struct{})
	go func() {
		defer w.wg.Done()
		again.occupy(ctx)
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		return ledger.Answer{}, fmt.Errorf("workers: wait for the end of a replay: %w", ctx.Err())
	}
	if again.answer.Decision == "" {
		return ledger.Answer{}, fmt.Errorf("workers: nobody decided on the claim for a replay of attempt %d of job %s", a.Number, a.Job)
	}
	return again.answer, nil
}

// begin counts one more piece of work, unless the worker does not take any.
func (w *Worker) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.working {
		w.wg.Add(1)
	}
	return w.working
}

// refetch makes an attempt of the start entry that the first claim answered.
func (w *Worker) refetch(ctx context.Context, a *ledger.Attempt) (*attempt, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	stream, err := w.o.JetStream.Stream(ctx, w.o.Stream)
	if err != nil {
		return nil, fmt.Errorf("workers: open the stream %s: %w", w.o.Stream, err)
	}
	stored, err := stream.GetMsg(ctx, a.StartSeq)
	if err != nil {
		return nil, fmt.Errorf("workers: fetch the start of attempt %d of job %s, entry %d: %w", a.Number, a.Job, a.StartSeq, err)
	}
	subject := w.o.SubjectPrefix + "." + string(ledger.AttemptStart) + "." + w.o.Provider
	if stored.Subject != subject {
		return nil, fmt.Errorf("workers: entry %d is to be the start of attempt %d of job %s on %s; its subject is %s", a.StartSeq, a.Number, a.Job, subject, stored.Subject)
	}
	start, err := ledger.ParseStart(w.o.Provider, stored.Data)
	if err != nil {
		return nil, fmt.Errorf("workers: entry %d: %w", a.StartSeq, err)
	}
	if start.Job != a.Job || start.Attempt != a.Number {
		return nil, fmt.Errorf("workers: entry %d is the start of attempt %d of job %s; expected attempt %d of job %s", a.StartSeq, start.Attempt, start.Job, a.Number, a.Job)
	}
	return &attempt{w: w, msg: storedStart{stored.Header}, start: start, startSeq: a.StartSeq, replay: true}, nil
}

// A storedStart is a start that was fetched from the stream: there is nothing to
// acknowledge.
type storedStart struct{ header nats.Header }

func (storedStart) Ack() error                       { return nil }
func (storedStart) NakWithDelay(time.Duration) error { return nil }
func (storedStart) InProgress() error                { return nil }
func (s storedStart) Headers() nats.Header           { return s.header }
