package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
	"jobledger/workers/internal/wait"
)

const (
	// maxAsked bounds the processes of one question to the tables.
	maxAsked = 200
	// maxSaying bounds the entries that are being decided at a time.
	maxSaying = 32
)

// A Held is a running attempt with the worker that holds it.
type Held struct {
	Job         uuid.UUID
	Attempt     int
	Worker      string
	RequestedAt time.Time
	// Heartbeat is the heartbeat timeout of the job's kind; above 0.
	Heartbeat time.Duration
}

// A Reader reads the tables.
type Reader interface {
	// HeldBy returns a page of the running attempts that workers of the given
	// names hold and whose kinds have a heartbeat timeout, the oldest first.
	// After is the last one of the page before; an empty page is the end.
	HeldBy(ctx context.Context, workers []string, after ledger.Cursor) ([]Held, error)
}

// A Ledger takes entries and tells what the fold decided.
type Ledger interface {
	Decide(ctx context.Context, m ledger.Message) (ledger.Answer, error)
}

// WatcherOptions configure a [Watcher]. All but Log and Lost are required.
type WatcherOptions struct {
	JetStream jetstream.JetStream
	Stream    string // the ledger's stream
	// Beacon announces this process. It must run: its beats are how the watcher
	// knows that it would see those of others.
	Beacon *Beacon
	Reader Reader
	Ledger Ledger
	Actor  string       // whom the entries name
	Log    *slog.Logger // nil: nowhere
	// Lost, if not nil, is called for each attempt that was made unknown. It
	// must be quick and safe for concurrent use.
	Lost func(worker string)
}

// A Watcher makes attempts unknown whose workers are gone. Any number of them
// may watch the same ledger: the fold decides, and to say twice that a worker
// is lost changes nothing.
//
// Only processes that have announced themselves are judged. A process that has
// taken its announcement back has left nothing open.
type Watcher struct {
	o      WatcherOptions
	log    *slog.Logger
	timing timing
	sight  *sight
	now    func() time.Time
	full   bool // the log has said that too many processes are known
}

// NewWatcher returns a watcher that does nothing until Run. The error says which
// option is wrong.
func NewWatcher(o WatcherOptions) (*Watcher, error) {
	switch {
	case o.JetStream == nil || o.Beacon == nil || o.Reader == nil || o.Ledger == nil:
		return nil, errors.New("presence: WatcherOptions needs JetStream, Beacon, Reader and Ledger")
	case o.Stream == "":
		return nil, errors.New("presence: WatcherOptions.Stream is empty; the name of the ledger's stream is expected")
	case o.Actor == "" || ledger.ValidText(o.Actor) != o.Actor:
		return nil, fmt.Errorf("presence: WatcherOptions.Actor is %s; expected 1 to %d bytes of text", ledger.Quote(o.Actor), ledger.MaxTextBytes)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	t := defaultTiming()
	return &Watcher{o: o, log: o.Log, timing: t, sight: newSight(t.gap), now: time.Now}, nil
}

// Run watches and judges until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		w.follow(ctx)
	}()
	for wait.Sleep(ctx, w.timing.tick*3/4+rand.N(w.timing.tick/2+1)) {
		w.judge(ctx)
	}
	<-watching
}

// follow keeps a watch on the bucket.
func (w *Watcher) follow(ctx context.Context) {
	pause, said := w.timing.beat, ""
	for {
		began := w.now()
		err := w.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		// Without a bucket nobody announces himself: the beacon's log says so.
		if text := fmt.Sprint(err); text != said && !missing(err) {
			w.log.Warn("the watch over the workers' presence has ended; it is begun anew", "error", err)
			said = text
		}
		if w.now().Sub(began) > w.timing.retry {
			pause = w.timing.beat
		}
		if !wait.Sleep(ctx, wait.Jitter(pause)) {
			return
		}
		pause = min(2*pause, w.timing.retry)
	}
}

// errBlind: a watch that should see this process's own beats does not.
var errBlind = errors.New("this process's own beats do not come back")

// watch follows the bucket until that fails or ctx ends.
func (w *Watcher) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	open, cancelOpen := context.WithTimeout(ctx, w.timing.blind)
	defer cancelOpen()
	kv, err := w.o.JetStream.KeyValue(open, Bucket(w.o.Stream))
	if err != nil {
		return err
	}
	updates, err := kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = updates.Stop() }() // the context ends it as well
	blind := time.NewTimer(w.timing.blind)
	defer blind.Stop()
	for {
		select {
		case entry, ok := <-updates.Updates():
			if !ok {
				return errors.New("the subscription was closed")
			}
			if entry != nil && w.take(entry) {
				blind.Reset(w.timing.blind)
			}
		case <-blind.C:
			return errBlind
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take notes what an update says, and reports whether it is an own beat.
func (w *Watcher) take(entry jetstream.KeyValueEntry) bool {
	name, now := entry.Key(), w.now()
	switch {
	case entry.Operation() != jetstream.KeyValuePut:
		w.sight.gone(name)
	case name == w.o.Beacon.o.Name:
		sent, ok := w.o.Beacon.sentAt(entry.Value())
		if ok {
			w.sight.heardOwn(sent, now)
		}
		return ok
	case !w.sight.heard(name, entry.Revision(), now) && !w.full:
		w.full = true
		w.log.Error("more processes have announced themselves than are watched", "watched", maxKnown, "not_watched", name)
	}
	return false
}

// judge looks at what silent processes hold.
func (w *Watcher) judge(ctx context.Context) {
	silent := w.sight.silent(w.timing.shortest, maxAsked, w.now())
	if len(silent) == 0 {
		return
	}
	held, err := w.held(ctx, silent)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("what silent workers hold cannot be read; it is tried again", "error", err)
		}
		for name := range silent {
			w.sight.later(name, w.timing.recheck, w.timing.recheck, w.timing.recheck, w.now())
		}
		return
	}
	due := w.settle(ctx, silent, held)
	for name, silence := range silent {
		next, holds := due[name]
		if !holds {
			next = w.timing.recheckMax
			if silence >= w.timing.forget {
				w.forget(ctx, name)
				continue
			}
		}
		w.sight.later(name, w.timing.recheck, w.timing.recheckMax, next, w.now())
	}
}

// held reads all that the silent processes hold.
func (w *Watcher) held(ctx context.Context, silent map[string]time.Duration) ([]Held, error) {
	names := make([]string, 0, len(silent))
	for name := range silent {
		names = append(names, name)
	}
	var all []Held
	var after ledger.Cursor
	for {
		page, err := w.o.Reader.HeldBy(ctx, names, after)
		if err != nil || len(page) == 0 {
			return all, err
		}
		all = append(all, page...)
		last := page[len(page)-1]
		after = ledger.Cursor{At: last.RequestedAt, Job: last.Job, Attempt: last.Attempt}
	}
}

// settle makes unknown what is lost, and returns for those who still hold
// something when the first of it will be, unless they are heard of.
func (w *Watcher) settle(ctx context.Context, silent map[string]time.Duration, held []Held) map[string]time.Duration {
	due := map[string]time.Duration{}
	var saying errgroup.Group
	saying.SetLimit(maxSaying)
	for _, h := range held {
		left := max(h.Heartbeat, w.timing.shortest) - silent[h.Worker]
		if left <= 0 {
			saying.Go(func() error {
				w.sayLost(ctx, h)
				return nil
			})
			left = w.timing.recheck // in case it could not be said
		}
		if next, ok := due[h.Worker]; !ok || left < next {
			due[h.Worker] = left
		}
	}
	_ = saying.Wait() // what goes wrong is logged, and looked at again
	return due
}

// sayLost says in the ledger that an attempt has lost its worker.
func (w *Watcher) sayLost(ctx context.Context, h Held) {
	silence := w.sight.silence(h.Worker, w.now()) // it may have been heard since
	if silence < max(h.Heartbeat, w.timing.shortest) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, w.timing.decide)
	defer cancel()
	resolution := &ledger.Resolution{
		Job: h.Job, Attempt: h.Attempt, As: ledger.OutcomeUnknown, Worker: h.Worker, Actor: w.o.Actor,
		Reason: fmt.Sprintf("worker_lost: nothing was heard of the worker for %s; the kind's heartbeat timeout is %s",
			silence.Round(time.Millisecond), h.Heartbeat),
	}
	answer, err := w.o.Ledger.Decide(ctx, resolution.Message())
	log := w.log.With("job", h.Job, "attempt", h.Attempt, "worker", h.Worker)
	switch {
	case err != nil:
		log.Warn("that a worker is lost could not be said, or was not decided yet; the attempt is looked at again", "error", err)
	case answer.Decision == ledger.Accepted:
		log.Warn("a worker is lost; its attempt is unknown", "silence", silence.Round(time.Millisecond))
		if w.o.Lost != nil {
			w.o.Lost(h.Worker)
		}
	case answer.Decision != ledger.Duplicate: // somebody was faster
		log.Debug("the attempt is not the lost worker's any more", "decision", answer.Decision, "reason", answer.Reason)
	}
}

// forget takes a process's key out of the bucket that has been silent for long
// and holds nothing, unless it is heard of just now.
func (w *Watcher) forget(ctx context.Context, name string) {
	revision, ok := w.sight.revision(name)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, w.timing.decide)
	defer cancel()
	kv, err := w.o.JetStream.KeyValue(ctx, Bucket(w.o.Stream))
	if err == nil {
		err = kv.Delete(ctx, name, jetstream.LastRevision(revision))
	}
	if err != nil {
		w.log.Debug("the key of a lost worker could not be removed", "worker", name, "error", err)
		w.sight.later(name, w.timing.recheckMax, w.timing.recheckMax, w.timing.recheckMax, w.now())
		return
	}
	w.sight.gone(name)
}
