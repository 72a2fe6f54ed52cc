package publisher

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// publish sends c alone and waits at most wait for the answer.
func (a *Appender) publish(ctx context.Context, c *call, wait time.Duration) outcome {
	if !a.link.await(ctx, a.stop) {
		return outcome{err: errOffline}
	}
	select {
	case a.singles <- struct{}{}:
	case <-ctx.Done():
		return outcome{err: errNotSent}
	case <-a.stop.Done():
		return outcome{err: errNotSent}
	}
	a.send(&flight{calls: []*call{c}, slots: a.singles}, wait)
	return a.answer(ctx, c)
}

// answer waits for the outcome of a try that was sent.
func (a *Appender) answer(ctx context.Context, c *call) outcome {
	select {
	case out := <-c.done:
		return out
	case <-ctx.Done():
	case <-a.stop.Done():
	}
	select {
	case out := <-c.done: // both came at once
		return out
	default:
		return outcome{err: errNoAnswer, sent: true, stored: true}
	}
}

// enqueue hands c to the collector and waits for the outcome.
func (a *Appender) enqueue(ctx context.Context, c *call) outcome {
	select {
	case a.queue <- c:
	case <-ctx.Done():
		return outcome{err: errNotSent}
	case <-a.stop.Done():
		return outcome{err: errNotSent}
	}
	select {
	case out := <-c.done:
		return out
	case <-ctx.Done():
	case <-a.stop.Done():
	}
	if c.state.CompareAndSwap(queued, abandoned) {
		if !a.nc.IsConnected() {
			return outcome{err: errOffline}
		}
		return outcome{err: errNotSent}
	}
	return a.answer(ctx, c)
}

// collect is the goroutine that makes groups: it waits for a message, then for
// a slot, and then takes what has come meanwhile. The longer the server takes,
// the more travels together.
func (a *Appender) collect() {
	for {
		var c *call
		select {
		case c = <-a.queue:
		case <-a.stop.Done():
			return
		}
		if !a.link.await(context.Background(), a.stop) {
			return
		}
		select {
		case a.batches <- struct{}{}:
		case <-a.stop.Done():
			return
		}
		f := &flight{calls: a.drain(c), slots: a.batches}
		if len(f.calls) == 0 {
			<-a.batches
			continue
		}
		a.send(f, a.opts.AckWait)
	}
}

// drain takes first and what else is waiting, within the bounds of a batch,
// but for what its callers have given up.
func (a *Appender) drain(first *call) []*call {
	calls := make([]*call, 0, min(1+len(a.queue), a.opts.BatchMessages))
	bytes := 0
	for c := first; ; {
		if c.state.CompareAndSwap(queued, taken) {
			calls = append(calls, c)
			bytes += int(c.size) + batchHeaderBytes
		}
		// The next one may have any size up to max_payload; what it adds is at
		// most that, and the bound is on memory, not a promise.
		if len(calls) >= a.opts.BatchMessages || bytes >= a.opts.BatchBytes {
			return calls
		}
		select {
		case c = <-a.queue:
		default:
			return calls
		}
	}
}

// send publishes a flight, alone or as an atomic batch. Only the last message
// of a batch asks for an answer: what goes wrong before it shows there, as an
// incomplete batch.
func (a *Appender) send(f *flight, wait time.Duration) {
	token, reply := a.acks.register(f, wait)
	if !a.nc.IsConnected() { // the library would keep it, and send it when nobody waits any more
		a.acks.finish(token, outcome{err: errOffline, rest: true})
		return
	}
	last := len(f.calls) - 1
	if last == 0 {
		if err := a.nc.PublishMsg(f.calls[0].message(reply)); err != nil {
			a.acks.finish(token, unsent(err))
			return
		}
		a.acks.sent(token)
		return
	}
	batch := []string{nuid.Next()}
	for i, c := range f.calls {
		msg := c.message("")
		msg.Header[batchIDHeader] = batch
		msg.Header[batchSequenceHeader] = []string{strconv.Itoa(i + 1)}
		if i == last {
			msg.Reply = reply
			msg.Header[batchCommitHeader] = []string{"1"}
		}
		if err := a.nc.PublishMsg(msg); err != nil {
			out := unsent(err)
			out.stored = out.stored && i == last // without its last message nothing of a batch is stored
			a.acks.finish(token, out)
			return
		}
	}
	a.acks.sent(token)
}

// unsent is the outcome of a publish that the client library refused. Where it
// does not refuse before it writes, part of the message may be on its way.
func unsent(err error) outcome {
	for _, before := range []error{
		nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrReconnectBufExceeded,
		nats.ErrInvalidConnection, nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrHeadersNotSupported,
	} {
		if errors.Is(err, before) {
			return outcome{err: fmt.Errorf("%w: %w", errOffline, err), rest: true}
		}
	}
	return outcome{err: err, sent: true, stored: true, rest: true}
}
