package ledger

import (
	"time"

	"github.com/google/uuid"
)

// A Moment is a point in the stream: the entries up to Seq, or those up to At.
// The zero value is the present.
type Moment struct {
	Seq uint64
	At  time.Time
}

// Holds reports whether an entry had been stored at the moment.
func (m Moment) Holds(seq uint64, at time.Time) bool {
	return (m.Seq == 0 || seq <= m.Seq) && (m.At.IsZero() || !at.After(m.At))
}

// A History is what became of a job, entry by entry.
type History struct {
	Entries []HistoryEntry // by sequence
	// Omitted is how many older rejected entries are left out.
	Omitted int
	// Job is the job after the last entry, with input and result; nil if it was
	// not there yet.
	Job *Job
}

// A HistoryEntry is an entry that concerns a job, with what was decided and the
// state after it.
type HistoryEntry struct {
	Seq     uint64
	At      time.Time
	Entry   EntryKind
	Subject string // without the ledger's prefix
	Actor   string // "" if the entry does not say
	// Answer is the decision. Starts have none.
	Answer      Answer
	StateReason StateReason
	Attempts    []AttemptState // by number, from 1
}

// Retell applies an entry of which the tables say that it concerned the job, to
// a state that is told only such entries of this one job. It decides as Apply
// does. What Apply would know from entries that left no trace is made up for: a
// look for a proof or at a brake moves the job's due time and leaves none. A due
// time that did leave one was the job's.
func (s *State) Retell(e *Entry) (Verdict, error) {
	if b, ok := e.Body.(*Due); ok && b.Attempt == 0 {
		if j := s.jobs[e.Job]; j != nil {
			j.DueAt = b.Due
		}
	}
	return s.Apply(e)
}

// Describe returns the entry with the verdict on it and the state after it. A
// start is described by what it starts.
func (s *State) Describe(e *Entry, v Verdict, job uuid.UUID) HistoryEntry {
	h := HistoryEntry{Seq: e.Seq, At: e.At, Entry: e.Kind, Subject: e.Subject, Actor: e.Actor, Answer: v.Answer}
	if e.Kind == AttemptStart {
		if start, err := ParseStart(e.Token, e.Raw); err == nil {
			h.Answer.Attempt = start.Attempt
		}
	}
	s.describeState(&h, job)
	return h
}

// DescribeRejection returns an entry that was not accepted and changed nothing,
// by its rejection, with the state in which it found the job.
func (s *State) DescribeRejection(r *Rejection, job uuid.UUID) HistoryEntry {
	h := HistoryEntry{
		Seq: r.Seq, At: r.At, Entry: EntryKind(r.Entry), Subject: r.Entry, Actor: r.Actor,
		Answer: Answer{Seq: r.Seq, Decision: r.Decision, Reason: r.Reason, Detail: r.Detail, Job: job, Attempt: r.Attempt},
	}
	s.describeState(&h, job)
	return h
}

func (s *State) describeState(h *HistoryEntry, job uuid.UUID) {
	j := s.jobs[job]
	if j == nil {
		return
	}
	h.Answer.State, h.Answer.Version, h.StateReason = j.State, j.Version, j.StateReason
	for _, a := range j.Attempts {
		h.Attempts = append(h.Attempts, a.State)
	}
}
