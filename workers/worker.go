package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// maxListedLosses bounds what Run's error lists; the log has them all.
const maxListedLosses = 10

// A Worker carries out the attempts of one provider. Any number of workers, in
// any number of processes, may serve the same provider.
//
// For each start that it is given it claims the attempt, waits for the fold's
// decision, calls the provider if that is still in time, records how the call
// ended and acknowledges the start. Replay does the same for an attempt whose
// end is not known. Acknowledgements decide nothing: a start
// that is delivered again is claimed again, and that claim is refused.
//
// A provider that has not returned soon after its context's end loses its
// say: the attempt is recorded as unknown and its slot is freed, for as many
// such calls as Options.Concurrency; beyond that they keep their slots. So there
// are never more than twice Concurrency calls in all. When such a call returns
// after all, what it says is recorded as a late completion, which the fold may
// accept.
//
// A completion that cannot be appended is retried as long as the process lives,
// and waits in Options.Spool meanwhile. If it still cannot be appended when the
// worker must exit, the next worker on that spool appends it, before it takes new
// starts. Without a spool it is lost: it is logged as an error with its job and
// attempt, and Run returns an error. The attempt becomes unknown at its deadline.
type Worker struct {
	o      Options
	log    *slog.Logger
	timing timing
	clock  clock
	ran    atomic.Bool

	consumer jetstream.Consumer

	slots  chan struct{} // holds one element for each slot in use
	strays chan struct{} // holds one for each slot that was freed while its call runs on
	wg     sync.WaitGroup

	calls       context.Context // ends when running calls have to
	cancelCalls context.CancelFunc
	records     context.Context // ends when nothing can be recorded any more
	endRecords  context.CancelFunc
	exiting     context.Context // ends when what is in the spool is left there
	exit        context.CancelFunc

	mu       sync.Mutex
	working  bool                   // Run runs and has not been told to stop
	held     map[*attempt]struct{}  // whose starts are not acknowledged
	running  map[attemptID]*attempt // whose provider is being called
	losses   []error                // completions that were not recorded, the first of them
	lossesNo int
}

// attemptID names an attempt.
type attemptID struct {
	job    uuid.UUID
	number int
}

// New returns a worker that does nothing until Run. The error says which option
// is wrong.
func New(o Options) (*Worker, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Tracer == nil {
		o.Tracer = noTracer{}
	}
	w := &Worker{
		o:       o,
		log:     o.Log.With("provider", o.Provider),
		timing:  defaultTiming(),
		clock:   systemClock(),
		slots:   make(chan struct{}, o.Concurrency),
		strays:  make(chan struct{}, o.Concurrency),
		held:    map[*attempt]struct{}{},
		running: map[attemptID]*attempt{},
	}
	w.calls, w.cancelCalls = context.WithCancel(context.Background())
	w.records, w.endRecords = context.WithCancel(context.Background())
	w.exiting, w.exit = context.WithCancel(context.Background())
	return w, nil
}

// Calls returns how many calls to the provider are under way, including those
// whose attempts were recorded without them.
func (w *Worker) Calls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.running)
}

// Run works until ctx ends, and can be called once. It first creates the
// provider's consumer, or brings it up to date; it never creates the stream.
//
// When ctx ends, nothing more is claimed and what was fetched ahead goes back
// to the server. A claim without a decision is completed as unsent. Running
// calls may go on for Options.Grace; then their contexts end, and what is not
// known of them is recorded as unknown. Run returns when all that has ended. Its
// error is nil if everything was recorded and every call returned.
func (w *Worker) Run(ctx context.Context) error {
	if !w.ran.CompareAndSwap(false, true) {
		return errors.New("workers: Run was called before; make a new worker")
	}
	defer w.cancelCalls()
	defer w.endRecords()
	defer w.exit()
	if !w.o.ReplayOnly {
		err := w.openConsumer(ctx)
		if ctx.Err() != nil {
			return nil // it is told to stop before it has begun
		}
		if err != nil {
			return err
		}
	}
	stops, err := w.listenForStops()
	if err != nil {
		return err
	}
	endProgress := w.reportProgress()

	w.setWorking(true)
	pullErr := w.work(ctx)
	w.setWorking(false)
	finishErr := w.finish()
	endProgress()
	if err := stops.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		w.log.Warn("the subscription to stops did not end", "error", err)
	}
	w.flush()
	return errors.Join(pullErr, finishErr)
}

// work lasts until ctx ends, or until starts cannot be had any more.
func (w *Worker) work(ctx context.Context) error {
	w.drainSpool(ctx)
	if w.o.ReplayOnly {
		<-ctx.Done()
		return nil
	}
	return w.pull(ctx)
}

func (w *Worker) setWorking(working bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.working = working
}

// finish waits for what is still going on, and ends it when its time is over.
func (w *Worker) finish() error {
	patience := time.AfterFunc(w.timing.recordWait, w.exit)
	defer patience.Stop()
	ended := make(chan struct{})
	go func() {
		w.wg.Wait()
		close(ended)
	}()
	if !within(ended, w.o.Grace) {
		w.log.Warn("the grace period is over; running calls are ended", "grace", w.o.Grace)
		w.cancelCalls()
		if !within(ended, w.timing.overrun+w.timing.recordWait) {
			w.endRecords()
			within(ended, w.timing.overrun)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := w.losses
	if more := w.lossesNo - len(w.losses); more > 0 {
		errs = append(errs, fmt.Errorf("and %d more", more))
	}
	select {
	case <-ended:
	default:
		errs = append(errs, errors.New("workers: calls have not returned though their contexts have ended; the provider ignores them"))
	}
	return errors.Join(errs...)
}

// flush sends off the last acknowledgements. They decide nothing, so that a
// connection which is closed or away is no error.
func (w *Worker) flush() {
	if err := w.o.JetStream.Conn().FlushTimeout(2 * time.Second); err != nil {
		w.log.Warn("the last acknowledgements may not have been sent; their starts will be delivered again", "error", err)
	}
}

// lose notes that how an attempt ended could not be recorded.
func (w *Worker) lose(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lossesNo++
	if len(w.losses) < maxListedLosses {
		w.losses = append(w.losses, err)
	}
}

// hold keeps an attempt's start from being delivered again; release ends that.
func (w *Worker) hold(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[a] = struct{}{}
}

func (w *Worker) release(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, a)
}
