package ledger

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// print writes the verdict on an entry, its effects, and the rows that changed.
func (s *story) print(e *Entry, v Verdict) {
	a := v.Answer
	fmt.Fprintf(&s.out, "%d %s", e.Seq, e.Subject)
	switch a.Decision {
	case "":
		s.out.WriteString(": -")
	default:
		fmt.Fprintf(&s.out, ": %s", a.Decision)
	}
	if a.Reason != "" {
		fmt.Fprintf(&s.out, " %s", a.Reason)
	}
	if a.Attempt != 0 {
		fmt.Fprintf(&s.out, " attempt=%d", a.Attempt)
	}
	if a.TimeoutMS != 0 {
		fmt.Fprintf(&s.out, " timeout=%s", milliseconds(a.TimeoutMS))
	}
	if a.Decision != Accepted && a.State != "" {
		fmt.Fprintf(&s.out, " (%s is %s, version %d)", s.keys[a.Job], a.State, a.Version)
	}
	s.out.WriteString("\n")
	if a.Detail != "" {
		fmt.Fprintf(&s.out, "  (%s)\n", s.named(a.Detail))
	}
	if v.Rejection != nil {
		s.printRejection(v.Rejection)
	}
	for _, effect := range v.Effects {
		s.printEffect(effect)
	}
	if j := s.state.Job(e.Job); j != nil {
		s.printJob(j, false)
	}
}

// named puts the names of the story's jobs in the place of their ids.
func (s *story) named(text string) string {
	for id, key := range s.keys {
		text = strings.ReplaceAll(text, id.String(), key)
	}
	return text
}

// printRejection writes what the row says besides what the answer does.
func (s *story) printRejection(r *Rejection) {
	var l line
	l.WriteString("  rejected:")
	l.add(true, "%s", r.Entry)
	l.add(r.Actor != "", "actor=%s", r.Actor)
	l.add(r.Owner != "", "owner=%s", r.Owner)
	l.add(r.Key != "", "key=%s", r.Key)
	l.add(r.Kind != "", "kind=%s", r.Kind)
	l.add(r.Provider != "", "provider=%s", r.Provider)
	l.add(r.Attempt != 0, "attempt=%d", r.Attempt)
	l.add(len(r.Raw) > 0, "raw=%dB", len(r.Raw))
	fmt.Fprintln(&s.out, l.String())
}

func (s *story) printEffect(e Effect) {
	switch e.Kind {
	case StartAttempt:
		j := s.state.Job(e.Job)
		fmt.Fprintf(&s.out, "  => start attempt %d on %s (%s) version=%d timeout=%s\n", e.Attempt, e.Start.Provider,
			j.Attempt(e.Attempt).Reason, e.Start.JobVersion, milliseconds(e.Start.TimeoutMS))
	case StopAttempt:
		fmt.Fprintf(&s.out, "  => stop attempt %d on %s\n", e.Attempt, e.Provider)
	case AnnounceJob:
		o := e.Outcome
		fmt.Fprintf(&s.out, "  => announce %s %s version=%d", s.keys[o.Job], o.State, o.Version)
		if o.CompletedBy != 0 {
			fmt.Fprintf(&s.out, " completed_by=%d", o.CompletedBy)
		}
		s.out.WriteString("\n")
	}
}

// printJob writes the rows of a job that differ from what was last written, or
// all of them, with the sequences of the entries that changed them.
func (s *story) printJob(j *Job, all bool) {
	s.printRow(j.ID.String(), "  "+s.jobLine(j), j.Seqs, all)
	for _, a := range j.Attempts {
		s.printRow(fmt.Sprint(j.ID, a.Number), "    "+s.attemptLine(a), a.Seqs, all)
	}
}

func (s *story) printRow(key, line string, seqs []uint64, all bool) {
	switch {
	case all:
		fmt.Fprintf(&s.out, "%s seqs=%d\n", line, seqs)
	case s.shown[key] != line:
		fmt.Fprintln(&s.out, line)
	}
	s.shown[key] = line
}

type line struct{ strings.Builder }

func (l *line) add(condition bool, format string, args ...any) {
	if condition {
		fmt.Fprintf(l, " "+format, args...)
	}
}

func (s *story) jobLine(j *Job) string {
	var l line
	fmt.Fprintf(&l, "%s: %s", s.keys[j.ID], j.State)
	l.add(j.StateReason != "", "(%s)", j.StateReason)
	l.add(true, "version=%d", j.Version)
	l.add(j.CompletedBy != 0, "completed_by=%d", j.CompletedBy)
	l.add(j.CompletedSeq != 0, "completed_seq=%d", j.CompletedSeq)
	l.add(!j.DueAt.IsZero(), "due=%s", s.since(j.DueAt))
	l.add(j.Failure != Failure{}, "failure=%s", failureText(j.Failure))
	l.add(j.CancelledBy != "", "cancelled_by=%s", j.CancelledBy)
	return l.String()
}

func (s *story) attemptLine(a *Attempt) string {
	var l line
	fmt.Fprintf(&l, "%d on %s: %s (%s)", a.Number, a.Provider, a.State, a.Reason)
	l.add(true, "version=%d", a.JobVersion)
	l.add(a.Worker != "", "worker=%s", a.Worker)
	l.add(!a.DueAt.IsZero(), "due=%s", s.since(a.DueAt))
	l.add(!a.UnknownSince.IsZero(), "unknown_since=%s", s.since(a.UnknownSince))
	l.add(!a.FinishedAt.IsZero(), "finished=%s", s.since(a.FinishedAt))
	l.add(a.Failure != Failure{}, "failure=%s", failureText(a.Failure))
	l.add(a.ProviderRef != "", "ref=%s", a.ProviderRef)
	l.add(a.Usage != nil, "usage=%s", a.Usage)
	l.add(a.ResolvedBy != "", "resolved_by=%s", a.ResolvedBy)
	return l.String()
}

func failureText(f Failure) string {
	text := f.Class
	if f.Executed {
		text += ",executed"
	}
	if f.Reach != "" {
		text += "," + string(f.Reach)
	}
	return text
}

// since gives a time as its distance from the story's beginning.
func (s *story) since(t time.Time) string { return "+" + t.Sub(storyStart).String() }

// job finds the job that a command names by its key, or by owner:key.
func (s *story) job(name string) uuid.UUID {
	owner, key, ok := strings.Cut(name, ":")
	if !ok {
		owner, key = "acme", name
	}
	id := JobID(owner, key)
	s.name(id, owner, key)
	return id
}

func (s *story) name(id uuid.UUID, owner, key string) {
	if s.keys[id] = key; owner != "acme" {
		s.keys[id] = owner + ":" + key
	}
}
