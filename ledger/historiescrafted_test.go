package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// Crafted rows are such as the fold itself never leaves behind: each of its
// fences must hold alone, where another one would have caught the history too.
type craft struct {
	state *ledger.State
	job   *ledger.Job
	seq   uint64
}

const craftClaim = "0123456789abcdef"

// newCraft loads a job with one attempt, running under craftClaim.
func newCraft(t *testing.T, change func(*ledger.Job)) *craft {
	t.Helper()
	kind := ledger.DefaultKind()
	kind.Name, kind.Providers = "draw", []string{"p1", "p2"}
	id := ledger.JobID("acme", "k")
	job := &ledger.Job{
		ID: id, Owner: "acme", Key: "k", Kind: "draw", KindSeq: 1, State: ledger.JobRunning, Version: 1,
		Attempts: []*ledger.Attempt{{
			Job: id, Number: 1, Provider: "p1", State: ledger.AttemptStarting, Reason: ledger.Initial, JobVersion: 1,
		}},
	}
	c := &craft{state: ledger.NewState(1), job: job, seq: 1}
	c.state.LoadKind(ledger.KindRow{Seq: 1, Kind: kind, Digest: kind.Digest()})
	c.state.Load(job)
	claim := &ledger.Claim{Job: id, Attempt: 1, JobVersion: 1, Provider: "p1", Claim: craftClaim, StartSeq: 2}
	if v := c.fold(t, claim); v.Answer.Decision != ledger.Accepted {
		t.Fatalf("the claim: %+v", v.Answer)
	}
	c.state.Drain()
	change(job)
	c.state.Load(job)
	return c
}

func (c *craft) fold(t *testing.T, b ledger.Body) ledger.Verdict {
	t.Helper()
	c.seq++
	m := b.Message()
	at := worldStart.Add(time.Duration(c.seq) * time.Second)
	v, err := c.state.Apply(ledger.Decode(c.seq, at, m.Subject, m.Data))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestCraftedFences holds each fence of the result slot alone: the version, the
// job's end, and the winner (I7, I8).
func TestCraftedFences(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*ledger.Job)
		reason ledger.Reason
	}{
		"the version alone": {func(j *ledger.Job) { j.Version = 2 }, ledger.Fenced},
		"cancelled alone":   {func(j *ledger.Job) { j.State = ledger.JobCancelled }, ledger.Fenced},
		"failed alone":      {func(j *ledger.Job) { j.State = ledger.JobFailed }, ledger.Fenced},
		"the winner alone":  {func(j *ledger.Job) { j.CompletedBy = 7 }, ledger.ResultAlreadyClaimed},
	} {
		for by, body := range map[string]ledger.Body{
			"completion": &ledger.Completion{
				Job: ledger.JobID("acme", "k"), Attempt: 1, JobVersion: 1, Provider: "p1", Claim: craftClaim,
				Outcome: ledger.OutcomeSucceeded, Result: []byte(`1`),
			},
			"resolution": &ledger.Resolution{
				Job: ledger.JobID("acme", "k"), Attempt: 1, As: ledger.OutcomeSucceeded, Result: []byte(`1`), Reason: "asked",
			},
		} {
			t.Run(name+", "+by, func(t *testing.T) {
				t.Parallel()
				c := newCraft(t, test.change)
				before := rowsOf(c.job).job
				v := c.fold(t, body)
				if v.Answer.Decision != ledger.Refused || v.Answer.Reason != test.reason || v.Rejection == nil {
					t.Errorf("answered %+v; expected refused, %s", v.Answer, test.reason)
				}
				if after := rowsOf(c.job).job; after != before || c.job.Result != nil {
					t.Errorf("the late result changed the job to %+v, was %+v", after, before)
				}
				if state := c.job.Attempts[0].State; state != ledger.AttemptSuperseded {
					t.Errorf("the attempt is %s; expected superseded", state)
				}
			})
		}
	}
}

// TestCraftedReplays holds what forbids a replay alone: the fence of an attempt
// whose job has gone on, and the bound (I4).
func TestCraftedReplays(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*ledger.Job)
		reason ledger.Reason
	}{
		"nothing":   {func(*ledger.Job) {}, ""},
		"the fence": {func(j *ledger.Job) { j.Version = 2 }, ledger.Fenced},
		"the bound": {func(j *ledger.Job) { j.Attempts[0].Replays = ledger.MaxReplays }, ledger.ReplayNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCraft(t, func(j *ledger.Job) {
				j.State, j.Attempts[0].State = ledger.JobUnknown, ledger.AttemptUnknown
				test.change(j)
			})
			c.state.LoadProvider(ledger.ProviderRow{Name: "p1", Definition: []byte(`{"reconcile":{"replay":true}}`)})
			v := c.fold(t, &ledger.Claim{
				Job: c.job.ID, Attempt: 1, JobVersion: 1, Provider: "p1", Claim: "another-claim-of-it", StartSeq: 2, Replay: true,
			})
			if v.Answer.Reason != test.reason {
				t.Errorf("answered %+v; expected the reason %q", v.Answer, test.reason)
			}
		})
	}
}

// TestCraftedRules: rules only go forward, and newer ones than this binary's
// stop it (I12).
func TestCraftedRules(t *testing.T) {
	t.Parallel()
	set := func(s *ledger.State, rules int) (ledger.Verdict, error) {
		m := (&ledger.Rules{Rules: rules}).Message()
		return s.Apply(ledger.Decode(9, worldStart, m.Subject, m.Data))
	}
	v, err := set(ledger.NewState(ledger.MaxRules+1), ledger.MaxRules)
	if err != nil || v.Answer.Decision != ledger.Refused || v.Answer.Reason != ledger.Forbidden {
		t.Errorf("older rules: %+v, %v; expected refused, forbidden", v.Answer, err)
	}
	var corruption *ledger.CorruptionError
	if _, err = set(ledger.NewState(1), ledger.MaxRules+1); !errors.As(err, &corruption) || corruption.Seq != 9 {
		t.Errorf("newer rules: %v; expected a CorruptionError at 9", err)
	}
}

// TestCraftedAbsence: a job that is known not to exist is no job.
func TestCraftedAbsence(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("932e6392-de75-5f3a-ac8f-94870d967406")
	s := ledger.NewState(1)
	s.LoadAbsent(id)
	m := (&ledger.Due{Job: id, Due: worldStart}).Message()
	v, err := s.Apply(ledger.Decode(3, worldStart, m.Subject, m.Data))
	if err != nil || v.Answer.Decision != "" || len(v.Effects) != 0 || s.Job(id) != nil {
		t.Errorf("a due time of no job: %+v, %v; expected no decision", v, err)
	}
}
