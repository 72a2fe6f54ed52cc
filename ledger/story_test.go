package ledger

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/uuid"
)

// The stories in testdata/fold are transcripts: entries in, decisions and
// states out. Run the tests with -rewrite to write what the fold says now, and
// read the difference against the design before committing it.
//
// A block "fold" holds one command a line, a block "repeat n=N" folds its
// commands N times and prints only the last round. After each entry the output
// has the verdict, the rejection if there is one, the effects, and the rows of
// the job that the entry changed. Times are given from the story's beginning. The commands are:
//
//	rules n=1
//	kind name=work providers=a,b effects= mode= hedge= start_timeout= timeout= max_attempts= backoff=1s..60s factor=2 failover= contract=
//	provider name= type= definition=
//	verified provider= kind= contract= expires=1h failed digest=
//	request key= owner= kind= input= provider= run_at=+1h delay= producer=
//	claim job= attempt= claim= worker= provider= version=
//	complete job= attempt= claim= outcome= result= class= message= executed reach= retry_after= ref= usage= provider= version=
//	cancel job= owner= reason=
//	ask job= key= provider= force owner=
//	resolve job= attempt= as= result= class= executed reach= reason=
//	due job= attempt= at=+30s          the due time is the actual one unless given
//	clock job=                         advance to the job's next due time and say it
//	result job= attempt= claim= bytes=  a success with a result of that size
//	filler key= bytes=                 a request of that size
//	raw SUBJECT BODY                   an entry as it stands; "…" is a quoted Go string
//	advance 30s                        move the stream's clock
//	reload                             drain, forget everything, load what was drained
//	show job=
//
// A job is named by its key; the owner is acme unless given. The attempt is the
// job's latest, its provider and version its own, unless given.

func TestStories(t *testing.T) {
	t.Parallel()
	for _, path := range storyFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			s := newStory(oneBatch)
			datadriven.RunTest(t, path, s.run)
		})
	}
}

// batching says what happens between two entries.
type batching int

const (
	oneBatch batching = iota // nothing: the whole story is one batch
	kept                     // what has changed is stored; the state goes on
	reloaded                 // it is stored, forgotten, and loaded again
)

// TestStoriesInBatches tells the same stories with a batch's end before every
// entry, which must not matter.
func TestStoriesInBatches(t *testing.T) {
	t.Parallel()
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		t.Skip("the stories are being rewritten; run again without -rewrite")
	}
	for name, mode := range map[string]batching{"kept": kept, "reloaded": reloaded} {
		for _, path := range storyFiles(t) {
			t.Run(name+"/"+filepath.Base(path), func(t *testing.T) {
				t.Parallel()
				s := newStory(mode)
				datadriven.RunTest(t, path, s.run)
			})
		}
	}
}

// TestStoriesReachEverything checks that the stories make every move of the
// transition tables and hear every reason.
func TestStoriesReachEverything(t *testing.T) {
	t.Parallel()
	coverage := NewCoverage()
	reasons := map[Reason]bool{}
	for _, path := range storyFiles(t) {
		s := newStory(oneBatch)
		s.coverage, s.reasons = coverage, reasons
		s.state.Coverage = coverage
		datadriven.RunTest(t, path, s.run)
	}
	coverage.Each(func(move string, count int) {
		if count == 0 {
			t.Errorf("no story makes the move %s", move)
		}
	})
	for _, r := range everyReason {
		if !reasons[r] {
			t.Errorf("no story hears the reason %s", r)
		}
	}
}

// everyReason lists the reasons but for TooManyAttempts, which takes a thousand
// attempts; TestAttemptsAreBounded has it.
var everyReason = []Reason{
	IdempotencyConflict, AttemptInFlight, JobFinished, UnknownJob, UnknownAttempt, UnknownKind, UnknownProvider,
	ProviderNotVerified, AlreadyClaimed, NotClaimant, Fenced, ResultAlreadyClaimed, AttemptEnded, AttemptNotClaimed,
	StartDeadlinePassed, WrongProvider, TooLarge, Forbidden, BadEntry, UnknownEntry, UnsupportedVersion,
}

func storyFiles(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/fold/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories in testdata/fold (error: %v)", err)
	}
	return paths
}

var storyStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// story is a stream, its fold, and the store that a batch would be written to.
type story struct {
	state    *State
	store    map[uuid.UUID]*Job
	defs     Changes // the definitions that were stored, in order
	coverage *Coverage
	reasons  map[Reason]bool
	mode     batching
	seq      uint64
	now      time.Time
	names    map[string]uuid.UUID // jobs by "owner:key"
	keys     map[uuid.UUID]string
	digests  map[string]string // of the providers' definitions
	shown    map[string]string // rows as last printed
	out      strings.Builder
}

func newStory(mode batching) *story {
	return &story{
		state: NewState(0), store: map[uuid.UUID]*Job{}, mode: mode, now: storyStart,
		names: map[string]uuid.UUID{}, keys: map[uuid.UUID]string{}, digests: map[string]string{},
		shown: map[string]string{}, reasons: map[Reason]bool{},
	}
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	rounds := 1
	switch d.Cmd {
	case "fold":
	case "repeat":
		d.ScanArgs(t, "n", &rounds)
	default:
		d.Fatalf(t, "unknown directive %s; expected fold or repeat", d.Cmd)
	}
	for range rounds {
		s.out.Reset()
		for _, line := range strings.Split(d.Input, "\n") {
			if err := s.command(line); err != nil {
				d.Fatalf(t, "%s: %v", line, err)
			}
		}
	}
	if s.out.Len() == 0 {
		return "ok"
	}
	return s.out.String()
}

// append stores an entry in the stream and folds it.
func (s *story) append(m Message) error {
	if err := s.endBatch(s.mode); err != nil {
		return err
	}
	s.seq++
	e := Decode(s.seq, s.now, m.Subject, m.Data)
	if e.Job != (uuid.UUID{}) && !s.state.Knows(e.Job) {
		s.state.LoadAbsent(e.Job)
	}
	v, err := s.state.Apply(e)
	if corrupt := new(CorruptionError); errors.As(err, &corrupt) {
		fmt.Fprintf(&s.out, "%d corruption: %v\n", s.seq, err)
		return nil
	}
	if err != nil {
		return err
	}
	if r := v.Answer.Reason; r != "" {
		s.reasons[r] = true
	}
	s.print(e, v)
	return checkVerdict(e, v)
}

// checkVerdict holds for every entry: the answer names the entry and its job, and
// exactly the rejecting decisions leave a rejection, which says what the answer
// says.
func checkVerdict(e *Entry, v Verdict) error {
	a, r := v.Answer, v.Rejection
	switch {
	case a.Seq != e.Seq || a.Job != e.Job:
		return fmt.Errorf("the answer is about entry %d and job %s; expected %d and %s", a.Seq, a.Job, e.Seq, e.Job)
	case a.Decision.Rejects() != (r != nil):
		return fmt.Errorf("decision %q with rejection %v", a.Decision, r)
	case r == nil:
		return nil
	case r.Seq != e.Seq || !r.At.Equal(e.At) || r.Job != e.Job || r.Attempt != a.Attempt ||
		r.Decision != a.Decision || r.Reason != a.Reason || r.Detail != a.Detail:
		return fmt.Errorf("the rejection %+v does not say what the answer %+v says", r, a)
	case !bytes.HasPrefix(e.Raw, r.Raw) || len(r.Raw) > RejectionRawBytes:
		return fmt.Errorf("the rejection keeps %d bytes, which are not the first of the entry", len(r.Raw))
	}
	return nil
}
