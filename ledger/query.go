package ledger

import (
	"time"

	"github.com/google/uuid"
)

// The types below are what readers of the tables and the API exchange. They
// stand here because neither may import the other.

// A JobFilter selects jobs, newest first. Zero members select everything.
type JobFilter struct {
	State    JobState
	Kind     string
	Owner    string
	Key      string
	Provider string // the provider that the request names
	Limit    int    // 1 to MaxPage
	After    Cursor // the last job of the page before
}

// An AttemptFilter selects attempts, oldest first. Zero members select
// everything.
type AttemptFilter struct {
	State           AttemptState
	Provider        string
	Owner           string
	Kind            string
	RequestedBefore time.Time
	StartedBefore   time.Time // leaves out what has not started
	Limit           int       // 1 to MaxPage
	After           Cursor    // the last attempt of the page before
}

// MaxPage bounds the rows of one page.
const MaxPage = 500

// A Cursor is a position in a list. The zero value is its beginning.
type Cursor struct {
	At      time.Time
	Job     uuid.UUID
	Attempt int // for lists of attempts
}

// IsZero reports whether the cursor is a list's beginning.
func (c Cursor) IsZero() bool { return c.At.IsZero() }

// JobNews is as much of a job as tells whoever waits for it that it has changed.
type JobNews struct {
	State   JobState
	Version int64
	Seq     uint64 // of the latest entry that changed the job or an attempt of it
}

// News returns the job's news.
func (j *Job) News() JobNews {
	n := JobNews{State: j.State, Version: j.Version, Seq: lastOf(j.Seqs)}
	for _, a := range j.Attempts {
		n.Seq = max(n.Seq, lastOf(a.Seqs))
	}
	return n
}

// lastOf returns the last sequence, 0 if there is none.
func lastOf(seqs []uint64) uint64 {
	if len(seqs) == 0 {
		return 0
	}
	return seqs[len(seqs)-1]
}

// A ProviderState is a provider as it is now: the latest of its rows, which tells
// of the brake, with when its definition was given and what is proved of it.
type ProviderState struct {
	ProviderRow
	DefinedAt time.Time
	DefinedBy string
	// Proofs has one for each kind for which the provider was verified, or to
	// which it belongs and which fails over; by the kinds' names.
	Proofs []ProviderProof
}

// A ProviderProof is the verification of a provider that counts for a kind, or
// would count if KindContract, which the kind has now, were that of the proof.
// One without a sequence says that there was none.
type ProviderProof struct {
	VerificationRow
	KindContract string
}

// Lapsed returns why the proof does not let a job fail over to the provider at
// a time, "" if it does.
func (p *ProviderProof) Lapsed(provider *ProviderRow, at time.Time) string {
	switch {
	case p.Seq == 0:
		return "none"
	case p.Contract != p.KindContract:
		return "contract changed"
	case p.ProviderDigest != provider.Digest.String():
		return "provider changed"
	case !p.Passed:
		return "failed"
	case !p.ExpiresAt.After(at):
		return "expired"
	}
	return ""
}

// A Candidate is a provider to which a job could fail over if it were proved.
type Candidate struct {
	Provider string
	Lapsed   string // why it is not proved, as of a ProviderProof, or "not defined"; "": it is
}

// A Rejection is an entry that was not accepted: a row of the rejections table.
type Rejection struct {
	Seq      uint64
	At       time.Time
	Entry    string // the entry's kind, or its subject if it has none
	Actor    string
	Owner    string
	Key      string
	Kind     string
	Provider string
	Job      uuid.UUID
	Attempt  int
	Decision Decision
	Reason   Reason
	Detail   string
	Raw      []byte // the first RejectionRawBytes of a malformed entry
}
