package ledger

import "github.com/google/uuid"

// A Decision is the fold's verdict on an entry. The set only grows, and the
// strings are part of the outside contract.
type Decision string

// The decisions. The zero value means that the entry asked for none: attempt
// starts, and due times that were handled already.
const (
	Accepted  Decision = "accepted"
	Duplicate Decision = "duplicate"
	Conflict  Decision = "conflict"
	Refused   Decision = "refused"
	Malformed Decision = "malformed"
)

// Rejects reports whether the decision is kept as a rejection.
func (d Decision) Rejects() bool {
	return d == Conflict || d == Refused || d == Malformed
}

// A Reason says why an entry was not accepted. The set only grows, and the
// strings are part of the outside contract.
type Reason string

// The reasons of conflicts and refusals.
const (
	IdempotencyConflict  Reason = "idempotency_conflict"
	AttemptInFlight      Reason = "attempt_in_flight"
	JobFinished          Reason = "job_finished"
	UnknownJob           Reason = "unknown_job"
	UnknownAttempt       Reason = "unknown_attempt"
	UnknownKind          Reason = "unknown_kind"
	UnknownProvider      Reason = "unknown_provider"
	ProviderNotVerified  Reason = "provider_not_verified"
	AlreadyClaimed       Reason = "already_claimed"
	NotClaimant          Reason = "not_claimant"
	Fenced               Reason = "fenced"
	ResultAlreadyClaimed Reason = "result_already_claimed"
	AttemptEnded         Reason = "attempt_ended"
	AttemptNotClaimed    Reason = "attempt_not_claimed"
	StartDeadlinePassed  Reason = "start_deadline_passed"
	WrongProvider        Reason = "wrong_provider"
	TooLarge             Reason = "too_large"
	TooManyAttempts      Reason = "too_many_attempts"
	Forbidden            Reason = "forbidden"
	AttemptNotUnknown    Reason = "attempt_not_unknown"
	PausedProvider       Reason = "provider_paused"
	ReplayNotAllowed     Reason = "replay_not_allowed"
	BadEntry             Reason = "bad_entry"
	UnknownEntry         Reason = "unknown_entry"
	UnsupportedVersion   Reason = "unsupported_version"
)

// An Answer is what whoever appended an entry learns of it: the body that is
// published on the entry's Ledger-Reply subject.
type Answer struct {
	Seq      uint64    // the entry's sequence in the stream
	Decision Decision  //
	Reason   Reason    // "" when accepted or duplicate
	Detail   string    // for people: what was found and what was expected
	Job      uuid.UUID // the zero UUID where the entry names no job
	Attempt  int       // attempt number, from 1; 0 where none is concerned
	State    JobState  // the job's state after the entry; "" without a job
	Version  int64     // the job's version after the entry
	// TimeoutMS is how long, in milliseconds, the claimed attempt may take;
	// only in the answer to a claim.
	TimeoutMS int64
}

// AppendJSON appends the answer's wire form.
func (a Answer) AppendJSON(dst []byte) []byte {
	o := object(dst)
	o.uint("seq", a.Seq)
	o.text("decision", string(a.Decision))
	o.optText("reason", string(a.Reason))
	o.optText("detail", a.Detail)
	o.optUUID("job", a.Job)
	o.optInt("attempt", int64(a.Attempt))
	o.optText("state", string(a.State))
	o.optInt("version", a.Version)
	o.optInt("timeout_ms", a.TimeoutMS)
	return o.close()
}

// ParseAnswer reads an answer's wire form. Members that it does not know are
// passed over, so that an older client understands a newer ledger.
func ParseAnswer(data []byte) (Answer, error) {
	var a Answer
	err := members(data, func(name string, r *reader) error {
		switch name {
		case "seq":
			a.Seq = uint64(r.int())
		case "decision":
			a.Decision = Decision(r.text())
		case "reason":
			a.Reason = Reason(r.text())
		case "detail":
			a.Detail = r.text()
		case "job":
			a.Job = r.uuid()
		case "attempt":
			a.Attempt = int(r.int())
		case "state":
			a.State = JobState(r.text())
		case "version":
			a.Version = r.int()
		case "timeout_ms":
			a.TimeoutMS = r.int()
		default:
			r.skip()
		}
		return r.err
	})
	return a, err
}
