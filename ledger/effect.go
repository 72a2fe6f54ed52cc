package ledger

import (
	"time"

	"github.com/google/uuid"
)

// EffectKind says what an effect asks the shell to do.
type EffectKind int

// The kinds of effects.
const (
	StartAttempt EffectKind = iota + 1 // append Start
	StopAttempt                        // tell the provider's workers to stop, best effort
	AnnounceJob                        // publish the job's outcome, best effort
)

// An Effect is something to do after the state is stored, and only then. Doing
// it twice is harmless.
type Effect struct {
	Kind    EffectKind
	Job     uuid.UUID
	Attempt int
	// Provider is whose workers a StopAttempt is for.
	Provider string
	// Start is what a StartAttempt appends. Its Input is nil unless the request
	// was in the same batch: fetch the request at RequestSeq then.
	Start      *Start
	RequestSeq uint64
	// Outcome is what an AnnounceJob publishes.
	Outcome *JobOutcome
}

// A JobOutcome announces that a job settled or became unknown.
type JobOutcome struct {
	Job         uuid.UUID
	Owner, Kind string
	State       JobState
	Version     int64
	CompletedBy int
}

// AppendJSON appends the outcome's wire form.
func (o *JobOutcome) AppendJSON(dst []byte) []byte {
	b := object(dst)
	b.uuid("job", o.Job)
	b.text("owner", o.Owner)
	b.text("kind", o.Kind)
	b.text("state", string(o.State))
	b.int("version", o.Version)
	b.optInt("completed_by", int64(o.CompletedBy))
	return b.close()
}

// AppendStopJSON appends the wire form of a StopAttempt.
func AppendStopJSON(dst []byte, job uuid.UUID, attempt int) []byte {
	b := object(dst)
	b.uuid("job", job)
	b.int("attempt", int64(attempt))
	return b.close()
}

// StartEffect returns the effect that starts an attempt which is still
// starting. The fold returns it when it accepts the attempt; the shell asks for
// it again when it cannot know whether the effect was carried out.
func (s *State) StartEffect(j *Job, a *Attempt) (Effect, error) {
	kind := s.defs.kind(j.Kind, j.KindSeq)
	if kind == nil {
		return Effect{}, missingKind(j.RequestedSeq, j)
	}
	return s.startEffect(j, a, kind), nil
}

func (s *State) startEffect(j *Job, a *Attempt, k *Kind) Effect {
	e := Effect{
		Kind: StartAttempt, Job: j.ID, Attempt: a.Number, Provider: a.Provider, RequestSeq: j.RequestedSeq,
		Start: &Start{
			Job: j.ID, Attempt: a.Number, JobVersion: a.JobVersion, Owner: j.Owner, Kind: j.Kind,
			KindSeq: j.KindSeq, Provider: a.Provider, Input: j.Input, TimeoutMS: k.AttemptTimeoutMS,
			Contract: k.Contract,
		},
	}
	if p := s.defs.providers[a.Provider]; p != nil && a.Reason != Manual && a.Provider != firstChoice(j, k) {
		e.Start.ProviderDigest = p.Digest.String()
	}
	return e
}

// AnnounceEffect returns the announcement of the job's present state.
func AnnounceEffect(j *Job) Effect {
	return Effect{Kind: AnnounceJob, Job: j.ID, Outcome: &JobOutcome{
		Job: j.ID, Owner: j.Owner, Kind: j.Kind, State: j.State, Version: j.Version, CompletedBy: j.CompletedBy,
	}}
}

// NextDue returns when the clock must next look at the job or one of its
// attempts, and at which attempt (0: the job itself). The time is zero if
// nothing is due ever.
func (j *Job) NextDue() (at time.Time, attempt int) {
	at = j.DueAt
	for _, a := range j.Attempts {
		if !a.DueAt.IsZero() && (at.IsZero() || a.DueAt.Before(at)) {
			at, attempt = a.DueAt, a.Number
		}
	}
	return at, attempt
}
