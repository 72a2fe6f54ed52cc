package ledger

import (
	"time"

	"github.com/google/uuid"
)

// A Job is one intent and all that became of it: a row of the jobs table with
// its attempts. Zero times, sequences, strings and digests mean "none".
type Job struct {
	ID          uuid.UUID
	Owner, Key  string
	Kind        string
	KindSeq     uint64 // the definition under which the job was accepted, for good
	Fingerprint Digest
	Provider    string // the provider that the request names, "" for the kind's first
	State       JobState
	StateReason StateReason
	// Version is the fence: an attempt's result counts only if the job still
	// has the version that the attempt started with. From 1.
	Version     int64
	CompletedBy int // number of the attempt whose result is the job's; 0: none
	Failure     Failure
	RunAt       time.Time
	CreatedAt   time.Time
	UpdatedAt   time.Time
	CompletedAt time.Time // when the job succeeded or failed
	CancelledAt time.Time
	CancelledBy string
	DueAt       time.Time // when the clock must look at the job itself
	// RequestedSeq and CompletedSeq are the sequences of the entries that hold
	// the input and the result verbatim.
	RequestedSeq uint64
	CompletedSeq uint64
	Seqs         []uint64   // the entries that changed the job's own row, in order
	Attempts     []*Attempt // by number; Attempts[i].Number is i+1

	// Input and Result are set in the batch that writes them, and by queries.
	// The fold never reads them back.
	Input  []byte
	Result []byte

	mark mark
}

// An Attempt is one try at a job on one provider: a row of the attempts table.
type Attempt struct {
	Job            uuid.UUID
	Number         int // from 1
	Provider       string
	State          AttemptState
	Reason         AttemptReason
	JobVersion     int64  // the job's version when the attempt started
	Key            string // idempotency key of the attempt.request, "" for automatic starts
	Worker         string
	ClaimHash      Digest // SHA-256 of the claim that holds
	Replays        int    // how often it was claimed again after it was unknown
	StartBy        time.Time
	Deadline       time.Time // the claim that holds + the kind's attempt_timeout
	DueAt          time.Time // StartBy while starting, Deadline while running
	RequestedAt    time.Time
	StartedAt      time.Time // when the first claim was stored
	UnknownSince   time.Time // when it last became unknown; kept after it is settled
	FinishedAt     time.Time
	Failure        Failure // why it failed, or why nothing is known
	ProviderRef    string
	Usage          []byte // JSON
	Completion     Digest // digest of the final completion or resolution
	ResolvedAt     time.Time
	ResolvedBy     string
	ResolvedReason string
	StartSeq       uint64   // sequence of the start that the first claim answered
	Seqs           []uint64 // the entries that changed the row, in order

	mark mark
}

// mark says what has changed since the state was last drained.
type mark struct {
	isNew, changed bool
	// version and completedBy are what the stored row holds, for the write's
	// compare-and-swap.
	version     int64
	completedBy int
}

// Attempt returns the attempt with the number n, or nil.
func (j *Job) Attempt(n int) *Attempt {
	if n < 1 || n > len(j.Attempts) {
		return nil
	}
	return j.Attempts[n-1]
}

// InFlight returns the first attempt that may still have an effect, or nil.
func (j *Job) InFlight() *Attempt {
	for _, a := range j.Attempts {
		if a.State.InFlight() {
			return a
		}
	}
	return nil
}

// IsNew reports whether the row has never been stored.
func (j *Job) IsNew() bool { return j.mark.isNew }

// IsNew reports whether the row has never been stored.
func (a *Attempt) IsNew() bool { return a.mark.isNew }

// StoredVersion returns what the stored row must hold for a write of this one
// to be right: its version, and the number of its winner.
func (j *Job) StoredVersion() (version int64, completedBy int) {
	return j.mark.version, j.mark.completedBy
}
