package ledger

// What may happen to an attempt of which the worker, or the end, was lost.

// workerLost makes a running attempt unknown because the worker that holds it
// is gone. It is no verdict on the attempt and fences nothing: should the
// worker have been only silent, its completion counts as any late one.
func (st *step) workerLost(a *Attempt, b *Resolution) {
	switch {
	case a.State == AttemptStarting:
		st.refuse(AttemptNotClaimed, "attempt %d was not claimed by a worker; none can be lost", a.Number)
	case !a.State.InFlight():
		st.refuse(AttemptEnded, "attempt %d is %s already", a.Number, a.State)
	case a.Worker != b.Worker:
		st.refuse(NotClaimant, "attempt %d is not held by worker %s", a.Number, Quote(b.Worker))
	case a.State == AttemptUnknown:
		st.duplicate()
	default:
		st.accept()
		st.lose(a, attemptForsaken, Failure{Class: "worker_lost", Message: b.Reason})
	}
}

// replay gives an unknown attempt to whoever is about to send the same request
// again. The claim of before is void: what its worker may still say is refused,
// and the truth comes from the repetition.
func (st *step) replay(a *Attempt, b *Claim, claim Digest) {
	j := st.job
	switch {
	case a.State == AttemptStarting:
		st.refuse(AttemptNotClaimed, "attempt %d was never claimed; there is nothing to replay", a.Number)
	case a.State == AttemptRunning:
		st.refuse(AlreadyClaimed, "attempt %d was claimed before and is %s", a.Number, a.State)
	case a.State != AttemptUnknown:
		st.refuse(AttemptEnded, "attempt %d is %s", a.Number, a.State)
	case j.State.Settled():
		st.refuse(JobFinished, "the job is %s; a replay could change nothing", j.State)
	case b.JobVersion != a.JobVersion || a.JobVersion != j.Version:
		st.refuse(Fenced, "the claim names version %d of the job, the attempt started with %d, the job has %d",
			b.JobVersion, a.JobVersion, j.Version)
	case st.s.defs.paused(a.Provider):
		st.refuse(PausedProvider, "provider %s is paused", a.Provider)
	case !st.s.defs.replays(a.Provider):
		st.refuse(ReplayNotAllowed, "provider %s does not declare reconcile: {replay: true}", a.Provider)
	case a.Replays >= MaxReplays:
		st.refuse(ReplayNotAllowed, "attempt %d was replayed %d times, the most that are allowed", a.Number, a.Replays)
	default:
		a.Replays++
		a.Failure = Failure{}
		st.give(a, b.Worker, claim, attemptReplayed)
		if j.State == JobUnknown {
			st.touchJob()
			st.s.moveJob(j, jobReplayed)
		}
	}
}

// saysNothingOfBefore reports whether a replay ended without reaching what the
// provider knows: that a repetition was not sent, or was turned away, does not
// tell how the first request ended.
func (b *Completion) saysNothingOfBefore() bool {
	return b.Outcome == OutcomeUnsent || b.Outcome == OutcomeFailed && !b.Failure.Executed
}
