package ledger

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"time"
)

var zeroTime time.Time

// ask starts an attempt because a person wants one. It overrides back-off,
// run_at and max_attempts, but neither I5 nor I14.
func (st *step) ask(b *AttemptAsk) {
	if st.missing(b.Owner) || st.asked(b) {
		return
	}
	j := st.job
	provider := b.Provider
	if provider == "" {
		provider = lastProvider(j, st.kind)
	}
	switch busy := st.busy(provider); {
	case j.State.Final():
		st.refuse(JobFinished, "the job is %s; another attempt could change nothing", j.State)
	case !slices.Contains(st.kind.Providers, provider):
		st.refuse(UnknownProvider, "kind %s has no provider %s; it has %q", j.Kind, Quote(provider), st.kind.Providers)
	case busy != nil:
		st.out.Answer.Attempt = busy.Number
		st.refuse(AttemptInFlight, "attempt %d on provider %s is %s; what becomes of it must be known first",
			busy.Number, busy.Provider, busy.State)
	case b.Force && b.Owner != "":
		st.refuse(Forbidden, "only an operator may force a start on an unverified or paused provider")
	case !b.Force && st.s.defs.paused(provider):
		st.refuse(PausedProvider, "provider %s is paused", provider)
	case !b.Force && !st.mayStart(provider):
		st.refuse(ProviderNotVerified, "provider %s has no current verification for kind %s", provider, j.Kind)
	case len(j.Attempts) >= MaxAttemptsPerJob:
		st.refuse(TooManyAttempts, "the job has %d attempts, the most that one may have", len(j.Attempts))
	default:
		st.accept()
		st.reopen()
		st.start(jobReopened, provider, Manual).Key = b.Key
	}
}

// asked answers a wish that was granted before under the same key.
func (st *step) asked(b *AttemptAsk) bool {
	for _, a := range st.job.Attempts {
		if a.Key != b.Key {
			continue
		}
		st.out.Answer.Attempt = a.Number
		if b.Provider == "" || b.Provider == a.Provider {
			st.duplicate()
		} else {
			st.reject(Conflict, IdempotencyConflict, "key %s already started attempt %d on provider %s",
				Quote(b.Key), a.Number, a.Provider)
		}
		return true
	}
	return false
}

// busy returns the attempt that forbids another one on provider: in an
// exclusive job any that is in flight (I5), in a race one on that provider.
func (st *step) busy(provider string) *Attempt {
	for _, a := range st.job.Attempts {
		if a.State.InFlight() && (st.kind.Mode == ModeExclusive || a.Provider == provider) {
			return a
		}
	}
	return nil
}

// mayStart reports whether provider needs no proof or has one (I14).
func (st *step) mayStart(provider string) bool {
	return provider == firstChoice(st.job, st.kind) || st.s.defs.verified(provider, st.kind, st.e.At)
}

// reopen takes back a failure. The version grows: what ended before is fenced.
func (st *step) reopen() {
	j := st.job
	if j.State != JobFailed {
		return
	}
	st.touchJob()
	j.Version++
	j.Failure, j.CompletedAt, j.CompletedSeq = Failure{}, zeroTime, 0
}

func lastProvider(j *Job, k *Kind) string {
	if n := len(j.Attempts); n > 0 {
		return j.Attempts[n-1].Provider
	}
	return firstChoice(j, k)
}

// attempt finds the attempt that a worker speaks of; the subject that it spoke
// on says for which provider it may speak.
func (st *step) attempt(n int, provider string) *Attempt {
	st.out.Answer.Attempt = n
	if st.missing("") {
		return nil
	}
	a := st.job.Attempt(n)
	switch {
	case a == nil:
		st.refuse(UnknownAttempt, "the job has %d attempts", len(st.job.Attempts))
		return nil
	case provider != "" && a.Provider != provider:
		st.refuse(WrongProvider, "attempt %d runs on provider %s, not on %s", n, a.Provider, provider)
		return nil
	}
	return a
}

// claim gives a starting attempt to the first worker that asks for it.
func (st *step) claim(b *Claim) {
	a := st.attempt(b.Attempt, b.Provider)
	if a == nil {
		return
	}
	hash := hashClaim(b.Claim)
	switch {
	case a.ClaimHash == hash && a.State.InFlight():
		st.duplicate()
		st.out.Answer.TimeoutMS = st.kind.AttemptTimeoutMS
	case b.Replay:
		st.replay(a, b, hash)
	case a.State == AttemptRunning || a.State == AttemptUnknown:
		st.refuse(AlreadyClaimed, "attempt %d was claimed before and is %s", a.Number, a.State)
	case a.State != AttemptStarting:
		st.refuse(AttemptEnded, "attempt %d is %s", a.Number, a.State)
	case b.JobVersion != a.JobVersion:
		st.refuse(Fenced, "the claim names version %d of the job; the attempt started with %d", b.JobVersion, a.JobVersion)
	case !a.StartBy.IsZero() && !st.e.At.Before(a.StartBy):
		st.refuse(StartDeadlinePassed, "attempt %d had to be claimed before %s", a.Number, a.StartBy.Format(time.RFC3339Nano))
	default:
		a.StartSeq, a.StartedAt = b.StartSeq, st.e.At
		st.give(a, b.Worker, hash, attemptClaimed)
	}
}

// give lets a worker have an attempt, for as long as the kind allows.
func (st *step) give(a *Attempt, worker string, claim Digest, event attemptEvent) {
	st.accept()
	st.touchAttempt(a)
	st.s.moveAttempt(a, event)
	a.Worker, a.ClaimHash = worker, claim
	a.Deadline = st.e.At.Add(milliseconds(st.kind.AttemptTimeoutMS))
	a.DueAt = a.Deadline
	st.out.Answer.TimeoutMS = st.kind.AttemptTimeoutMS
}

// complete takes a worker's word about the attempt that it claimed.
func (st *step) complete(b *Completion) {
	a := st.attempt(b.Attempt, b.Provider)
	if a == nil {
		return
	}
	switch {
	case a.ClaimHash.IsZero() || a.ClaimHash != hashClaim(b.Claim):
		st.refuse(NotClaimant, "attempt %d (%s) was not claimed with this claim", a.Number, a.State)
	case a.Completion == b.digest:
		st.duplicate()
	case !a.State.InFlight():
		st.refuse(st.lateReason(), "attempt %d is %s already", a.Number, a.State)
	case b.JobVersion != a.JobVersion:
		st.refuse(Fenced, "the completion names version %d of the job; the attempt started with %d", b.JobVersion, a.JobVersion)
	default:
		st.settle(a, b)
	}
}

// lateReason says why a completion of an ended attempt is refused.
func (st *step) lateReason() Reason {
	if st.job.CompletedBy != 0 {
		return ResultAlreadyClaimed
	}
	return AttemptEnded
}

// settle ends a running or unknown attempt as its worker says.
func (st *step) settle(a *Attempt, b *Completion) {
	if b.Outcome == OutcomeUnknown || a.Replays > 0 && b.saysNothingOfBefore() {
		st.ambiguous(a, b)
		return
	}
	a.Completion = b.digest
	a.keep(b)
	switch b.Outcome {
	case OutcomeSucceeded:
		st.success(a, b.Result, attemptWon, attemptLost)
	case OutcomeFailed:
		st.accept()
		st.fail(a, b.Failure, attemptFailed)
	case OutcomeUnsent:
		st.accept()
		st.fail(a, b.Failure, attemptNotSent)
	}
}

// fail ends an attempt without a result.
func (st *step) fail(a *Attempt, why Failure, event attemptEvent) {
	st.retryAfterMS, st.asker, why.RetryAfterMS = why.RetryAfterMS, a.Provider, 0
	a.Failure = why
	st.end(a, event)
	st.follow()
}

// keep takes over what a completion knows besides its outcome.
func (a *Attempt) keep(b *Completion) {
	if b.ProviderRef != "" {
		a.ProviderRef = b.ProviderRef
	}
	if b.Usage != nil {
		a.Usage = bytes.Clone(b.Usage) // not the whole entry
	}
}

// ambiguous notes that the worker does not know how the attempt ended. Said
// again, it changes something only if it brings the provider's reference.
func (st *step) ambiguous(a *Attempt, b *Completion) {
	if a.State == AttemptUnknown && (b.ProviderRef == "" || a.ProviderRef != "") {
		st.duplicate()
		return
	}
	st.accept()
	a.keep(b)
	st.lose(a, attemptAmbiguous, b.Failure)
}

// lose makes an attempt unknown.
func (st *step) lose(a *Attempt, event attemptEvent, why Failure) {
	st.touchAttempt(a)
	if a.State != AttemptUnknown {
		a.UnknownSince = st.e.At
	}
	st.s.moveAttempt(a, event)
	why.RetryAfterMS = 0
	a.DueAt, a.Failure = zeroTime, why
	st.follow()
}

// success lets an attempt claim the result slot: the compare-and-swap. Whoever
// comes second changes no job (I7, I8).
func (st *step) success(a *Attempt, result []byte, won, lost attemptEvent) {
	a.Failure = Failure{}
	if reason := st.beaten(a); reason != "" {
		st.end(a, lost)
		st.refuse(reason, "attempt %d finished, but the job is %s (version %d, attempt's %d); its result is dropped",
			a.Number, st.job.State, st.job.Version, a.JobVersion)
		return
	}
	st.accept()
	st.end(a, won)
	j := st.job
	st.touchJob()
	st.s.moveJob(j, jobWon)
	j.Version++
	j.StateReason, j.DueAt = "", zeroTime
	j.Result, j.CompletedBy, j.CompletedAt, j.CompletedSeq = result, a.Number, st.e.At, st.e.Seq
	st.dropOthers(a)
	st.announce()
}

// beaten says why an attempt's result cannot be the job's, or "".
func (st *step) beaten(a *Attempt) Reason {
	switch {
	case st.job.CompletedBy != 0:
		return ResultAlreadyClaimed
	case st.job.State.Settled() || a.JobVersion != st.job.Version:
		return Fenced
	}
	return ""
}

// resolve takes a person's or a reconciler's word about an attempt.
func (st *step) resolve(b *Resolution) {
	a := st.attempt(b.Attempt, "")
	if a == nil {
		return
	}
	if b.As == OutcomeUnknown {
		st.workerLost(a, b)
		return
	}
	digest := b.digest()
	switch {
	case a.Completion == digest && !a.ResolvedAt.IsZero():
		st.duplicate()
		return
	case !a.State.InFlight():
		st.refuse(AttemptEnded, "attempt %d is %s already", a.Number, a.State)
		return
	case b.IfUnknown && a.State != AttemptUnknown:
		st.refuse(AttemptNotUnknown, "attempt %d is %s, and was to be resolved only if it is unknown", a.Number, a.State)
		return
	case a.State == AttemptStarting && b.As != OutcomeCancelled:
		st.refuse(AttemptNotClaimed, "attempt %d was not claimed by a worker; it can only be resolved as cancelled", a.Number)
		return
	}
	a.ResolvedAt, a.ResolvedBy, a.ResolvedReason = st.e.At, b.Actor, b.Reason
	a.Completion = digest
	if a.State == AttemptRunning {
		st.out.Effects = append(st.out.Effects, Effect{Kind: StopAttempt, Job: a.Job, Attempt: a.Number, Provider: a.Provider})
	}
	switch b.As {
	case OutcomeSucceeded:
		st.success(a, b.Result, resolvedSucceeded, resolvedLost)
	case OutcomeFailed:
		st.accept()
		why := b.Failure
		if why.Class == "" {
			why = Failure{Class: "resolved", Message: b.Reason, Reach: ReachTransient}
		}
		st.fail(a, why, resolvedFailed)
	case OutcomeCancelled:
		st.accept()
		st.end(a, resolvedCancelled)
		st.hold()
	}
}

// digest identifies what a resolution says, but for who says it and why.
func (b *Resolution) digest() Digest {
	o := object(make([]byte, 0, len(b.Result)+128))
	o.text("as", string(b.As))
	if b.Result != nil {
		o.member("result")
		var err error
		if o.buf, err = Canonical(o.buf, b.Result); err != nil {
			panic("ledger: a resolution with an unchecked result: " + err.Error())
		}
	}
	b.Failure.appendMember(o)
	return sha256.Sum256(o.close())
}

// hold leaves the job to a person, unless another attempt is in flight. The
// version grows so that nothing of the cancelled attempt can come back; a
// healthy sibling must not be fenced by it.
func (st *step) hold() {
	if st.job.State.Settled() || st.rest() {
		return
	}
	st.touchJob()
	st.job.Version++
	st.wait(Held, zeroTime)
}

// due handles a due time that has passed. What does not hold any more is passed
// over without a trace: the clock saw an older state than the fold.
func (st *step) due(b *Due) {
	j := st.job
	if j == nil || st.e.At.Before(b.Due) {
		return
	}
	if b.Attempt == 0 {
		if j.DueAt.Equal(b.Due) {
			st.jobDue()
		}
		return
	}
	a := j.Attempt(b.Attempt)
	if a == nil || !a.DueAt.Equal(b.Due) {
		return
	}
	st.accept()
	st.out.Answer.Attempt = a.Number
	if a.State == AttemptStarting {
		st.fail(a, Failure{Class: "expired", Message: "no worker claimed the attempt before its start deadline"}, attemptUnclaimed)
		return
	}
	st.lose(a, attemptOverdue, Failure{Class: "deadline", Message: "no completion arrived before the attempt's deadline"})
}

// jobDue starts what a waiting job waits for, or the next runner of a race.
func (st *step) jobDue() {
	st.accept()
	switch st.job.State {
	case JobWaiting:
		st.carryOut(st.plan(), true)
	default:
		st.hedge()
	}
}
