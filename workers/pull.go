package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"jobledger/ledger"
)

const (
	// maxAckPending is the same for all workers of a provider, whatever their
	// concurrency, because the consumer is theirs together.
	maxAckPending = 65_536
	// maxPrefetch and maxPrefetchBytes bound what a worker fetches ahead.
	maxPrefetch      = 512
	maxPrefetchBytes = 16 << 20
	// pullExpiry and pullHeartbeat keep a pull alive and notice a dead one.
	pullExpiry    = 30 * time.Second
	pullHeartbeat = 5 * time.Second
	// apiTimeout bounds a request to the server.
	apiTimeout = 10 * time.Second
	// handBackTimeout bounds giving back what was fetched ahead.
	handBackTimeout = 5 * time.Second
)

// ConsumerName returns the name of the durable consumer that a provider's
// workers share.
func ConsumerName(provider string) string { return "worker-" + provider }

// consumerConfig is equal for all workers of a provider, so that creating the
// consumer again changes nothing. Deliveries have no limit: a start that was
// dropped would be a job that waits for ever.
func (w *Worker) consumerConfig() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       ConsumerName(w.o.Provider),
		Description:   "Starts of attempts for the workers of provider " + w.o.Provider,
		FilterSubject: w.o.SubjectPrefix + "." + string(ledger.AttemptStart) + "." + w.o.Provider,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       w.timing.ackWait,
		MaxDeliver:    -1,
		MaxAckPending: maxAckPending,
	}
}

func (w *Worker) openConsumer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	config := w.consumerConfig()
	consumer, err := w.o.JetStream.CreateOrUpdateConsumer(ctx, w.o.Stream, config)
	if err != nil {
		return fmt.Errorf("workers: open the consumer %s of stream %s: %w", config.Durable, w.o.Stream, err)
	}
	w.consumer = consumer
	return nil
}

// pull takes starts and has them carried out until ctx ends. It goes on after
// errors, except when the connection was closed for good.
func (w *Worker) pull(ctx context.Context) error {
	pauses := w.newBackoff()
	for {
		if !w.takeSlot(ctx) {
			return nil
		}
		began := w.clock.stamp()
		err := w.feed(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil: // full, and what was fetched ahead went back; or quiet
			continue
		case w.o.JetStream.Conn().IsClosed():
			return fmt.Errorf("workers: the connection was closed while starts were pulled for %s: %w", w.o.Provider, err)
		}
		w.log.Warn("pulling starts failed; it is tried again", "error", err)
		if w.clock.since(began) > w.timing.retryMax {
			pauses = w.newBackoff()
		}
		w.reopen(ctx, &pauses)
	}
}

// reopen looks after the consumer, which may have been deleted, until that
// succeeds once or ctx ends.
func (w *Worker) reopen(ctx context.Context, pauses *backoff) {
	for pauses.pause(ctx) {
		err := w.openConsumer(ctx)
		if err == nil {
			return
		}
		w.log.Warn("the consumer cannot be opened; it is tried again", "error", err)
	}
}

// feed pulls starts for as long as slots become free in time. A worker that is
// full for longer gives back what it has fetched ahead, so that others can have
// it. A pull that has brought nothing for a while is ended too, and begun anew: the
// client library stops watching for heartbeats while it reconnects and does not
// always begin again, and its pull is then silent for ever, without an error. The caller holds a slot for the first start; none is held at the end.
func (w *Worker) feed(ctx context.Context) error {
	in, err := w.fetchAhead()
	if err != nil {
		<-w.slots
		return err
	}
	defer w.handBack(in)
	full := time.NewTimer(w.timing.fullFor)
	defer full.Stop()
	quiet := time.NewTimer(w.timing.quiet)
	defer quiet.Stop()
	for {
		select {
		case msg := <-in.starts:
			quiet.Reset(w.timing.quiet)
			w.wg.Add(1)
			go w.handle(ctx, msg)
		case <-quiet.C:
			<-w.slots
			return nil
		case err := <-in.broken:
			<-w.slots
			return err
		case <-ctx.Done():
			<-w.slots
			return ctx.Err()
		}
		if !w.takeSlotSoon(ctx, full) {
			return nil
		}
	}
}

// An inflow is what a pull delivers.
type inflow struct {
	sub    jetstream.ConsumeContext
	starts chan jetstream.Msg // unbuffered: what nobody takes stays with the subscription
	broken chan error
	over   chan struct{} // closed: what comes now goes back
}

// fetchAhead begins a pull. It is not jetstream's message iterator, whose buffer
// has no room for the status with which the server ends each batch that is
// bounded in bytes: under load the buffer overflows, and starts are dropped that
// come again only after the ack wait.
func (w *Worker) fetchAhead() (*inflow, error) {
	in := &inflow{starts: make(chan jetstream.Msg), broken: make(chan error, 1), over: make(chan struct{})}
	take := func(msg jetstream.Msg) {
		select {
		case <-in.over:
			w.note(msg.Nak(), "give a start back")
			return
		default:
		}
		select {
		case in.starts <- msg:
		case <-in.over:
			w.note(msg.Nak(), "give a start back")
		}
	}
	failed := func(_ jetstream.ConsumeContext, err error) {
		select {
		case in.broken <- err:
		default: // the first one ends the pull
		}
	}
	var err error
	in.sub, err = w.consumer.Consume(take, jetstream.ConsumeErrHandler(failed),
		jetstream.PullMaxMessagesWithBytesLimit(min(2*w.o.Concurrency, maxPrefetch), maxPrefetchBytes),
		jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat))
	return in, err
}

func (w *Worker) takeSlot(ctx context.Context) bool {
	select {
	case w.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// takeSlotSoon is takeSlot with a limit of timing.fullFor.
func (w *Worker) takeSlotSoon(ctx context.Context, timer *time.Timer) bool {
	select {
	case w.slots <- struct{}{}:
		return true
	default:
	}
	timer.Reset(w.timing.fullFor)
	select {
	case w.slots <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// handBack ends a pull and returns to the server, at once, what was fetched and
// not taken.
func (w *Worker) handBack(in *inflow) {
	close(in.over)
	in.sub.Drain()
	if !within(in.sub.Closed(), handBackTimeout) { // what is left comes again after the ack wait
		w.log.Warn("what was fetched ahead could not be given back", "within", handBackTimeout)
		in.sub.Stop()
	}
}

// note logs that something failed which decides nothing and mends itself.
func (w *Worker) note(err error, what string) {
	if err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		w.log.Warn("could not "+what+"; the start is delivered again", "error", err)
	}
}

func (w *Worker) newBackoff() backoff { return backoff{w.timing.retry, w.timing.retryMax} }

// reportProgress tells the server regularly that the held starts are being
// worked on. The function that it returns ends that, and waits for the end.
func (w *Worker) reportProgress() (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(w.timing.ackWait / 3)
		defer tick.Stop()
		var held []delivery
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			held = w.heldStarts(held[:0])
			for _, msg := range held {
				w.note(msg.InProgress(), "report progress")
			}
			clear(held)
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
}

func (w *Worker) heldStarts(into []delivery) []delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	for a := range w.held {
		into = append(into, a.msg)
	}
	return into
}
