package projector

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
)

// An Appender makes an entry durable: it returns its sequence, or an error
// after which the entry may or may not be stored.
type Appender interface {
	Append(ctx context.Context, m ledger.Message) (seq uint64, err error)
}

// Bounds of the effects.
const (
	// startsAhead bounds the starts that are appended at a time.
	startsAhead = 512
	// appendTimeout bounds one try at a start.
	appendTimeout = 30 * time.Second
)

// effects carries out what the fold asked for. Everything it does may be done
// twice: starts carry message ids and are claimed through the fold, answers and
// announcements are best effort.
type effects struct {
	nc       *nats.Conn
	stream   jetstream.Stream
	prefix   string // of the ledger's subjects, with the dot
	appender Appender
	// withTrace puts a trace context into the context of an append; nil: none.
	withTrace func(ctx context.Context, traceparent string) context.Context
	log       *slog.Logger
}

// perform carries out the effects of one batch and returns when the starts are
// durable, all but the late ones, which it returns; there are none unless
// mayBeLate. traces holds the trace contexts of requests whose input is at hand.
func (f *effects) perform(ctx context.Context, answers []answer, list []ledger.Effect, traces map[uint64]string, mayBeLate bool) ([]ledger.Effect, error) {
	f.answer(answers)
	var late lateList
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(startsAhead)
	for i := range list {
		e := &list[i]
		if e.Kind != ledger.StartAttempt {
			f.publish(f.message(e))
			continue
		}
		g.Go(func() error {
			err := f.start(ctx, e, traces[e.RequestSeq], mayBeLate)
			if errors.Is(err, errLate) {
				late.add(*e)
				return nil
			}
			return err
		})
	}
	return late.list, g.Wait()
}

// answer publishes decisions. Whoever waits repeats its entry if none comes.
func (f *effects) answer(answers []answer) {
	for i := range answers {
		a := &answers[i]
		f.publish(a.reply, a.answer.AppendJSON(make([]byte, 0, 256)))
	}
}

func (f *effects) message(e *ledger.Effect) (subject string, data []byte) {
	if e.Kind == ledger.StopAttempt {
		return f.prefix + ledger.StopSubject(e.Provider), ledger.AppendStopJSON(nil, e.Job, e.Attempt)
	}
	return f.prefix + ledger.OutcomeSubject(e.Job.String()), e.Outcome.AppendJSON(nil)
}

func (f *effects) publish(subject string, data []byte) {
	if err := f.nc.Publish(subject, data); err != nil {
		f.log.Debug("a best-effort message was not published", "subject", subject, "error", err)
	}
}

// start appends an attempt's start, and tries until that succeeds: an accepted
// attempt that nobody hears of would stay starting for ever. It returns errLate
// after a while if it mayBeLate.
func (f *effects) start(ctx context.Context, e *ledger.Effect, trace string, mayBeLate bool) error {
	wait, patience := 50*time.Millisecond, time.Now().Add(startPatience)
	for {
		err := f.tryStart(ctx, e, trace)
		if err == nil || onlyWrong(err) != nil || ctx.Err() != nil {
			return err
		}
		if mayBeLate && time.Now().After(patience) {
			f.log.Warn("an attempt's start is late; it is tried on", "job", e.Job, "attempt", e.Attempt, "error", err)
			return errLate
		}
		f.log.Warn("an attempt's start was not appended", "job", e.Job, "attempt", e.Attempt, "error", err, "retry_in", wait)
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, 2*time.Second)
	}
}

func (f *effects) tryStart(ctx context.Context, e *ledger.Effect, trace string) error {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	if e.Start.Input == nil {
		var err error
		if e.Start.Input, trace, err = f.request(ctx, e.RequestSeq); err != nil {
			return err
		}
	}
	if f.withTrace != nil && trace != "" {
		ctx = f.withTrace(ctx, trace)
	}
	_, err := f.appender.Append(ctx, e.Start.Message())
	return err
}

// request fetches a job's input, and its trace, from the entry that requested
// it: the tables hold the input only as JSONB, which is not what the producer
// wrote.
func (f *effects) request(ctx context.Context, seq uint64) (input []byte, trace string, err error) {
	m, err := fetchEntry(ctx, f.stream, seq)
	if err != nil {
		return nil, "", err
	}
	e := ledger.Decode(m.Sequence, m.Time, m.Subject[len(f.prefix):], m.Data)
	r, ok := e.Body.(*ledger.Request)
	if !ok {
		return nil, "", wrongChain(seq)
	}
	return r.Input, traceOf(m.Header), nil
}
