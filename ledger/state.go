package ledger

import (
	"fmt"

	"github.com/google/uuid"
)

// A State is what the fold reads and writes. It holds the jobs that were loaded
// or created, and all definitions. A shell loads the jobs that a batch touches,
// folds the batch, and drains the changes to store them.
//
// A State belongs to one goroutine at a time. Only Apply changes jobs.
type State struct {
	// Coverage, if set, counts the moves that are made.
	Coverage *Coverage

	rules    int
	rulesSet bool
	jobs     map[uuid.UUID]*Job // nil: known not to exist
	defs     definitions
	changes  Changes
	jobMarks []*Job
	attMarks []*Attempt
}

// NewState returns a state without jobs and definitions. rules is the version
// of the rules that the last rules.set before the first entry to fold set, 0 if
// there was none.
func NewState(rules int) *State {
	return &State{
		rules: max(rules, 1), rulesSet: rules > 0,
		jobs: map[uuid.UUID]*Job{}, defs: newDefinitions(),
	}
}

// Rules returns the version to store and to hand to NewState later: 0 before
// the first rules.set.
func (s *State) Rules() int {
	if !s.rulesSet {
		return 0
	}
	return s.rules
}

// Knows reports whether the job was loaded, created, or said to be absent.
func (s *State) Knows(id uuid.UUID) bool {
	_, ok := s.jobs[id]
	return ok
}

// Job returns a job that the state holds, or nil. The fold owns it.
func (s *State) Job(id uuid.UUID) *Job { return s.jobs[id] }

// Len returns how many jobs the state knows, absent ones included.
func (s *State) Len() int { return len(s.jobs) }

// Load puts a stored job with all its attempts into the state.
func (s *State) Load(j *Job) {
	j.mark = mark{version: j.Version, completedBy: j.CompletedBy}
	for _, a := range j.Attempts {
		a.mark = mark{}
	}
	s.jobs[j.ID] = j
}

// LoadAbsent says that no job with this id is stored.
func (s *State) LoadAbsent(id uuid.UUID) { s.jobs[id] = nil }

// Forget drops a job from memory. Its changes must have been drained and
// stored; the next entry for it needs it loaded again.
func (s *State) Forget(id uuid.UUID) {
	if j := s.jobs[id]; j != nil && j.mark.changed {
		panic("ledger: job " + id.String() + " is forgotten with changes that were not drained")
	}
	delete(s.jobs, id)
}

// Changes are the rows that differ from what is stored. Each row stands there
// once, however many entries touched it. The values are copies: the state can
// go on folding while they are written.
type Changes struct {
	Jobs          []Job     // Attempts are not part of the row
	Attempts      []Attempt //
	Kinds         []KindRow
	Providers     []ProviderRow
	Verifications []VerificationRow
}

// Drain returns the changes since the last call and regards them as stored.
// Input and Result leave memory with them.
func (s *State) Drain() Changes {
	c := s.changes
	s.changes = Changes{}
	c.Jobs = make([]Job, len(s.jobMarks))
	for i, j := range s.jobMarks {
		c.Jobs[i] = *j
		j.Input, j.Result = nil, nil
		j.mark = mark{version: j.Version, completedBy: j.CompletedBy}
	}
	c.Attempts = make([]Attempt, len(s.attMarks))
	for i, a := range s.attMarks {
		c.Attempts[i] = *a
		a.mark = mark{}
	}
	s.jobMarks, s.attMarks = s.jobMarks[:0], s.attMarks[:0]
	return c
}

// touchJob notes that the entry at hand changes the job's own row.
func (st *step) touchJob() {
	j := st.job
	j.UpdatedAt = st.e.At
	j.Seqs = appendSeq(j.Seqs, st.e.Seq)
	st.markJob()
}

// markJob has the job's row written.
func (st *step) markJob() {
	if j := st.job; !j.mark.changed {
		j.mark.changed = true
		st.s.jobMarks = append(st.s.jobMarks, j)
	}
}

// touchAttempt notes that the entry at hand changes the attempt's row.
func (st *step) touchAttempt(a *Attempt) {
	a.Seqs = appendSeq(a.Seqs, st.e.Seq)
	if !a.mark.changed {
		a.mark.changed = true
		st.s.attMarks = append(st.s.attMarks, a)
	}
}

func appendSeq(seqs []uint64, seq uint64) []uint64 {
	if n := len(seqs); n > 0 && seqs[n-1] == seq {
		return seqs
	}
	return append(seqs, seq)
}

// A CorruptionError says that the stream or the stored state cannot be folded.
// Whoever folds must stop, and must not skip the entry.
type CorruptionError struct {
	Seq     uint64
	Problem string
}

func (e *CorruptionError) Error() string {
	return fmt.Sprintf("entry %d cannot be folded: %s", e.Seq, e.Problem)
}
