package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
)

// spoolAhead bounds the completions of the spool that are appended at a time.
const spoolAhead = 32

// persist appends a completion until the stream has acknowledged it, and reports
// whether it has. It gives up only when ctx ends or, with the completion in the
// spool, somewhat earlier once the worker has been told to exit.
//
// From its first failure on the completion is in the spool as well, if there is
// one: what ends the process may give it no time. kept is the name of its file
// there; "": it is not there yet.
func (w *Worker) persist(ctx context.Context, c *ledger.Completion, kept string) bool {
	m := fit(c, w.completionLimit())
	if kept == "" && w.o.JetStream.Conn().IsConnected() {
		err := w.append(ctx, m)
		if err == nil {
			return true
		}
		m = w.refit(c, m, err)
	}
	if kept == "" {
		kept = w.keep(m)
	}
	return w.insist(ctx, c, m, kept)
}

// insist is the part of persist that comes after a failure.
func (w *Worker) insist(ctx context.Context, c *ledger.Completion, m ledger.Message, kept string) bool {
	log := w.log.With("job", c.Job, "attempt", c.Attempt)
	if kept != "" {
		var cancel context.CancelFunc
		ctx, cancel = eitherEnds(ctx, w.exiting)
		defer cancel()
	}
	pauses := w.newBackoff()
	for {
		err := w.append(ctx, m)
		if err == nil {
			w.dropKept(kept)
			return true
		}
		m = w.refit(c, m, err)
		log.Warn("a completion cannot be appended; it is tried again", "outcome", c.Outcome, "spooled", kept != "", "error", err)
		if pauses.pause(ctx) {
			continue
		}
		if kept == "" {
			kept = w.keep(m) // there may be room now
		}
		if kept != "" {
			log.Warn("a completion stays in the spool: the worker exits and could not append it; the next worker on this spool does",
				"outcome", c.Outcome, "file", kept, "error", err)
			return false
		}
		log.Error("a completion is lost: the worker exits and could not append it", "outcome", c.Outcome,
			"class", c.Failure.Class, "provider_ref", c.ProviderRef, "error", err)
		w.lose(fmt.Errorf("workers: job %s attempt %d ended as %s, which could not be recorded: %w", c.Job, c.Attempt, c.Outcome, err))
		return false
	}
}

// refit makes the message smaller if that was what the server did not like.
func (w *Worker) refit(c *ledger.Completion, m ledger.Message, err error) ledger.Message {
	if !errors.Is(err, nats.ErrMaxPayload) {
		return m
	}
	return fit(c, min(w.completionLimit(), len(m.Data)-1))
}

// eitherEnds returns a context that ends with ctx and with other.
func eitherEnds(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(other, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

func (w *Worker) append(ctx context.Context, m ledger.Message) error {
	ctx, cancel := context.WithTimeout(ctx, w.timing.appendTry)
	defer cancel()
	_, err := w.o.Ledger.Append(ctx, m)
	return err
}

// keep puts a completion into the spool and returns its file's name, "" if it is
// not there.
func (w *Worker) keep(m ledger.Message) string {
	if w.o.Spool == nil {
		return ""
	}
	name, err := w.o.Spool.keep(m)
	if err != nil {
		w.log.Error("a completion cannot be spooled; it is lost if this process ends before the stream has it", "error", err)
		return ""
	}
	return name
}

func (w *Worker) dropKept(name string) {
	if name == "" {
		return
	}
	if err := w.o.Spool.drop(name); err != nil {
		w.log.Warn("a completion that is appended is still in the spool; it is appended again at the next start, which does no harm",
			"file", name, "error", err)
	}
}

// drainSpool appends what earlier processes left in the spool. It returns when
// all of it is appended, when ctx ends, or after timing.drainPatience; what is
// left then is tried on, beside the worker's other work.
func (w *Worker) drainSpool(ctx context.Context) {
	if w.o.Spool == nil {
		return
	}
	names := w.o.Spool.takeLeft()
	if len(names) == 0 {
		return
	}
	w.log.Info("appending the completions that are in the spool", "completions", len(names))
	drained := make(chan struct{})
	w.wg.Go(func() {
		defer close(drained)
		var g errgroup.Group
		g.SetLimit(spoolAhead)
		for _, name := range names {
			g.Go(func() error {
				w.unspool(ctx, name)
				return nil
			})
		}
		_ = g.Wait() // unspool tells the log what went wrong
	})
	if !within(drained, w.timing.drainPatience) {
		w.log.Warn("not all completions in the spool could be appended; it is tried on", "within", w.timing.drainPatience)
	}
}

// unspool appends the completion in a file and removes the file. What cannot be
// read stays for a person to look at.
func (w *Worker) unspool(ctx context.Context, name string) {
	c, err := w.readSpooled(name)
	var fault *spoolFault
	switch {
	case err == nil:
		w.persist(ctx, c, name)
	case !errors.As(err, &fault):
		w.log.Error("a file in the spool cannot be opened and stays there", "file", name, "error", err)
	case fault.bad:
		aside, moveErr := w.o.Spool.setAside(name)
		w.log.Error("a file in the spool cannot be read and is set aside; the attempt of its completion becomes unknown at its deadline",
			"file", name, "aside", aside, "error", errors.Join(err, moveErr))
	default: // of another ledger, or of another program
		w.log.Error("a file in the spool is not for this worker and stays there", "file", name, "error", err)
	}
}

func (w *Worker) readSpooled(name string) (*ledger.Completion, error) {
	m, err := w.o.Spool.read(name)
	if err != nil {
		return nil, err
	}
	e := ledger.Decode(1, time.Now(), m.Subject, m.Data)
	if e.Fault != nil {
		return nil, &spoolFault{bad: true, why: "the ledger would not accept it: " + e.Fault.Detail}
	}
	c, ok := e.Body.(*ledger.Completion)
	if !ok || c.Provider != w.o.Provider {
		return nil, &spoolFault{why: fmt.Sprintf("it is an entry %s; expected a completion of provider %s", m.Subject, w.o.Provider)}
	}
	return c, nil
}
