package reconcile

import (
	"context"
	"errors"
	"time"

	"jobledger/ledger"
)

// replay has an attempt's request sent again, if that is due and of use.
func (l *lane) replay(ctx context.Context, a *ledger.Attempt) Outcome {
	if !l.replayDue(a) {
		return NotReplayed
	}
	if a.Replays >= ledger.MaxReplays {
		l.neverReplay(a)
		l.about(a).Error("an attempt is unknown although it was replayed as often as it may be; a person has to resolve it", "replays", a.Replays)
		return NotReplayed
	}
	job, err := l.o.Reader.Job(ctx, a.Job)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			l.complain(a, "the job of an unknown attempt cannot be read; it is tried again", "error", err)
		}
		return NoAnswer
	case job == nil || job.State.Settled() || job.Version != a.JobVersion:
		l.neverReplay(a) // the fold would refuse it: nothing hangs on the attempt any more
		return NotReplayed
	}
	answer, err := l.p.Replay.Replay(ctx, a)
	if errors.Is(err, ErrNotTheSame) {
		l.neverReplay(a)
		l.about(a).Error("an unknown attempt is not replayed; a person has to find out", "error", err)
		return NotReplayed
	}
	if err != nil {
		if ctx.Err() == nil {
			l.complain(a, "an unknown attempt could not be replayed; it is tried again", "error", err)
		}
		return NoAnswer
	}
	return l.replayed(a, answer)
}

// replayed notes what the fold decided on the claim.
func (l *lane) replayed(a *ledger.Attempt, answer ledger.Answer) Outcome {
	switch answer.Reason {
	case "":
		l.about(a).Info("the request of an unknown attempt was sent again", "replays", a.Replays+1)
		l.restart(a)
		return Replayed
	case ledger.JobFinished, ledger.Fenced:
		l.neverReplay(a)
	case ledger.ReplayNotAllowed, ledger.PausedProvider: // which holds for all of them
		l.about(a).Warn("the ledger refuses to replay attempts of this provider; is what the configuration says of it applied, and is it paused?",
			"why", answer.Reason, "detail", answer.Detail)
		l.rest()
	default: // somebody else was faster
		l.about(a).Debug("an unknown attempt was not replayed", "why", answer.Reason, "detail", answer.Detail)
	}
	return NotReplayed
}

// replayDue reports whether the attempt may be replayed now. The more often it
// was, the longer it rests, also if this process learns of it only now.
func (l *lane) replayDue(a *ledger.Attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, now := l.known[idOf(a)], time.Now()
	if m.noReplay || now.Before(l.resume) {
		return false
	}
	return a.Replays == 0 || now.Sub(m.first) >= l.wait(a.Replays)/2
}

func (l *lane) neverReplay(a *ledger.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[idOf(a)].noReplay = true
}

// restart begins anew to count how long an attempt has been unknown.
func (l *lane) restart(a *ledger.Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.known[idOf(a)]
	m.first, m.tries = time.Now(), a.Replays
}

// rest keeps all replays back for a while.
func (l *lane) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resume = time.Now().Add(max(refusedPause, l.p.Max))
}
