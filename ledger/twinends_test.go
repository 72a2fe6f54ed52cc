package ledger_test

import (
	"crypto/sha256"
	"time"

	"jobledger/ledger"
)

func (c *twinCall) claim(b *ledger.Claim) {
	a := c.find(b.Attempt, b.Provider)
	if a == nil {
		return
	}
	state, limit := a.state(), c.j.kind.AttemptTimeoutMS
	switch {
	case a.end == "" && a.claim == b.Claim:
		c.repeat()
		c.out.timeout = limit
	case b.Replay:
		c.replay(a, b)
	case state == ledger.AttemptRunning, state == ledger.AttemptUnknown:
		c.refuse(ledger.AlreadyClaimed)
	case a.end != "":
		c.refuse(ledger.AttemptEnded)
	case b.JobVersion != a.version:
		c.refuse(ledger.Fenced)
	case a.startBy != time.Time{} && !c.e.At.Before(a.startBy):
		c.refuse(ledger.StartDeadlinePassed)
	default:
		a.startSeq, a.claimed = b.StartSeq, c.e.At
		c.give(a, b)
	}
}

// replay is a claim on an attempt of which nobody knows how it ended.
func (c *twinCall) replay(a *twinAttempt, b *ledger.Claim) {
	switch {
	case a.end != "":
		c.refuse(ledger.AttemptEnded)
	case a.claim == "":
		c.refuse(ledger.AttemptNotClaimed)
	case !a.lost:
		c.refuse(ledger.AlreadyClaimed)
	case c.j.settled():
		c.refuse(ledger.JobFinished)
	case b.JobVersion != c.j.version, b.JobVersion != a.version:
		c.refuse(ledger.Fenced)
	case c.t.paused[a.provider]:
		c.refuse(ledger.PausedProvider)
	case !c.t.promises[a.provider], a.replays == 10:
		c.refuse(ledger.ReplayNotAllowed)
	default:
		a.replays++
		a.lost, a.failure = false, ledger.Failure{}
		c.give(a, b)
	}
}

func (c *twinCall) give(a *twinAttempt, b *ledger.Claim) {
	limit := c.j.kind.AttemptTimeoutMS
	c.accept()
	a.claim, a.claimHash, a.worker = b.Claim, sha256.Sum256([]byte(b.Claim)), b.Worker
	a.deadline = c.e.At.Add(time.Duration(limit) * time.Millisecond)
	c.out.timeout = limit
}

// forsake is the loss of the worker that holds an attempt.
func (c *twinCall) forsake(a *twinAttempt, b *ledger.Resolution) {
	switch {
	case a.end != "":
		c.refuse(ledger.AttemptEnded)
	case a.claim == "":
		c.refuse(ledger.AttemptNotClaimed)
	case a.worker != b.Worker:
		c.refuse(ledger.NotClaimant)
	case a.lost:
		c.repeat()
	default:
		c.accept()
		c.lose(a, ledger.Failure{Class: "worker_lost", Message: b.Reason})
	}
}

func (c *twinCall) complete(b *ledger.Completion) {
	a := c.find(b.Attempt, b.Provider)
	if a == nil {
		return
	}
	word := twinWord(b.Outcome, b.Result, b.Failure, b.ProviderRef, b.Usage)
	switch {
	case a.claim == "" || a.claim != b.Claim:
		c.refuse(ledger.NotClaimant)
	case a.said == "worker:"+word:
		c.repeat()
	case a.end != "" && c.j.winner != 0:
		c.refuse(ledger.ResultAlreadyClaimed)
	case a.end != "":
		c.refuse(ledger.AttemptEnded)
	case b.JobVersion != a.version:
		c.refuse(ledger.Fenced)
	case a.replays > 0 && !b.Failure.Executed && b.Outcome != ledger.OutcomeSucceeded && b.Outcome != ledger.OutcomeUnknown:
		if a.lost && (b.ProviderRef == "" || a.ref != "") { // the second request tells nothing of the first
			c.repeat()
			return
		}
		c.accept()
		a.learn(b)
		c.lose(a, b.Failure)
	case b.Outcome == ledger.OutcomeUnknown && a.lost && (b.ProviderRef == "" || a.ref != ""):
		c.repeat()
	case b.Outcome == ledger.OutcomeUnknown:
		c.accept()
		a.learn(b)
		c.lose(a, b.Failure)
	default:
		a.said = "worker:" + word
		a.learn(b)
		c.finish(a, b)
	}
}

func (a *twinAttempt) learn(b *ledger.Completion) {
	if b.ProviderRef != "" {
		a.ref = b.ProviderRef
	}
	if b.Usage != nil {
		a.usage = string(b.Usage)
	}
}

func (c *twinCall) finish(a *twinAttempt, b *ledger.Completion) {
	if b.Outcome == ledger.OutcomeSucceeded {
		c.succeed(a, b.Result)
		return
	}
	c.accept()
	a.end, a.ended = ledger.AttemptFailed, c.e.At
	if b.Outcome == ledger.OutcomeUnsent {
		a.end = ledger.AttemptUnsent
	}
	c.blame(a, b.Failure)
	c.follow()
}

// blame keeps why an attempt has no result. The provider's wish to wait is
// heard now or never.
func (c *twinCall) blame(a *twinAttempt, why ledger.Failure) {
	c.wish, c.wisher, why.RetryAfterMS = why.RetryAfterMS, a.provider, 0
	a.failure = why
}

// lose makes an attempt unknown, or keeps it so with another explanation.
func (c *twinCall) lose(a *twinAttempt, why ledger.Failure) {
	if !a.lost {
		a.lost, a.lostSince = true, c.e.At
	}
	why.RetryAfterMS = 0
	a.failure = why
	c.follow()
}

// succeed gives the attempt the result slot if it is free.
func (c *twinCall) succeed(a *twinAttempt, result []byte) {
	j := c.j
	a.ended, a.failure = c.e.At, ledger.Failure{}
	switch {
	case j.winner != 0:
		a.end = ledger.AttemptSuperseded
		c.refuse(ledger.ResultAlreadyClaimed)
	case j.settled(), j.version != a.version:
		a.end = ledger.AttemptSuperseded
		c.refuse(ledger.Fenced)
	default:
		c.accept()
		a.end = ledger.AttemptSucceeded
		j.winner, j.result, j.closedAt, j.closedSeq = a.number, string(result), c.e.At, c.e.Seq
		j.version++
		j.wait, j.due = "", time.Time{}
		c.drop()
	}
}

func (c *twinCall) resolve(b *ledger.Resolution) {
	a := c.find(b.Attempt, "")
	if a == nil {
		return
	}
	if b.As == ledger.OutcomeUnknown {
		c.forsake(a, b)
		return
	}
	word := "person:" + twinWord(b.As, b.Result, b.Failure, "", nil)
	switch {
	case a.said == word:
		c.repeat()
		return
	case a.end != "":
		c.refuse(ledger.AttemptEnded)
		return
	case b.IfUnknown && a.state() != ledger.AttemptUnknown:
		c.refuse(ledger.AttemptNotUnknown)
		return
	case a.claim == "" && b.As != ledger.OutcomeCancelled:
		c.refuse(ledger.AttemptNotClaimed)
		return
	}
	if a.state() == ledger.AttemptRunning {
		c.out.stopped = append(c.out.stopped, a)
	}
	a.said, a.resolved, a.resolver, a.because = word, c.e.At, b.Actor, b.Reason
	switch b.As {
	case ledger.OutcomeSucceeded:
		c.succeed(a, b.Result)
	case ledger.OutcomeFailed:
		c.accept()
		a.end, a.ended = ledger.AttemptFailed, c.e.At
		c.blame(a, b.Failure)
		if b.Failure.Class == "" {
			a.failure = ledger.Failure{Class: "resolved", Message: b.Reason, Reach: ledger.ReachTransient}
		}
		c.follow()
	case ledger.OutcomeCancelled:
		c.accept()
		a.end, a.ended = ledger.AttemptCancelled, c.e.At
		if !c.j.settled() && !c.j.busy() {
			c.j.version++
			c.j.wait, c.j.due = ledger.Held, time.Time{}
		}
	}
}

func (c *twinCall) due(b *ledger.Due) {
	if c.j == nil || c.e.At.Before(b.Due) {
		return
	}
	if b.Attempt == 0 {
		if c.j.due.Equal(b.Due) {
			c.accept()
			c.jobDue()
		}
		return
	}
	for _, a := range c.j.attempts {
		if a.number != b.Attempt || !a.due().Equal(b.Due) {
			continue
		}
		c.accept()
		c.out.attempt = a.number
		if a.state() == ledger.AttemptStarting {
			a.end, a.ended = ledger.AttemptExpired, c.e.At
			a.failure = ledger.Failure{Class: "expired", Message: "no worker claimed the attempt before its start deadline"}
			c.follow()
		} else {
			c.lose(a, ledger.Failure{Class: "deadline", Message: "no completion arrived before the attempt's deadline"})
		}
		return
	}
}

func (c *twinCall) jobDue() {
	j := c.j
	if j.wait != "" {
		c.carryOut(c.next(), true)
		return
	}
	j.due = time.Time{}
	if j.counted() >= j.kind.MaxAttempts {
		return
	}
	for _, p := range j.kind.Providers {
		if !j.used(p) && c.allowed(p) && !c.t.paused[p] {
			c.quiet, j.due = false, time.Time{}
			c.start(p, ledger.Hedge, "")
			return
		}
		if !j.used(p) && j.state() == ledger.JobRunning { // perhaps later
			c.quiet, j.due = true, c.e.At.Add(time.Minute)
		}
	}
}
