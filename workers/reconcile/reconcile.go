package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
	"jobledger/workers/internal/wait"
)

const (
	// DefaultInFlight is how many attempts of one provider are looked at at a
	// time.
	DefaultInFlight = 8
	// queueLength bounds the attempts of one provider that wait for that.
	queueLength = 256
	// queueLife is how long an attempt may wait. What was read longer ago may
	// be settled, and is met again in the next pass.
	queueLife = 5 * time.Second
	// maxRemembered bounds the attempts of one provider whose back-off is
	// remembered. One that is forgotten is looked at sooner than it had to be.
	maxRemembered = 20_000

	passPause    = time.Second // between passes through the unknown attempts
	passPauseMax = 30 * time.Second
	decideWait   = 30 * time.Second
	clockWait    = 5 * time.Second
	// refusedPause is how long a provider's replays rest after the fold has
	// refused one for a reason that holds for all of them.
	refusedPause = time.Minute
	// complaintPause is how often a provider's troubles are said.
	complaintPause = 30 * time.Second
)

// A Reader reads the tables.
type Reader interface {
	// Attempts returns a page of attempts, the oldest first.
	Attempts(ctx context.Context, f ledger.AttemptFilter) ([]*ledger.Attempt, error)
	// Job returns a job, or nil if there is none.
	Job(ctx context.Context, id uuid.UUID) (*ledger.Job, error)
}

// A Ledger takes entries and tells what the fold decided.
type Ledger interface {
	Decide(ctx context.Context, m ledger.Message) (ledger.Answer, error)
}

// A Lookup asks a provider what became of an attempt. An [HTTPLookup] is one.
type Lookup interface {
	Ask(ctx context.Context, job uuid.UUID, attempt int) (Finding, error)
}

// A Replayer claims an unknown attempt again and sends its request once more. It
// returns the decision on the claim when how that ended is recorded; an error
// means that there was no claim, or no decision.
//
// ErrNotTheSame, wrapped or not, means that the same request cannot be sent any
// more, so that this attempt is never replayed.
type Replayer interface {
	Replay(ctx context.Context, a *ledger.Attempt) (ledger.Answer, error)
}

// ErrNotTheSame: what a replay would send is not what was sent.
var ErrNotTheSame = errors.New("what would be sent is not what was sent")

// A Provider is one that says how the truth about its attempts can be had: by
// Lookup, by Replay, or by both. With both, an attempt is replayed only if the
// look-up does not know it and that is not the truth by itself.
type Provider struct {
	Lookup Lookup // nil: there is none
	// NotFoundFailed says that an attempt which the look-up does not know,
	// after its deadline, never had an effect and never will.
	NotFoundFailed bool
	Replay         Replayer // nil: the provider honours no idempotency keys
	// Initial and Max are the first and the longest wait before an attempt is
	// looked at again; above 0. Each is twice the one before.
	Initial, Max time.Duration
	InFlight     int // attempts that are looked at at a time; 0: DefaultInFlight
}

// Options configure a [Reconciler]. All but Log, Judge and Observe are
// required.
type Options struct {
	// Name makes the actor of what the reconciler says: "reconciler/<name>".
	Name      string
	Providers map[string]Provider
	Reader    Reader
	Ledger    Ledger
	// Now reads the clock that stamps the ledger's entries, and so made the
	// deadlines.
	Now func(ctx context.Context) (time.Time, error)
	Log *slog.Logger // nil: nowhere
	// Judge, if not nil, says how the result that a look-up found breaks the
	// contract of the attempt's kind, "" if it does not. An error means that
	// nobody can tell now.
	Judge func(ctx context.Context, a *ledger.Attempt, result []byte) (broken string, err error)
	// Observe, if not nil, is called with what came of looking at an attempt:
	// one of the Outcomes. It must be quick and safe for concurrent use.
	Observe func(provider string, what Outcome)
}

// An Outcome is what came of looking at an attempt once.
type Outcome string

// The outcomes.
const (
	Settled      Outcome = "settled"       // the ledger knows its end now
	StillRunning Outcome = "running"       // the provider says so
	Unclear      Outcome = "not_found"     // the provider does not know it, which is no truth
	OtherAttempt Outcome = "other_attempt" // the answer was about another attempt
	BadAnswer    Outcome = "bad_answer"    // it was not understood, or its result is not accepted
	NoAnswer     Outcome = "no_answer"     // the provider or the ledger could not be asked, or a result not be judged
	Replayed     Outcome = "replayed"      // the request was sent again
	NotReplayed  Outcome = "not_replayed"  // the fold refused the claim, or a replay is not due or of no use
)

// A Reconciler looks after unknown attempts.
type Reconciler struct {
	o     Options
	log   *slog.Logger
	lanes map[string]*lane
	pause time.Duration // between passes
}

// New returns a reconciler that does nothing until Run. The error says which
// option is wrong.
func New(o Options) (*Reconciler, error) {
	switch {
	case o.Name == "" || ledger.ValidText("reconciler/"+o.Name) != "reconciler/"+o.Name:
		return nil, fmt.Errorf("reconcile: Options.Name is %s; expected a short text", ledger.Quote(o.Name))
	case o.Reader == nil || o.Ledger == nil || o.Now == nil:
		return nil, errors.New("reconcile: Options needs Reader, Ledger and Now")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Judge == nil {
		o.Judge = func(context.Context, *ledger.Attempt, []byte) (string, error) { return "", nil }
	}
	if o.Observe == nil {
		o.Observe = func(string, Outcome) {}
	}
	r := &Reconciler{o: o, log: o.Log, lanes: map[string]*lane{}, pause: passPause}
	for _, name := range slices.Sorted(maps.Keys(o.Providers)) {
		l, err := r.newLane(name, o.Providers[name])
		if err != nil {
			return nil, fmt.Errorf("reconcile: Options.Providers: %s: %w", name, err)
		}
		r.lanes[name] = l
	}
	return r, nil
}

// Run looks after unknown attempts until ctx ends.
//
// It goes through all of them again and again, page by page, the oldest first,
// and hands each that is due to its provider's lane. A lane that is busy is
// passed by, so that a provider which does not answer keeps nobody else waiting.
func (r *Reconciler) Run(ctx context.Context) {
	if len(r.lanes) == 0 {
		<-ctx.Done()
		return
	}
	var lanes sync.WaitGroup
	for _, l := range r.lanes {
		for range l.p.InFlight {
			lanes.Go(func() { l.work(ctx) })
		}
	}
	defer lanes.Wait()
	pause := r.pause
	for number := uint64(1); ; number++ {
		began := time.Now()
		err := r.pass(ctx, number)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.log.Warn("the unknown attempts cannot be read; it is tried again", "error", err)
			pause = min(2*pause, passPauseMax)
		default: // a long list is no reason to keep the database busy
			pause = max(r.pause, 2*time.Since(began))
		}
		if !wait.Sleep(ctx, wait.Jitter(pause)) {
			return
		}
	}
}

// pass goes through the unknown attempts once.
func (r *Reconciler) pass(ctx context.Context, number uint64) error {
	filter := ledger.AttemptFilter{State: ledger.AttemptUnknown, Limit: ledger.MaxPage}
	if len(r.lanes) == 1 {
		for name := range r.lanes {
			filter.Provider = name
		}
	}
	for {
		page, err := r.o.Reader.Attempts(ctx, filter)
		if err != nil {
			return err
		}
		now := time.Now()
		for _, a := range page {
			if l := r.lanes[a.Provider]; l != nil {
				l.offer(a, number, now)
			}
		}
		if len(page) < ledger.MaxPage {
			break
		}
		last := page[len(page)-1]
		filter.After = ledger.Cursor{At: last.RequestedAt, Job: last.Job, Attempt: last.Number}
	}
	for _, l := range r.lanes {
		l.forget(number)
	}
	return nil
}
