package ledger

import (
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// A Verdict is what the fold says of one entry.
type Verdict struct {
	// Answer is for whoever appended the entry. Its Decision is "" where the
	// entry asked for none.
	Answer Answer
	// Rejection is the row to store if the decision rejects, else nil.
	Rejection *Rejection
	// Effects are to be carried out once the changes are stored.
	Effects []Effect
}

// Apply folds one entry into the state and says what follows from it. It is the
// only place where a transition is decided.
//
// Apply must be called with the entries of the stream in their order, every
// entry of a job to the same state, and definitions to every state. The job
// that the entry concerns (Entry.Job, unless zero) must be known to the state.
// Apply reads nothing but its arguments: no clock, no randomness, and no order
// of a map reaches its results. An entry that cannot be accepted is never an
// error. The error is a *CorruptionError; the state must not be used after it.
func (s *State) Apply(e *Entry) (Verdict, error) {
	st := step{s: s, e: e}
	st.out.Answer.Seq = e.Seq
	if e.Fault != nil {
		st.reject(Malformed, e.Fault.Reason, "%s", e.Fault.Detail)
		return st.out, nil
	}
	if e.Job != (uuid.UUID{}) {
		if err := st.open(); err != nil {
			return Verdict{}, err
		}
	}
	if err := st.dispatch(); err != nil {
		return Verdict{}, err
	}
	if st.job != nil {
		st.out.Answer.Job, st.out.Answer.State, st.out.Answer.Version = st.job.ID, st.job.State, st.job.Version
	}
	return st.out, nil
}

// step is the folding of one entry.
type step struct {
	s    *State
	e    *Entry
	job  *Job  // nil if there is none yet
	kind *Kind // the job's definition, nil without a job
	out  Verdict
	// retryAfterMS is the wish of the provider whose failure the entry reports,
	// asker. It bears on what follows at once and is not kept.
	retryAfterMS int64
	asker        string
}

// open finds the job that the entry concerns, and its definition.
func (st *step) open() error {
	j, known := st.s.jobs[st.e.Job]
	if !known {
		panic("ledger: job " + st.e.Job.String() + " was not loaded")
	}
	st.out.Answer.Job = st.e.Job
	if j == nil {
		return nil
	}
	st.job, st.kind = j, st.s.defs.kind(j.Kind, j.KindSeq)
	if st.kind == nil {
		return missingKind(st.e.Seq, j)
	}
	return nil
}

func missingKind(seq uint64, j *Job) error {
	return &CorruptionError{Seq: seq, Problem: fmt.Sprintf(
		"job %s refers to the definition of kind %s at sequence %d, which is not there", j.ID, j.Kind, j.KindSeq)}
}

func (st *step) dispatch() error {
	if st.onTrial() {
		return nil
	}
	switch b := st.e.Body.(type) {
	case *Rules:
		return st.setRules(b)
	case *KindDefinition:
		st.defineKind(b)
	case *ProviderDefinition:
		st.defineProvider(b)
	case *ProviderBrake:
		st.brake(b)
	case *Verification:
		st.verify(b)
	case *Request:
		st.request(b)
	case *Cancel:
		st.cancel(b)
	case *AttemptAsk:
		st.ask(b)
	case *Start: // the projector's own; it changes nothing
	case *Claim:
		st.claim(b)
	case *Completion:
		st.complete(b)
	case *Resolution:
		st.resolve(b)
	case *Due:
		st.due(b)
	default:
		panic(fmt.Sprintf("ledger: no rule for %T", b))
	}
	return nil
}

func (st *step) accept()    { st.out.Answer.Decision = Accepted }
func (st *step) duplicate() { st.out.Answer.Decision = Duplicate }

func (st *step) refuse(reason Reason, format string, args ...any) {
	st.reject(Refused, reason, format, args...)
}

// reject answers with a decision that is kept as a rejection.
func (st *step) reject(d Decision, reason Reason, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	a := &st.out.Answer
	a.Decision, a.Reason, a.Detail = d, reason, detail
	r := &Rejection{
		Seq: st.e.Seq, At: st.e.At, Entry: string(st.e.Kind), Actor: st.e.Actor, Provider: providerToken(st.e),
		Job: st.e.Job, Attempt: a.Attempt, Decision: d, Reason: reason, Detail: ValidText(detail),
	}
	if r.Entry == "" {
		r.Entry = ValidText(st.e.Subject)
	}
	if st.job != nil {
		r.Owner, r.Kind = st.job.Owner, st.job.Kind
	}
	switch b := st.e.Body.(type) {
	case *Request:
		r.Owner, r.Key, r.Kind, r.Provider = b.Owner, b.Key, b.Kind, b.Provider
	case *AttemptAsk:
		r.Key, r.Provider = b.Key, b.Provider
		if st.job == nil {
			r.Owner = b.Owner
		}
	case *ProviderBrake:
		r.Provider = b.Name
	case *Verification:
		r.Kind, r.Provider = b.Kind, b.Provider
	}
	if d == Malformed {
		r.Raw = st.e.Raw[:min(len(st.e.Raw), RejectionRawBytes)]
	}
	st.out.Rejection = r
}

func providerToken(e *Entry) string {
	switch e.Kind {
	case AttemptStart, AttemptClaim, AttemptComplete:
		return e.Token
	}
	return ""
}

// request accepts a job, or recognises that it was accepted before (I1, I2).
func (st *step) request(b *Request) {
	if st.job != nil {
		if st.job.Fingerprint == b.Fingerprint {
			st.duplicate()
			return
		}
		st.reject(Conflict, IdempotencyConflict,
			"key %s of owner %s already names a job with another intent (kind %s)", Quote(b.Key), Quote(b.Owner), st.job.Kind)
		return
	}
	def := st.s.defs.latest(b.Kind)
	switch {
	case def == nil:
		st.refuse(UnknownKind, "no kind %s is defined", Quote(b.Kind))
		return
	case b.Provider != "" && !slices.Contains(def.Kind.Providers, b.Provider):
		st.refuse(UnknownProvider, "kind %s has no provider %s; it has %q", b.Kind, Quote(b.Provider), def.Kind.Providers)
		return
	}
	st.job, st.kind = &Job{
		ID: st.e.Job, Owner: b.Owner, Key: b.Key, Kind: b.Kind, KindSeq: def.Seq, Fingerprint: b.Fingerprint,
		Provider: b.Provider, Version: 1, CreatedAt: st.e.At, RequestedSeq: st.e.Seq, Input: b.Input,
		mark: mark{isNew: true},
	}, &def.Kind
	st.s.jobs[st.job.ID] = st.job
	st.touchJob()
	st.accept()
	st.schedule(b)
}

// schedule starts the first attempt, or sets when.
func (st *step) schedule(b *Request) {
	j := st.job
	j.RunAt = b.RunAt
	if b.DelayMS > 0 {
		j.RunAt = st.e.At.Add(milliseconds(b.DelayMS))
	}
	if j.RunAt.After(st.e.At) {
		st.s.moveJob(j, jobScheduled)
		j.StateReason, j.DueAt = Scheduled, j.RunAt
		return
	}
	p := st.plan()
	if st.s.defs.paused(p.provider) {
		st.s.moveJob(j, jobScheduled)
		j.StateReason, j.DueAt = ProviderPaused, st.s.defs.changedAt
		return
	}
	st.start(jobAccepted, p.provider, p.reason)
}

// start adds an attempt and asks for its start.
func (st *step) start(event jobEvent, provider string, reason AttemptReason) *Attempt {
	j := st.job
	st.touchJob()
	st.s.moveJob(j, event)
	j.StateReason, j.DueAt = "", st.hedgeAt(provider)
	a := &Attempt{
		Job: j.ID, Number: len(j.Attempts) + 1, Provider: provider, Reason: reason, JobVersion: j.Version,
		RequestedAt: st.e.At, mark: mark{isNew: true},
	}
	st.s.moveAttempt(a, attemptCreated)
	if ms := st.kind.StartTimeoutMS; ms > 0 {
		a.StartBy = st.e.At.Add(milliseconds(ms))
		a.DueAt = a.StartBy
	}
	j.Attempts = append(j.Attempts, a)
	st.touchAttempt(a)
	if st.out.Answer.Attempt == 0 { // an entry about an attempt is answered about that one
		st.out.Answer.Attempt = a.Number
	}
	st.out.Effects = append(st.out.Effects, st.s.startEffect(j, a, st.kind))
	return a
}

// cancel ends a job for good, whatever is in flight.
func (st *step) cancel(b *Cancel) {
	if st.missing(b.Owner) {
		return
	}
	j := st.job
	switch {
	case j.State == JobCancelled:
		st.duplicate()
		return
	case j.State == JobSucceeded:
		st.refuse(JobFinished, "the job has succeeded by attempt %d", j.CompletedBy)
		return
	}
	st.accept()
	st.touchJob()
	st.s.moveJob(j, jobCancelled)
	j.Version++
	j.StateReason, j.DueAt = "", zeroTime
	j.CancelledAt, j.CancelledBy = st.e.At, b.Actor
	st.dropOthers(nil)
	st.announce()
}

// missing refuses an entry about a job that is not there, or that belongs to
// another than the owner who speaks. Both look alike, so that nothing leaks.
func (st *step) missing(owner string) bool {
	if st.job != nil && (owner == "" || owner == st.job.Owner) {
		return false
	}
	st.job = nil
	st.refuse(UnknownJob, "no job %s is known", st.e.Job)
	return true
}

// dropOthers cancels the attempts that nobody has claimed and has the claimed
// ones stopped, but for the winner.
func (st *step) dropOthers(winner *Attempt) {
	for _, a := range st.job.Attempts {
		switch {
		case a == winner:
		case a.State == AttemptStarting:
			st.end(a, attemptDropped)
		case a.State.InFlight():
			st.out.Effects = append(st.out.Effects,
				Effect{Kind: StopAttempt, Job: a.Job, Attempt: a.Number, Provider: a.Provider})
		}
	}
}

// end moves an attempt to an end.
func (st *step) end(a *Attempt, event attemptEvent) {
	st.touchAttempt(a)
	st.s.moveAttempt(a, event)
	a.FinishedAt, a.DueAt = st.e.At, zeroTime
}

func (st *step) announce() {
	st.out.Effects = append(st.out.Effects, AnnounceEffect(st.job))
}
