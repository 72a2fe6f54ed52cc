package ledger

// JobState is the state of a job. The set only grows.
type JobState string

// The states of a job.
const (
	JobWaiting   JobState = "waiting"   // nothing in flight; the state reason says what for
	JobRunning   JobState = "running"   // an attempt is starting or running
	JobUnknown   JobState = "unknown"   // nothing runs, and how an attempt ended is not known
	JobSucceeded JobState = "succeeded" // for ever
	JobFailed    JobState = "failed"    // ends automatic work; a person may reopen it
	JobCancelled JobState = "cancelled" // for ever
)

// Final reports whether the job can never leave the state.
func (s JobState) Final() bool { return s == JobSucceeded || s == JobCancelled }

// Settled reports whether all automatic work on the job has ended.
func (s JobState) Settled() bool { return s.Final() || s == JobFailed }

// StateReason says what a waiting job waits for.
type StateReason string

// The reasons of waiting; "" in every other state.
const (
	Scheduled          StateReason = "scheduled"
	Backoff            StateReason = "backoff"
	Held               StateReason = "held"
	FailoverUnverified StateReason = "failover-unverified"
	ProviderPaused     StateReason = "provider-paused"
)

// AttemptState is the state of an attempt. The set only grows.
type AttemptState string

// The states of an attempt.
const (
	AttemptStarting   AttemptState = "starting"   // accepted; no worker has claimed it
	AttemptRunning    AttemptState = "running"    // claimed; the provider may be at work
	AttemptUnknown    AttemptState = "unknown"    // nobody knows how it ended, or whether
	AttemptSucceeded  AttemptState = "succeeded"  // its result is the job's
	AttemptFailed     AttemptState = "failed"     // ended without a usable result
	AttemptUnsent     AttemptState = "unsent"     // claimed, provably never sent
	AttemptSuperseded AttemptState = "superseded" // finished, but another had won or it was fenced
	AttemptExpired    AttemptState = "expired"    // never claimed within the start deadline
	AttemptCancelled  AttemptState = "cancelled"
)

// InFlight reports whether the attempt may still have an effect. Unknown is not
// an end.
func (s AttemptState) InFlight() bool {
	return s == AttemptStarting || s == AttemptRunning || s == AttemptUnknown
}

// neverRan reports whether the provider provably saw nothing of the attempt.
func (s AttemptState) neverRan() bool { return s == AttemptExpired || s == AttemptUnsent }

// AttemptReason says why an attempt was started.
type AttemptReason string

// The reasons of starts.
const (
	Initial  AttemptReason = "initial"
	Retry    AttemptReason = "retry"
	Failover AttemptReason = "failover"
	Manual   AttemptReason = "manual"
	Hedge    AttemptReason = "hedge"
)

// Reach says how far a failure reaches. The zero value is read as transient.
type Reach string

// The reaches of failures.
const (
	ReachRequest   Reach = "request"   // no provider will take this request: the job fails
	ReachProvider  Reach = "provider"  // this provider is out: fail over
	ReachTransient Reach = "transient" // later it may work: retry
)

// A Failure describes an attempt's end without a usable result. The zero value
// means that there was none.
type Failure struct {
	Class   string // a name such as refused, invalid_result, contract; [a-z0-9_-]
	Message string // for people
	// Executed says that the provider did the work, or may have, so that doing
	// it again would be doing it twice.
	Executed bool
	Reach    Reach
	// RetryAfterMS is the provider's wish, in milliseconds; 0: none.
	RetryAfterMS int64
}

// Outcome is what a worker or an operator says of an attempt.
type Outcome string

// The outcomes of completions; resolutions use OutcomeSucceeded, OutcomeFailed,
// OutcomeCancelled and, where a worker was lost, OutcomeUnknown.
const (
	OutcomeSucceeded Outcome = "succeeded"
	OutcomeFailed    Outcome = "failed"
	OutcomeUnsent    Outcome = "unsent"
	OutcomeUnknown   Outcome = "unknown"
	OutcomeCancelled Outcome = "cancelled"
)
