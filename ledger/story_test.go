package ledger

import (
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
// has the verdict, then the effects, then the rows of the job that the entry
// changed. Times are given from the story's beginning. The commands are:
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
			s := newStory(false)
			datadriven.RunTest(t, path, s.run)
		})
	}
}

// TestStoriesReloaded tells the same stories to a state that is drained,
// forgotten and loaded again before every entry: where a batch ends must not
// matter.
func TestStoriesReloaded(t *testing.T) {
	t.Parallel()
	if f := flag.Lookup("rewrite"); f != nil && f.Value.String() == "true" {
		t.Skip("the stories are being rewritten; run again without -rewrite")
	}
	for _, path := range storyFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			s := newStory(true)
			datadriven.RunTest(t, path, s.run)
		})
	}
}

// TestStoriesReachEverything checks that the stories make every move of the
// transition tables and hear every reason.
func TestStoriesReachEverything(t *testing.T) {
	t.Parallel()
	coverage := NewCoverage()
	reasons := map[Reason]bool{}
	for _, path := range storyFiles(t) {
		s := newStory(false)
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
	coverage *Coverage
	reasons  map[Reason]bool
	reloads  bool // before every entry
	seq      uint64
	now      time.Time
	names    map[string]uuid.UUID // jobs by "owner:key"
	keys     map[uuid.UUID]string
	digests  map[string]string // of the providers' definitions
	shown    map[string]string // rows as last printed
	out      strings.Builder
}

func newStory(reloads bool) *story {
	return &story{
		state: NewState(0), store: map[uuid.UUID]*Job{}, reloads: reloads, now: storyStart,
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
	if s.reloads {
		if err := s.reload(); err != nil {
			return err
		}
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
	return checkVerdict(v)
}

// checkVerdict holds for every entry: exactly the rejecting decisions leave a
// rejection.
func checkVerdict(v Verdict) error {
	if v.Answer.Decision.Rejects() != (v.Rejection != nil) {
		return fmt.Errorf("decision %q with rejection %v", v.Answer.Decision, v.Rejection)
	}
	return nil
}

// reload writes the changes to the store, as a projector does at the end of a
// batch, and begins the next batch with what it reads back.
func (s *story) reload() error {
	c := s.state.Drain()
	for i := range c.Jobs {
		if err := s.storeJob(&c.Jobs[i]); err != nil {
			return err
		}
	}
	for i := range c.Attempts {
		if err := s.storeAttempt(&c.Attempts[i]); err != nil {
			return err
		}
	}
	old := s.state
	s.state = NewState(old.Rules())
	s.state.Coverage = s.coverage
	s.state.defs = old.defs
	for id, row := range s.store {
		j := *row
		j.Input, j.Result, j.mark = nil, nil, mark{}
		j.Seqs = append([]uint64(nil), row.Seqs...)
		j.Attempts = make([]*Attempt, len(row.Attempts))
		for i, stored := range row.Attempts {
			a := *stored
			a.Seqs, a.mark = append([]uint64(nil), stored.Seqs...), mark{}
			j.Attempts[i] = &a
		}
		s.state.Forget(id)
		s.state.Load(&j)
	}
	return nil
}

// storeJob is the compare-and-swap that a projector's write repeats.
func (s *story) storeJob(row *Job) error {
	stored := s.store[row.ID]
	if row.IsNew() != (stored == nil) {
		return fmt.Errorf("job %s: new is %v, but it is stored: %v", row.Key, row.IsNew(), stored != nil)
	}
	attempts := []*Attempt(nil)
	if stored != nil {
		version, completedBy := row.StoredVersion()
		if stored.Version != version || stored.CompletedBy != completedBy {
			return fmt.Errorf("job %s: the write expects version %d by %d; version %d by %d is stored",
				row.Key, version, completedBy, stored.Version, stored.CompletedBy)
		}
		attempts = stored.Attempts
	}
	row.Attempts = attempts
	s.store[row.ID] = row
	return nil
}

func (s *story) storeAttempt(row *Attempt) error {
	j := s.store[row.Job]
	isNew := row.Number == len(j.Attempts)+1
	if row.IsNew() != isNew {
		return fmt.Errorf("attempt %d: new is %v, but %d are stored", row.Number, row.IsNew(), len(j.Attempts))
	}
	if isNew {
		j.Attempts = append(j.Attempts, row)
	} else {
		j.Attempts[row.Number-1] = row
	}
	return nil
}
