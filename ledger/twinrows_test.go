package ledger_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// rows are a job and its attempts in a form that compares with ==. Times are
// microseconds since 1970, 0 for none. What only notes that a row changed
// stands apart.
type rows struct {
	job         jobCells
	updated     int64
	seqs        []uint64
	attempts    []attemptCells
	attemptSeqs [][]uint64
}

type jobCells struct {
	id                         uuid.UUID
	owner, key, kind, provider string
	kindSeq                    uint64
	state                      ledger.JobState
	reason                     ledger.StateReason
	version                    int64
	completedBy                int
	failure                    ledger.Failure
	runAt, created, completed  int64
	cancelled, due             int64
	cancelledBy                string
	requestedSeq, completedSeq uint64
	attempts                   int
}

type attemptCells struct {
	job                        uuid.UUID
	number                     int
	provider, key, worker, ref string
	usage                      string
	state                      ledger.AttemptState
	why                        ledger.AttemptReason
	version                    int64
	claimHash                  ledger.Digest
	startBy, deadline, due     int64
	asked, started, lost       int64
	ended, resolved            int64
	failure                    ledger.Failure
	said                       bool
	resolver, because          string
	startSeq                   uint64
	replays                    int
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func rowsOfTwin(j *twinJob) rows {
	if j == nil {
		return rows{}
	}
	r := rows{job: jobCells{
		id: j.id, owner: j.owner, key: j.key, kind: j.kind.Name, provider: j.provider, kindSeq: j.kindSeq,
		state: j.state(), reason: j.wait, version: j.version, completedBy: j.winner, failure: j.failure,
		runAt: micros(j.runAt), created: micros(j.created), completed: micros(j.closedAt),
		cancelled: micros(j.cancelled), due: micros(j.due), cancelledBy: j.cancelledBy,
		requestedSeq: j.createdSeq, completedSeq: j.closedSeq, attempts: len(j.attempts),
	}, updated: micros(j.updated), seqs: j.seqs}
	for _, a := range j.attempts {
		r.attempts = append(r.attempts, attemptCells{
			job: j.id, number: a.number, provider: a.provider, key: a.key, worker: a.worker, ref: a.ref, usage: a.usage,
			state: a.state(), why: a.why, version: a.version, claimHash: a.claimHash,
			startBy: micros(a.startBy), deadline: micros(a.deadline), due: micros(a.due()),
			asked: micros(a.asked), started: micros(a.claimed), lost: micros(a.lostSince),
			ended: micros(a.ended), resolved: micros(a.resolved), failure: a.failure, said: a.said != "",
			resolver: a.resolver, because: a.because, startSeq: a.startSeq,
			replays: a.replays,
		})
		r.attemptSeqs = append(r.attemptSeqs, a.seqs)
	}
	return r
}

func rowsOf(j *ledger.Job) rows {
	if j == nil {
		return rows{}
	}
	r := rows{job: jobCells{
		id: j.ID, owner: j.Owner, key: j.Key, kind: j.Kind, provider: j.Provider, kindSeq: j.KindSeq,
		state: j.State, reason: j.StateReason, version: j.Version, completedBy: j.CompletedBy, failure: j.Failure,
		runAt: micros(j.RunAt), created: micros(j.CreatedAt), completed: micros(j.CompletedAt),
		cancelled: micros(j.CancelledAt), due: micros(j.DueAt), cancelledBy: j.CancelledBy,
		requestedSeq: j.RequestedSeq, completedSeq: j.CompletedSeq, attempts: len(j.Attempts),
	}, updated: micros(j.UpdatedAt), seqs: j.Seqs}
	r.attempts = make([]attemptCells, 0, len(j.Attempts))
	r.attemptSeqs = make([][]uint64, 0, len(j.Attempts))
	for _, a := range j.Attempts {
		r.attempts = append(r.attempts, attemptCells{
			job: a.Job, number: a.Number, provider: a.Provider, key: a.Key, worker: a.Worker, ref: a.ProviderRef,
			usage: string(a.Usage), state: a.State, why: a.Reason, version: a.JobVersion, claimHash: a.ClaimHash,
			startBy: micros(a.StartBy), deadline: micros(a.Deadline), due: micros(a.DueAt),
			asked: micros(a.RequestedAt), started: micros(a.StartedAt), lost: micros(a.UnknownSince),
			ended: micros(a.FinishedAt), resolved: micros(a.ResolvedAt), failure: a.Failure, said: !a.Completion.IsZero(),
			resolver: a.ResolvedBy, because: a.ResolvedReason, startSeq: a.StartSeq,
			replays: a.Replays,
		})
		r.attemptSeqs = append(r.attemptSeqs, a.Seqs)
	}
	return r
}

// differ describes the first difference of two jobs' rows, or returns nil.
func differ(got, want rows) error {
	switch {
	case got.job != want.job:
		return fmt.Errorf("job row:\n got  %+v\n want %+v", got.job, want.job)
	case got.updated != want.updated:
		return fmt.Errorf("updated_at %d, want %d", got.updated, want.updated)
	case !slices.Equal(got.seqs, want.seqs):
		return fmt.Errorf("job's seqs %v, want %v", got.seqs, want.seqs)
	case len(got.attempts) != len(want.attempts):
		return fmt.Errorf("%d attempts, want %d", len(got.attempts), len(want.attempts))
	}
	for i := range got.attempts {
		if got.attempts[i] != want.attempts[i] {
			return fmt.Errorf("attempt %d:\n got  %+v\n want %+v", i+1, got.attempts[i], want.attempts[i])
		}
		if !slices.Equal(got.attemptSeqs[i], want.attemptSeqs[i]) {
			return fmt.Errorf("attempt %d's seqs %v, want %v", i+1, got.attemptSeqs[i], want.attemptSeqs[i])
		}
	}
	return nil
}

// differVerdict compares what the fold says with what the twin says.
func differVerdict(t *twin, e *ledger.Entry, got ledger.Verdict, want twinAnswer) error {
	a := got.Answer
	wanted := ledger.Answer{
		Seq: e.Seq, Decision: want.decision, Reason: want.reason, Detail: a.Detail, Job: e.Job, Attempt: want.attempt,
		State: want.state, Version: want.version, TimeoutMS: want.timeout,
	}
	if a != wanted {
		return fmt.Errorf("answer:\n got  %+v\n want %+v", a, wanted)
	}
	if err := differRejection(e, got, want); err != nil {
		return err
	}
	return differEffects(t, got.Effects, want)
}

func differRejection(e *ledger.Entry, got ledger.Verdict, want twinAnswer) error {
	if want.decision != ledger.Conflict && want.decision != ledger.Refused && want.decision != ledger.Malformed {
		if got.Rejection != nil || got.Answer.Detail != "" {
			return fmt.Errorf("a rejection %+v beside the decision %q", got.Rejection, want.decision)
		}
		return nil
	}
	if got.Rejection == nil || got.Rejection.Detail == "" {
		return fmt.Errorf("no rejection with a detail beside the decision %q: %+v", want.decision, got.Rejection)
	}
	r := *got.Rejection
	raw := ""
	if want.decision == ledger.Malformed {
		raw = string(e.Raw[:min(len(e.Raw), 4096)])
	}
	if string(r.Raw) != raw {
		return fmt.Errorf("the rejection keeps %q, want %q", r.Raw, raw)
	}
	w := ledger.Rejection{
		Seq: e.Seq, At: e.At, Entry: string(e.Kind), Actor: e.Actor, Job: e.Job, Attempt: want.attempt,
		Decision: want.decision, Reason: want.reason,
	}
	if w.Entry == "" {
		w.Entry = e.Subject
	}
	switch b := e.Body.(type) {
	case *ledger.Request:
		w.Owner, w.Key, w.Kind, w.Provider = b.Owner, b.Key, b.Kind, b.Provider
	case *ledger.AttemptAsk:
		w.Owner, w.Key, w.Provider = b.Owner, b.Key, b.Provider
	case *ledger.ProviderBrake:
		w.Provider = b.Name
	case *ledger.Verification:
		w.Kind, w.Provider = b.Kind, b.Provider
	}
	if e.Kind == ledger.AttemptClaim || e.Kind == ledger.AttemptComplete || e.Kind == ledger.AttemptStart {
		w.Provider = e.Token
	}
	if want.visible != nil && e.Kind != ledger.JobRequest { // a request's rejection shows what was asked for
		w.Owner, w.Kind = want.visible.owner, want.visible.kind.Name
	}
	r.Raw, r.Detail = nil, ""
	if fmt.Sprint(r) != fmt.Sprint(w) {
		return fmt.Errorf("rejection:\n got  %+v\n want %+v", r, w)
	}
	return nil
}

// differEffects expects stops, then starts, then the announcement.
func differEffects(t *twin, got []ledger.Effect, want twinAnswer) error {
	count := len(want.stopped) + len(want.started)
	if want.announce {
		count++
	}
	if len(got) != count {
		return fmt.Errorf("%d effects %+v, want %d", len(got), got, count)
	}
	j := want.visible
	for i, a := range want.stopped {
		w := ledger.Effect{Kind: ledger.StopAttempt, Job: j.id, Attempt: a.number, Provider: a.provider}
		if got[i] != w {
			return fmt.Errorf("effect %+v, want %+v", got[i], w)
		}
	}
	for i, a := range want.started {
		if err := differStart(t, got[len(want.stopped)+i], j, a); err != nil {
			return err
		}
	}
	if !want.announce {
		return nil
	}
	last := got[count-1]
	w := ledger.JobOutcome{Job: j.id, Owner: j.owner, Kind: j.kind.Name, State: j.state(), Version: j.version, CompletedBy: j.winner}
	if last.Kind != ledger.AnnounceJob || last.Job != j.id || last.Outcome == nil || *last.Outcome != w {
		return fmt.Errorf("effect %+v (%+v), want the announcement %+v", last, last.Outcome, w)
	}
	return nil
}

func differStart(t *twin, e ledger.Effect, j *twinJob, a *twinAttempt) error {
	if e.Kind != ledger.StartAttempt || e.Job != j.id || e.Attempt != a.number || e.Provider != a.provider ||
		e.RequestSeq != j.createdSeq || e.Start == nil {
		return fmt.Errorf("effect %+v, want the start of attempt %d of %+v", e, a.number, j)
	}
	got := *e.Start
	if got.Input != nil && string(got.Input) != j.input {
		return fmt.Errorf("the start has the input %s, want %s", got.Input, j.input)
	}
	want := ledger.Start{
		Job: j.id, Attempt: a.number, JobVersion: j.version, Owner: j.owner, Kind: j.kind.Name, KindSeq: j.kindSeq,
		Provider: a.provider, TimeoutMS: j.kind.AttemptTimeoutMS, Contract: j.kind.Contract,
	}
	if a.provider != j.first() && a.why != ledger.Manual { // it rests on a proof, which is about a definition
		want.ProviderDigest = t.providers[a.provider].String()
	}
	got.Input = nil
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("start:\n got  %+v\n want %+v", got, want)
	}
	return nil
}
