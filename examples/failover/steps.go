package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// stepTimeout bounds the wait for what a step leads to.
const stepTimeout = time.Minute

// A job as `jobledger -o json` prints it.
type job struct {
	ID          string
	State       string
	StateReason string `json:"state_reason"`
	StateDetail string `json:"state_detail"`
	Result      struct{ Summary string }
	Attempts    []struct{ Provider, State string }
}

// steps is the table that is made as the example goes.
type steps struct{ rows [][3]string }

func (t *steps) add(what, outcome, because string) {
	t.rows = append(t.rows, [3]string{what, outcome, because})
	fmt.Printf("%-58s %s\n", what, outcome)
}

func (t *steps) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "STEP\tOUTCOME\tBECAUSE")
	for _, row := range t.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\n", row[0], row[1], row[2])
	}
	_ = w.Flush() // into memory
	return text.String()
}

// run goes through the example.
func (t *steps) run(ctx context.Context, s *stack) error {
	if _, err := t.submit(ctx, s, "a job, while the primary is well", "first"); err != nil {
		return err
	}
	s.primary.behaviour.Store(hasNoKey)
	s.fallback.behaviour.Store(ignoresSystem)
	second, err := t.submit(ctx, s, "a job, when the primary refuses its key", "second")
	if err != nil {
		return err
	}
	if err := t.verify(ctx, s, "provider verify fallback --kind summarize"); err != nil {
		return err
	}
	if err := t.look(ctx, s, "the job that waits", second); err != nil {
		return err
	}
	s.fallback.behaviour.Store(behavesWell)
	if err := t.verify(ctx, s, "the fallback is mended; verify again"); err != nil {
		return err
	}
	// It would look again by itself within a minute.
	if _, err := s.jobledger(ctx, &struct{}{}, "attempt", "start", second, "--provider", "fallback"); err != nil {
		return err
	}
	if err := t.settle(ctx, s, "the job that waited, told to go on", second); err != nil {
		return err
	}
	if _, err := t.submit(ctx, s, "another job, with nobody's help", "third"); err != nil {
		return err
	}
	// Another model under the same name is another provider.
	if err := s.configure("gpt-4.1-nano"); err != nil {
		return err
	}
	if _, err := s.jobledger(ctx, &struct{}{}, "kind", "apply", s.path("jobledger.yaml")); err != nil {
		return err
	}
	_, err = t.submit(ctx, s, "a job, after the fallback became another model", "fourth")
	return err
}

// submit submits a job and notes what becomes of it.
func (t *steps) submit(ctx context.Context, s *stack, what, key string) (id string, err error) {
	var j job
	_, err = s.jobledger(ctx, &j, "submit", "--owner", "example", "--key", key, "--kind", "summarize",
		"--input", `{"text":"It rained for forty days, and the ark was far too small for everybody who asked."}`)
	if err != nil {
		return "", err
	}
	return j.ID, t.settle(ctx, s, what, j.ID)
}

// settle waits until the job has ended, or waits for a proof.
func (t *steps) settle(ctx context.Context, s *stack, what, id string) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	var j job
	err := poll(ctx, "job "+id, func() (bool, error) {
		_, err := s.jobledger(ctx, &j, "job", "get", id)
		return j.State == "succeeded" || j.State == "failed" || j.State == "unknown" || j.StateReason == "failover-unverified", err
	})
	t.addJob(what, &j)
	return err
}

// look notes how a job is.
func (t *steps) look(ctx context.Context, s *stack, what, id string) error {
	var j job
	_, err := s.jobledger(ctx, &j, "job", "get", id)
	t.addJob(what, &j)
	return err
}

func (t *steps) addJob(what string, j *job) {
	attempts := make([]string, len(j.Attempts))
	for i, a := range j.Attempts {
		attempts[i] = a.Provider + " " + a.State
	}
	outcome := j.State
	if j.StateReason != "" {
		outcome += " (" + j.StateReason + ")"
	}
	because := strings.Join(attempts, ", ")
	if j.StateDetail != "" {
		because += "; " + j.StateDetail
	}
	if j.Result.Summary != "" {
		because += ": " + j.Result.Summary
	}
	t.add(what, outcome, because)
}

// verify verifies the fallback and notes what came out.
func (t *steps) verify(ctx context.Context, s *stack, what string) error {
	var v struct {
		Report struct {
			Verdict     string
			Calls, Kept int
			Questions   []struct {
				Name   string
				Broken []struct{ Details []string }
			}
			Prompt struct{ Verdict string }
		}
	}
	status, err := s.jobledger(ctx, &v, "provider", "verify", "fallback", "--kind", "summarize", "--runs", "2")
	if err != nil {
		return err
	}
	because := fmt.Sprintf("%d of %d calls kept the contract; prompt %s", v.Report.Kept, v.Report.Calls, v.Report.Prompt.Verdict)
	if q := v.Report.Questions; len(q) > 0 && len(q[0].Broken) > 0 {
		because += "; " + q[0].Name + ": " + q[0].Broken[0].Details[0]
	}
	t.add(what, fmt.Sprintf("%s (exit status %d)", v.Report.Verdict, status), because)
	return nil
}
