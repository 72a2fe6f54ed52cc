package ledger_test

import (
	"fmt"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// attemptHistories is I9 for attempts: an end is for ever, and what an attempt
// is never changes.
func (w *watch) attemptHistories(e *ledger.Entry, _ ledger.Verdict, before, after rows) error {
	if len(after.attempts) < len(before.attempts) || len(after.attempts) > len(before.attempts)+1 {
		return fmt.Errorf("%d attempts became %d", len(before.attempts), len(after.attempts))
	}
	for i, a := range after.attempts {
		if a.number != i+1 {
			return fmt.Errorf("attempt %d has the number %d", i+1, a.number)
		}
		if i >= len(before.attempts) {
			if a.state != ledger.AttemptStarting || a.version != after.job.version {
				return fmt.Errorf("attempt %d begins as %s with version %d", a.number, a.state, a.version)
			}
			continue
		}
		was := before.attempts[i]
		again := w.replays(e, was, a)
		switch {
		case again:
		case !inFlight(was.state) && a != was:
			return fmt.Errorf("I9: attempt %d has ended and changed: %+v, was %+v", a.number, a, was)
		case a.provider != was.provider || a.why != was.why || a.version != was.version || a.asked != was.asked ||
			a.key != was.key || a.startBy != was.startBy:
			return fmt.Errorf("attempt %d became another: %+v, was %+v", a.number, a, was)
		case was.started != 0 && (a.started != was.started || a.claimHash != was.claimHash || a.deadline != was.deadline):
			return fmt.Errorf("I4: attempt %d was claimed twice: %+v, was %+v", a.number, a, was)
		case was.started == 0 && a.started != 0 && (e.Kind != ledger.AttemptClaim || was.state != ledger.AttemptStarting):
			return fmt.Errorf("%s claimed the attempt %+v", e.Kind, was)
		case was.state == ledger.AttemptUnknown && (a.state == ledger.AttemptStarting || a.state == ledger.AttemptRunning):
			return fmt.Errorf("attempt %d went from unknown to %s", a.number, a.state)
		case was.lost != 0 && a.lost != was.lost && a.replays == 0:
			return fmt.Errorf("attempt %d is unknown since %d, was %d", a.number, a.lost, was.lost)
		}
	}
	return nil
}

// replays reports whether the entry claimed an unknown attempt again, as only a
// provider's promise allows (I4).
func (w *watch) replays(e *ledger.Entry, was, a attemptCells) bool {
	b, ok := e.Body.(*ledger.Claim)
	allowed := ok && b.Replay && b.Attempt == a.number && was.provider == e.Token && w.promises[was.provider] &&
		!w.paused[was.provider] && was.state == ledger.AttemptUnknown && a.state == ledger.AttemptRunning
	if !allowed || a.replays != was.replays+1 || a.replays > ledger.MaxReplays || a.claimHash == was.claimHash {
		return false
	}
	was.state, was.claimHash, was.worker, was.deadline, was.due = a.state, a.claimHash, a.worker, a.deadline, a.due
	was.replays, was.failure = a.replays, a.failure
	return was == a
}

// onlyExplicitFailures is I6.
func (w *watch) onlyExplicitFailures(e *ledger.Entry, _ ledger.Verdict, before, after rows) error {
	for i, was := range before.attempts {
		a := after.attempts[i]
		if a.state == was.state {
			continue
		}
		var allowed bool
		switch b := e.Body.(type) {
		case *ledger.Due:
			allowed = a.state == ledger.AttemptUnknown && was.state == ledger.AttemptRunning ||
				a.state == ledger.AttemptExpired && was.state == ledger.AttemptStarting
			allowed = allowed && !e.At.Before(b.Due) && micros(b.Due) == was.due && b.Attempt == a.number
		case *ledger.Claim:
			allowed = a.state == ledger.AttemptRunning && b.Attempt == a.number && was.provider == e.Token
		case *ledger.Completion:
			allowed = completionAllows(b, was, a)
		case *ledger.Resolution:
			allowed = resolutionAllows(b, was, a)
		case *ledger.Cancel:
			allowed = a.state == ledger.AttemptCancelled && was.state == ledger.AttemptStarting
		}
		if !allowed {
			return fmt.Errorf("I6: %s took attempt %d from %s to %s", e.Kind, a.number, was.state, a.state)
		}
	}
	return nil
}

func completionAllows(b *ledger.Completion, was, a attemptCells) bool {
	if b.Attempt != a.number { // the winner's siblings
		return b.Outcome == ledger.OutcomeSucceeded && a.state == ledger.AttemptCancelled && was.state == ledger.AttemptStarting
	}
	if was.provider != b.Provider || was.version != b.JobVersion {
		return false
	}
	switch a.state {
	case ledger.AttemptFailed:
		return b.Outcome == ledger.OutcomeFailed && (a.replays == 0 || b.Failure.Executed)
	case ledger.AttemptUnsent:
		return b.Outcome == ledger.OutcomeUnsent && a.replays == 0
	case ledger.AttemptUnknown:
		return b.Outcome == ledger.OutcomeUnknown || a.replays > 0 && !b.Failure.Executed
	case ledger.AttemptSucceeded, ledger.AttemptSuperseded:
		return b.Outcome == ledger.OutcomeSucceeded
	}
	return false
}

func resolutionAllows(b *ledger.Resolution, was, a attemptCells) bool {
	if b.Attempt != a.number {
		return b.As == ledger.OutcomeSucceeded && a.state == ledger.AttemptCancelled
	}
	switch a.state {
	case ledger.AttemptFailed:
		return b.As == ledger.OutcomeFailed
	case ledger.AttemptCancelled:
		return b.As == ledger.OutcomeCancelled
	case ledger.AttemptUnknown:
		return b.As == ledger.OutcomeUnknown && was.state == ledger.AttemptRunning && was.worker == b.Worker
	case ledger.AttemptSucceeded, ledger.AttemptSuperseded:
		return b.As == ledger.OutcomeSucceeded
	}
	return false
}

// startsOnce wants one start effect for each attempt, when it comes to be.
func (w *watch) startsOnce(e *ledger.Entry, v ledger.Verdict, _, after rows) error {
	for _, effect := range v.Effects {
		if effect.Kind == ledger.StartAttempt {
			w.started[e.Job]++
			if effect.Attempt != w.started[e.Job] {
				return fmt.Errorf("I4: start %d of a job is of attempt %d", w.started[e.Job], effect.Attempt)
			}
		}
	}
	if after.job.id != uuid.Nil && w.started[e.Job] != len(after.attempts) {
		return fmt.Errorf("I4: %d starts for %d attempts", w.started[e.Job], len(after.attempts))
	}
	return nil
}

// startsProven is I14.
func (w *watch) startsProven(e *ledger.Entry, v ledger.Verdict, _, after rows) error {
	kind := w.kinds[after.job.kindSeq]
	for _, effect := range v.Effects {
		if effect.Kind != ledger.StartAttempt {
			continue
		}
		first := after.job.provider
		if first == "" {
			first = kind.Providers[0]
		}
		ask, ok := e.Body.(*ledger.AttemptAsk)
		forced := ok && ask.Force && ask.Owner == ""
		if w.paused[effect.Provider] && !forced {
			return fmt.Errorf("%s started attempt %d on %s, which is paused", e.Kind, effect.Attempt, effect.Provider)
		}
		if effect.Provider != first && !w.proven(effect.Provider, &kind, e) && !forced {
			return fmt.Errorf("I14: %s started attempt %d on %s without proof", e.Kind, effect.Attempt, effect.Provider)
		}
	}
	return nil
}

func (w *watch) proven(provider string, kind *ledger.Kind, e *ledger.Entry) bool {
	proof := w.proofs[[3]string{provider, kind.Name, kind.Contract}]
	return proof != nil && proof.Passed && e.At.Before(proof.ExpiresAt) && proof.ProviderDigest == w.providers[provider]
}

// rowsNoteTheirEntries wants the sequence of each entry that changed a row
// there, once and in order, and no other. Only looking once more for a proof, at
// a brake, or whether a race may be hedged leaves no sequence, or a row that waits for months would grow with every look.
func (w *watch) rowsNoteTheirEntries(e *ledger.Entry, _ ledger.Verdict, before, after rows) error {
	noted := func(was, is []uint64, changed bool) bool {
		if !changed {
			return len(is) == len(was)
		}
		return len(is) == len(was)+1 && is[len(is)-1] == e.Seq && (len(was) == 0 || was[len(was)-1] < e.Seq)
	}
	changed := before.job != after.job
	looks := before.job.reason == ledger.FailoverUnverified || before.job.reason == ledger.ProviderPaused ||
		w.kinds[before.job.kindSeq].Mode == ledger.ModeRace && after.job.due != 0
	if look := before.job; looks && e.Kind == ledger.ClockDue {
		look.due = after.job.due
		changed = changed && look != after.job
	}
	if !noted(before.seqs, after.seqs, changed) {
		return fmt.Errorf("the job's seqs %v became %v", before.seqs, after.seqs)
	}
	for i, a := range after.attempts {
		var was []uint64
		changed := true
		if i < len(before.attempts) {
			was, changed = before.attemptSeqs[i], before.attempts[i] != a
		}
		if !noted(was, after.attemptSeqs[i], changed) {
			return fmt.Errorf("attempt %d's seqs %v became %v", a.number, was, after.attemptSeqs[i])
		}
	}
	wanted := before.updated
	if changed {
		wanted = micros(e.At)
	}
	if after.updated != wanted {
		return fmt.Errorf("updated_at is %d, want %d", after.updated, wanted)
	}
	return nil
}
