package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// A watch states the invariants of the design on the sequence of rows, without
// asking how the fold came to them. It sees every entry with the rows of its
// job before and after.
type watch struct {
	kinds     map[uint64]ledger.Kind // by the sequence that defined them
	providers map[string]string
	promises  map[string]bool // by provider: it may be asked the same again
	paused    map[string]bool
	proofs    map[[3]string]*ledger.Verification
	jobs      map[uuid.UUID]rows
	ids       map[[2]string]uuid.UUID
	started   map[uuid.UUID]int // StartAttempt effects by job
}

func newWatch() *watch {
	return &watch{
		kinds: map[uint64]ledger.Kind{}, providers: map[string]string{}, promises: map[string]bool{}, paused: map[string]bool{}, proofs: map[[3]string]*ledger.Verification{},
		jobs: map[uuid.UUID]rows{}, ids: map[[2]string]uuid.UUID{}, started: map[uuid.UUID]int{},
	}
}

// see checks one entry and takes over the rows after it.
func (w *watch) see(e *ledger.Entry, v ledger.Verdict, after rows) error {
	before := w.jobs[e.Job]
	w.define(e, v.Answer.Decision)
	checks := []func(*ledger.Entry, ledger.Verdict, rows, rows) error{
		w.everyEntryIsAnswered, w.oneJobForOneKey, w.whatIsNotAcceptedChangesNothing, w.jobHistory,
		w.oneAtATime, w.stateFitsAttempts, w.attemptHistories, w.onlyExplicitFailures, w.startsOnce, w.startsProven,
		w.rowsNoteTheirEntries,
	}
	for _, check := range checks {
		if err := check(e, v, before, after); err != nil {
			return err
		}
	}
	if after.job.id != uuid.Nil {
		w.jobs[e.Job] = after
	}
	return nil
}

func (w *watch) define(e *ledger.Entry, d ledger.Decision) {
	if d != ledger.Accepted {
		return
	}
	switch b := e.Body.(type) {
	case *ledger.KindDefinition:
		w.kinds[e.Seq] = b.Kind
	case *ledger.ProviderDefinition:
		digest, _ := ledger.ProviderDigest(b.Type, b.Definition)
		w.providers[b.Name] = digest.String()
		w.promises[b.Name] = strings.Contains(string(b.Definition), `"replay":true`)
	case *ledger.ProviderBrake:
		w.paused[b.Name] = b.Paused
	case *ledger.Verification:
		w.proofs[[3]string{b.Provider, b.Kind, b.Contract}] = b
	}
}

func (w *watch) everyEntryIsAnswered(e *ledger.Entry, v ledger.Verdict, _, _ rows) error {
	d := v.Answer.Decision
	silent := e.Kind == ledger.AttemptStart || e.Kind == ledger.ClockDue
	switch {
	case d == "" && !silent:
		return errors.New("I3: the entry got no decision")
	case (v.Rejection != nil) != d.Rejects():
		return fmt.Errorf("I8: decision %q with rejection %v", d, v.Rejection)
	case d.Rejects() != (v.Answer.Reason != ""):
		return fmt.Errorf("decision %q with reason %q", d, v.Answer.Reason)
	}
	return nil
}

func (w *watch) oneJobForOneKey(e *ledger.Entry, v ledger.Verdict, before, after rows) error {
	b, ok := e.Body.(*ledger.Request)
	if !ok {
		if before.job.id == uuid.Nil && after.job.id != uuid.Nil {
			return errors.New("I1: a job came to be without a request")
		}
		return nil
	}
	pair := [2]string{b.Owner, b.Key}
	if id, known := w.ids[pair]; known && id != e.Job || e.Job != twinJobID(b.Owner, b.Key) {
		return fmt.Errorf("I1: %q names the job %s and the job %s", pair, id, e.Job)
	}
	w.ids[pair] = e.Job
	if before.job.id != uuid.Nil && v.Answer.Decision != ledger.Duplicate && v.Answer.Decision != ledger.Conflict {
		return fmt.Errorf("I1: a second request was answered %q", v.Answer.Decision)
	}
	return nil
}

// whatIsNotAcceptedChangesNothing is I2 and I8: only the attempt of a result
// that came too late takes note of it.
func (w *watch) whatIsNotAcceptedChangesNothing(e *ledger.Entry, v ledger.Verdict, before, after rows) error {
	if v.Answer.Decision == ledger.Accepted {
		return nil
	}
	late := v.Answer.Reason == ledger.ResultAlreadyClaimed || v.Answer.Reason == ledger.Fenced
	if late && before.job == after.job && len(before.attempts) == len(after.attempts) {
		n := v.Answer.Attempt - 1
		if is := after.attempts[n]; is.state == ledger.AttemptSuperseded && before.attempts[n].state != is.state {
			before.attempts = slices.Clone(before.attempts)
			before.attemptSeqs = slices.Clone(before.attemptSeqs)
			before.attempts[n], before.attemptSeqs[n] = is, after.attemptSeqs[n]
		}
	}
	if err := differ(after, before); err != nil {
		return fmt.Errorf("I2, I8: decision %q, %q changed rows: %w", v.Answer.Decision, v.Answer.Reason, err)
	}
	return nil
}

func (w *watch) jobHistory(e *ledger.Entry, v ledger.Verdict, before, after rows) error {
	was, is := before.job, after.job
	if was.id == uuid.Nil {
		return nil
	}
	final := was.state == ledger.JobSucceeded || was.state == ledger.JobCancelled
	switch {
	case was.completedBy != 0 && is.completedBy != was.completedBy:
		return fmt.Errorf("I7: completed_by went from %d to %d", was.completedBy, is.completedBy)
	case (is.state == ledger.JobSucceeded) != (is.completedBy != 0):
		return fmt.Errorf("I7: the job is %s with completed_by %d", is.state, is.completedBy)
	case final && is != was:
		return fmt.Errorf("I9: a final job changed: %+v, was %+v", is, was)
	case final && len(after.attempts) != len(before.attempts):
		return errors.New("I9: a final job got an attempt")
	case was.state == ledger.JobFailed && is.state != was.state && e.Kind != ledger.AttemptRequest && e.Kind != ledger.JobCancel:
		return fmt.Errorf("I9: %s took a failed job to %s", e.Kind, is.state)
	case is.version < was.version || is.version > was.version+1:
		return fmt.Errorf("the version went from %d to %d", was.version, is.version)
	}
	raised := is.completedBy != was.completedBy || is.cancelled != was.cancelled ||
		was.state == ledger.JobFailed && is.state == ledger.JobRunning || is.reason == ledger.Held && e.Kind == ledger.AttemptResolve
	if raised && e.Kind == ledger.AttemptResolve && v.Answer.Decision != ledger.Accepted {
		raised = false
	}
	if resolution, ok := e.Body.(*ledger.Resolution); ok && resolution.As == ledger.OutcomeFailed {
		raised = false // held by the bound on attempts that never ran
	}
	if raised != (is.version > was.version) {
		return fmt.Errorf("the version went from %d to %d with %s", was.version, is.version, e.Kind)
	}
	return nil
}

func inFlight(s ledger.AttemptState) bool {
	return s == ledger.AttemptStarting || s == ledger.AttemptRunning || s == ledger.AttemptUnknown
}

func (w *watch) oneAtATime(_ *ledger.Entry, _ ledger.Verdict, _, after rows) error {
	kind := w.kinds[after.job.kindSeq]
	busy := map[string]int{}
	all := 0
	for _, a := range after.attempts {
		if inFlight(a.state) {
			busy[a.provider]++
			all++
			if busy[a.provider] > 1 {
				return fmt.Errorf("I5: two attempts in flight on %s", a.provider)
			}
		}
	}
	if all > 1 && kind.Mode != ledger.ModeRace {
		return fmt.Errorf("I5: %d attempts in flight in an exclusive job", all)
	}
	return nil
}

// stateFitsAttempts says what a job's state means for its attempts.
func (w *watch) stateFitsAttempts(_ *ledger.Entry, _ ledger.Verdict, _, after rows) error {
	j := after.job
	active, unknown, won := 0, 0, 0
	for _, a := range after.attempts {
		switch a.state {
		case ledger.AttemptStarting, ledger.AttemptRunning:
			active++
		case ledger.AttemptUnknown:
			unknown++
		case ledger.AttemptSucceeded:
			won = a.number
		}
		due := a.state == ledger.AttemptStarting && a.startBy != 0 || a.state == ledger.AttemptRunning
		if due != (a.due != 0) {
			return fmt.Errorf("attempt %d is %s and due at %d", a.number, a.state, a.due)
		}
	}
	fits := true
	switch j.state {
	case ledger.JobWaiting:
		fits = active+unknown == 0 && j.reason != "" && (j.due == 0) == (j.reason == ledger.Held)
	case ledger.JobRunning:
		fits = active > 0
	case ledger.JobUnknown:
		fits = active == 0 && unknown > 0
	case ledger.JobFailed:
		fits = active+unknown == 0 && j.due == 0 && j.completed != 0
	case ledger.JobSucceeded, ledger.JobCancelled:
		fits = j.due == 0
	}
	switch {
	case !fits, j.state != ledger.JobWaiting && j.reason != "":
		return fmt.Errorf("%s (%s, due %d) with %d active and %d unknown attempts", j.state, j.reason, j.due, active, unknown)
	case won != j.completedBy:
		return fmt.Errorf("I7: attempt %d succeeded and completed_by is %d", won, j.completedBy)
	}
	return nil
}
