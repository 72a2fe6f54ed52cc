package ledger

import (
	"testing"
	"time"
)

// crowded returns a state with one job that has so many attempts, the last one
// claimed by claim and the others resolved as cancelled.
func crowded(t *testing.T, attempts int, claim string) (*State, *Job) {
	t.Helper()
	s := NewState(1)
	kind := DefaultKind()
	kind.Name, kind.Providers = "work", []string{"primary"}
	s.LoadKind(KindRow{Seq: 1, Kind: kind, Digest: kind.Digest()})
	id := JobID("acme", "crowded")
	j := &Job{ID: id, Owner: "acme", Key: "crowded", Kind: "work", KindSeq: 1, State: JobRunning, Version: 1}
	for n := 1; n <= attempts; n++ {
		j.Attempts = append(j.Attempts, &Attempt{
			Job: id, Number: n, Provider: "primary", State: AttemptCancelled, Reason: Manual, JobVersion: 1,
		})
	}
	last := j.Attempts[attempts-1]
	last.State, last.ClaimHash = AttemptRunning, hashClaim(claim)
	s.Load(j)
	return s, j
}

func fold(t *testing.T, s *State, seq uint64, b Body) Verdict {
	t.Helper()
	m := b.Message()
	v, err := s.Apply(Decode(seq, storyStart.Add(time.Duration(seq)*time.Second), m.Subject, m.Data))
	if err != nil {
		t.Fatalf("folding %s: %v", m.Subject, err)
	}
	return v
}

func TestAttemptsAreBounded(t *testing.T) {
	t.Parallel()
	claim := claimID("A")
	end := func(j *Job) Body {
		return &Completion{
			Job: j.ID, Attempt: len(j.Attempts), JobVersion: 1, Provider: "primary", Claim: claim,
			Outcome: OutcomeFailed, Failure: Failure{Class: "busy", Reach: ReachTransient},
		}
	}

	t.Run("one below the bound goes on", func(t *testing.T) {
		t.Parallel()
		s, j := crowded(t, MaxAttemptsPerJob-1, claim)
		fold(t, s, 2, end(j))
		if j.StateReason != Backoff {
			t.Errorf("the job is %s (%s); expected a back-off", j.State, j.StateReason)
		}
		v := fold(t, s, 3, &AttemptAsk{Job: j.ID, Key: "click"})
		if v.Answer.Decision != Accepted {
			t.Errorf("a person's wish for the last attempt: %s %s; expected it to be accepted", v.Answer.Decision, v.Answer.Reason)
		}
	})
	t.Run("at the bound nothing more starts", func(t *testing.T) {
		t.Parallel()
		s, j := crowded(t, MaxAttemptsPerJob, claim)
		fold(t, s, 2, end(j))
		if j.State != JobWaiting || j.StateReason != Held {
			t.Errorf("the job is %s (%s); expected it to be held", j.State, j.StateReason)
		}
		v := fold(t, s, 3, &AttemptAsk{Job: j.ID, Key: "click"})
		if v.Answer.Decision != Refused || v.Answer.Reason != TooManyAttempts {
			t.Errorf("a person's wish: %s %s; expected refused %s", v.Answer.Decision, v.Answer.Reason, TooManyAttempts)
		}
	})
}

func TestUnloadedJobPanics(t *testing.T) {
	t.Parallel()
	m := (&Cancel{Job: JobID("acme", "k")}).Message()
	defer func() {
		if recover() == nil {
			t.Error("folding an entry for a job that was not loaded did not panic")
		}
	}()
	_, _ = NewState(1).Apply(Decode(1, storyStart, m.Subject, m.Data))
}

func TestMissingKindIsCorruption(t *testing.T) {
	t.Parallel()
	s := NewState(1)
	id := JobID("acme", "k")
	s.Load(&Job{ID: id, Kind: "work", KindSeq: 7, State: JobRunning, Version: 1})
	m := (&Cancel{Job: id}).Message()
	if _, err := s.Apply(Decode(9, storyStart, m.Subject, m.Data)); err == nil {
		t.Error("a job whose kind is not there was folded; expected a CorruptionError")
	}
}

// TestForgetKeepsChanges checks that changes cannot be lost by forgetting a job
// before they are drained.
func TestForgetKeepsChanges(t *testing.T) {
	t.Parallel()
	claim := claimID("A")
	s, j := crowded(t, 1, claim)
	fold(t, s, 2, &Cancel{Job: j.ID})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a job with changes was forgotten without a panic")
			}
		}()
		s.Forget(j.ID)
	}()
	s.Drain()
	s.Forget(j.ID)
	if s.Knows(j.ID) {
		t.Error("the job is still known after Forget")
	}
}
