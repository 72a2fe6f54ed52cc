package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
	"jobledger/workers/internal/wait"
)

// A lane looks at the unknown attempts of one provider.
type lane struct {
	name  string
	p     Provider
	o     *Options
	log   *slog.Logger
	queue chan queued

	mu     sync.Mutex
	known  map[attemptID]*memory
	resume time.Time // replays rest until then
	quiet  time.Time // complaints are debugging until then
	unsaid int       // complaints since the last one that was said
}

// attemptID names an attempt.
type attemptID struct {
	job    uuid.UUID
	number int
}

func idOf(a *ledger.Attempt) attemptID { return attemptID{a.Job, a.Number} }

// A queued attempt waits to be looked at.
type queued struct {
	*ledger.Attempt
	since time.Time
}

// A memory is what is remembered of an unknown attempt. It is lost with the
// process: then the attempt is looked at sooner than it had to be.
type memory struct {
	first    time.Time // when it was met
	next     time.Time // not to be looked at before
	tries    int
	busy     bool // it is in the queue or being looked at
	noReplay bool // it has been said that a replay is of no use
	pass     uint64
}

func (r *Reconciler) newLane(name string, p Provider) (*lane, error) {
	switch {
	case p.Lookup == nil && p.Replay == nil:
		return nil, errors.New("neither Lookup nor Replay is set")
	case p.Initial <= 0 || p.Max < p.Initial:
		return nil, fmt.Errorf("the waits are %s to %s; expected more than 0, and the longest not below the first", p.Initial, p.Max)
	case p.InFlight < 0:
		return nil, fmt.Errorf("InFlight is %d; expected 0 or more", p.InFlight)
	}
	if p.InFlight == 0 {
		p.InFlight = DefaultInFlight
	}
	return &lane{
		name: name, p: p, o: &r.o, log: r.log.With("provider", name),
		queue: make(chan queued, queueLength), known: map[attemptID]*memory{},
	}, nil
}

// wait is the pause after n tries, before jitter.
func (l *lane) wait(n int) time.Duration {
	d := l.p.Initial
	for ; n > 1 && d < l.p.Max; n-- {
		d *= 2
	}
	return min(d, l.p.Max)
}

// offer takes an attempt into the queue if it is due and there is room.
func (l *lane) offer(a *ledger.Attempt, pass uint64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.known[idOf(a)]
	if m == nil {
		m = l.remember(a, now)
	}
	m.pass = pass
	if m.busy || now.Before(m.next) {
		return
	}
	select {
	case l.queue <- queued{a, now}:
		m.busy = true
	default: // the lane is busy; the attempt comes again
	}
}

func (l *lane) remember(a *ledger.Attempt, now time.Time) *memory {
	for id, m := range l.known {
		if len(l.known) < maxRemembered {
			break
		}
		if !m.busy {
			delete(l.known, id)
		}
	}
	m := &memory{first: now}
	l.known[idOf(a)] = m
	return m
}

// forget drops what was not met in the pass: it is unknown no more.
func (l *lane) forget(pass uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, m := range l.known {
		if m.pass != pass && !m.busy {
			delete(l.known, id)
		}
	}
}

// work looks at attempts, one after the other, until ctx ends.
func (l *lane) work(ctx context.Context) {
	for {
		select {
		case q := <-l.queue:
			if time.Since(q.since) > queueLife {
				l.done(q.Attempt, 0)
				continue
			}
			what := l.look(ctx, q.Attempt)
			if ctx.Err() != nil {
				return
			}
			l.o.Observe(l.name, what)
			l.done(q.Attempt, 1)
		case <-ctx.Done():
			return
		}
	}
}

// done says when an attempt that was looked at is to be looked at again, should
// it then still be unknown.
func (l *lane) done(a *ledger.Attempt, tries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.known[idOf(a)]
	m.busy = false
	if m.tries += tries; tries > 0 {
		m.next = time.Now().Add(wait.Jitter(l.wait(m.tries)))
	}
}

// about is a log about an attempt.
func (l *lane) about(a *ledger.Attempt) *slog.Logger {
	return l.log.With("job", a.Job, "attempt", a.Number)
}

// complain warns of what may go wrong with every attempt of a provider: not more
// often than now and then, with the number of those in between.
func (l *lane) complain(a *ledger.Attempt, message string, args ...any) {
	l.mu.Lock()
	now, level := time.Now(), slog.LevelDebug
	if l.unsaid++; !now.Before(l.quiet) {
		level, args = slog.LevelWarn, append(args, "since_the_last", l.unsaid)
		l.quiet, l.unsaid = now.Add(complaintPause), 0
	}
	l.mu.Unlock()
	l.about(a).Log(context.Background(), level, message, args...)
}

// look does once what the provider allows to learn an attempt's end.
func (l *lane) look(ctx context.Context, a *ledger.Attempt) Outcome {
	if l.p.Lookup == nil {
		return l.replay(ctx, a)
	}
	// The clock is read before the question is put: an answer from before the
	// deadline proves nothing about what came until it.
	over := l.p.NotFoundFailed && l.deadlinePassed(ctx, a)
	f, err := l.p.Lookup.Ask(ctx, a.Job, a.Number)
	var bad *MalformedError
	switch {
	case errors.As(err, &bad):
		l.complain(a, "nothing was learned of an unknown attempt", "error", err)
		return BadAnswer
	case err != nil:
		if ctx.Err() == nil {
			l.complain(a, "nothing was learned of an unknown attempt", "error", err)
		}
		return NoAnswer
	case f.Attempt != a.Number:
		l.complain(a, "the look-up answered for another attempt, which says nothing of this one", "answered_for", f.Attempt, "status", f.Status)
		return OtherAttempt
	}
	return l.conclude(ctx, a, f, over)
}

// conclude does what an answer about the attempt itself asks for.
func (l *lane) conclude(ctx context.Context, a *ledger.Attempt, f Finding, over bool) Outcome {
	r := &ledger.Resolution{
		Job: a.Job, Attempt: a.Number, Actor: "reconciler/" + l.o.Name, IfUnknown: true,
		Reason: fmt.Sprintf("provider %s answered the look-up: %s", l.name, f.Status),
	}
	if f.Message != "" {
		r.Reason += ": " + f.Message
	}
	switch f.Status {
	case Succeeded:
		broken, err := l.o.Judge(ctx, a, f.Result)
		if err != nil {
			l.complain(a, "the look-up found a result that cannot be judged; the attempt stays unknown", "error", err)
			return NoAnswer
		}
		if broken == "" {
			r.As, r.Result = ledger.OutcomeSucceeded, f.Result
			break
		}
		r.As, r.Reason = ledger.OutcomeFailed, r.Reason+", with a result that breaks the contract"
		r.Failure = ledger.Failure{Class: "contract", Message: ledger.ValidText(broken), Executed: true, Reach: ledger.ReachTransient}
	case Failed:
		r.As = ledger.OutcomeFailed
		r.Failure = ledger.Failure{Class: "lookup_failed", Message: r.Reason, Executed: f.Executed, Reach: ledger.ReachTransient}
	case NotFound:
		if !over {
			if l.p.Replay != nil && !l.p.NotFoundFailed {
				return l.replay(ctx, a)
			}
			return Unclear
		}
		r.As, r.Reason = ledger.OutcomeFailed, r.Reason+", after the attempt's deadline; by its declaration it never had an effect"
		r.Failure = ledger.Failure{Class: "not_found", Message: r.Reason, Reach: ledger.ReachTransient}
	default:
		return StillRunning
	}
	return l.say(ctx, a, r)
}

// deadlinePassed reports whether the attempt's time is over by the clock that
// has set it. What it cannot read has not passed.
func (l *lane) deadlinePassed(ctx context.Context, a *ledger.Attempt) bool {
	if a.Deadline.IsZero() {
		return false
	}
	if !a.UnknownSince.Before(a.Deadline) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, clockWait)
	defer cancel()
	now, err := l.o.Now(ctx)
	if err != nil {
		l.about(a).Warn("whether an attempt's deadline has passed cannot be told", "error", err)
		return false
	}
	return now.After(a.Deadline)
}

// say settles an attempt in the ledger.
func (l *lane) say(ctx context.Context, a *ledger.Attempt, r *ledger.Resolution) Outcome {
	ctx, cancel := context.WithTimeout(ctx, decideWait)
	defer cancel()
	answer, err := l.o.Ledger.Decide(ctx, r.Message())
	log := l.about(a).With("as", r.As)
	if err != nil {
		l.complain(a, "an unknown attempt's end could not be said, or was not decided yet; it is looked at again", "error", err)
		return NoAnswer
	}
	log = log.With("decision", answer.Decision)
	switch answer.Reason {
	case "":
		log.Info("an unknown attempt is settled")
		return Settled
	case ledger.AttemptEnded, ledger.ResultAlreadyClaimed, ledger.Fenced: // it has ended, and the job had without it
		log.Info("an unknown attempt is settled, and its job was before", "why", answer.Reason)
		return Settled
	case ledger.AttemptNotUnknown: // a late completion came, or another reconciler replays it
		log.Info("an attempt is unknown no more", "detail", answer.Detail)
		return StillRunning
	}
	log.Error("the ledger does not take what was learned of an unknown attempt", "why", answer.Reason, "detail", answer.Detail)
	return BadAnswer
}
