package ledger

import (
	"fmt"
	"strings"
)

// EntryKind is the kind of an entry, and the head of the subject that it is
// stored under. The set only grows.
type EntryKind string

// The kinds of entries. Subjects are given without the ledger's prefix.
const (
	RulesSet         EntryKind = "rules.set"
	KindDefine       EntryKind = "kind.define"
	ProviderDefine   EntryKind = "provider.define"
	ProviderVerified EntryKind = "provider.verified"
	JobRequest       EntryKind = "job.request"
	JobCancel        EntryKind = "job.cancel"
	AttemptRequest   EntryKind = "attempt.request"
	AttemptStart     EntryKind = "attempt.start"
	AttemptClaim     EntryKind = "attempt.claim"
	AttemptComplete  EntryKind = "attempt.complete"
	AttemptResolve   EntryKind = "attempt.resolve"
	ClockDue         EntryKind = "clock.due"
)

// suffix says what follows an entry's kind in its subject.
type suffix int

const (
	noSuffix suffix = iota
	optionalSuffix
	requiredSuffix
)

// subjectGrammar lists every stored subject. The stream's configuration is made
// from it, so nothing can be stored that the codec does not know.
var subjectGrammar = []struct {
	kind   EntryKind
	suffix suffix
}{
	{RulesSet, noSuffix},
	{KindDefine, noSuffix},
	{ProviderDefine, noSuffix},
	{ProviderVerified, noSuffix},
	{JobRequest, optionalSuffix},
	{JobCancel, noSuffix},
	{AttemptRequest, noSuffix},
	{AttemptStart, requiredSuffix},
	{AttemptClaim, requiredSuffix},
	{AttemptComplete, requiredSuffix},
	{AttemptResolve, noSuffix},
	{ClockDue, noSuffix},
}

// StoredSubjects returns the subjects that the stream stores, each starting
// with prefix and a dot. Job ids never stand in them: the server keeps every
// distinct subject in memory for ever.
func StoredSubjects(prefix string) []string {
	var subjects []string
	for _, g := range subjectGrammar {
		s := prefix + "." + string(g.kind)
		if g.suffix != requiredSuffix {
			subjects = append(subjects, s)
		}
		if g.suffix != noSuffix {
			subjects = append(subjects, s+".*")
		}
	}
	return subjects
}

// ParseSubject splits a subject, given without the ledger's prefix, into the
// entry's kind and the token that follows it: the provider of a start, claim or
// completion, the producer of a request, else "".
func ParseSubject(subject string) (EntryKind, string, error) {
	for _, g := range subjectGrammar {
		rest, ok := strings.CutPrefix(subject, string(g.kind))
		switch {
		case !ok:
			continue
		case rest == "" && g.suffix != requiredSuffix:
			return g.kind, "", nil
		case g.suffix != noSuffix && strings.HasPrefix(rest, ".") && ValidName(rest[1:]):
			return g.kind, rest[1:], nil
		}
		return g.kind, "", fmt.Errorf("the subject %s does not fit %s", Quote(subject), g.kind)
	}
	return "", "", fmt.Errorf("the subject %s names no kind of entry", Quote(subject))
}

// OutcomeSubject returns the subject, without prefix, on which a job's
// settlement is announced.
func OutcomeSubject(job string) string { return "outcome." + job }

// StopSubject returns the subject, without prefix, on which a provider's
// workers are told to stop an attempt.
func StopSubject(provider string) string { return "stop." + provider }

// ReplyHeader is the header in which whoever appends an entry names the subject
// on which the decision is to be published.
const ReplyHeader = "Ledger-Reply"
