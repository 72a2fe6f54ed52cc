package projector

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

// A history appends random entries to a world's stream: round by round, each
// chosen by what the fold of the rounds before says, so that most make sense
// and many come late, twice or in conflict.
type history struct {
	w        *world
	rnd      *rand.Rand
	state    *ledger.State
	consumer jetstream.Consumer
	requests []*ledger.Request
	jobs     []uuid.UUID
	count    int
}

// historyRound is how many entries are chosen by the same state.
const historyRound = 100

// appendHistory appends at least n entries and returns the last one's sequence.
func appendHistory(w *world, seed uint64, n int) uint64 {
	w.t.Helper()
	h := &history{w: w, rnd: rand.New(rand.NewPCG(seed, 17)), state: ledger.NewState(0)}
	h.state.Coverage = ledger.NewCoverage()
	var err error
	h.consumer, err = w.stream.CreateConsumer(w.ctx(), jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, OptStartSeq: w.last() + 1, DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
	})
	require.NoError(w.t, err)
	h.round(h.definitions())
	for h.count < n {
		list := make([]ledger.Message, historyRound)
		for i := range list {
			list[i] = h.choose()
		}
		h.round(list)
	}
	if n >= historyEntries {
		h.requireCoverage()
	}
	return w.last()
}

// requireCoverage: a long history makes nearly all moves that the fold knows.
func (h *history) requireCoverage() {
	h.w.t.Helper()
	var made, missed int
	var missing []string
	h.state.Coverage.Each(func(move string, count int) {
		if made++; count == 0 {
			missed++
			missing = append(missing, move)
		}
	})
	h.w.t.Logf("%d of %d moves; not: %q", made-missed, made, missing)
	require.LessOrEqual(h.w.t, missed, made/3, "%q", missing)
}

// round appends entries and folds what the stream stored.
func (h *history) round(list []ledger.Message) {
	h.w.t.Helper()
	for _, m := range list {
		msg := nats.NewMsg(h.w.prefix + "." + m.Subject)
		msg.Data = m.Data // without the id: repetitions are to arrive
		_, err := h.w.js.PublishMsgAsync(msg)
		require.NoError(h.w.t, err)
	}
	<-h.w.js.PublishAsyncComplete()
	batch, err := h.consumer.Fetch(len(list), jetstream.FetchMaxWait(20*time.Second))
	require.NoError(h.w.t, err)
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		require.NoError(h.w.t, err)
		e := ledger.Decode(meta.Sequence.Stream, meta.Timestamp, m.Subject()[len(h.w.prefix)+1:], m.Data())
		if e.Job != (uuid.UUID{}) && !h.state.Knows(e.Job) {
			h.state.LoadAbsent(e.Job)
		}
		v, err := h.state.Apply(e)
		require.NoError(h.w.t, err)
		if e.Kind == ledger.JobRequest && v.Answer.Decision == ledger.Accepted {
			h.jobs = append(h.jobs, e.Job)
		}
		h.count++
	}
	require.NoError(h.w.t, batch.Error())
	h.state.Drain()
}

// historyKinds have times so short that what is due has passed within a round.
func historyKinds() []ledger.Kind {
	base := ledger.DefaultKind()
	base.Providers = []string{"a", "b", "c"}
	base.Backoff = ledger.BackoffPolicy{InitialMS: 1, MaxMS: 3, FactorMilli: 1500}
	base.AttemptTimeoutMS = 3
	plain, pure, race, long := base, base, base, base
	plain.Name, plain.StartTimeoutMS = "plain", 4
	pure.Name, pure.Effects, pure.Failover = "pure", ledger.EffectsNone, ledger.FailoverNever
	race.Name, race.Effects, race.Mode, race.HedgeAfterMS = "race", ledger.EffectsNone, ledger.ModeRace, 1
	long.Name, long.AttemptTimeoutMS, long.MaxAttempts = "long", 60_000, 2
	return []ledger.Kind{plain, pure, race, long}
}

func (h *history) definitions() []ledger.Message {
	list := []ledger.Message{(&ledger.Rules{Rules: 1}).Message()}
	for _, name := range []string{"a", "c"} { // b's verifications are of a provider that nobody defined
		list = append(list, (&ledger.ProviderDefinition{Name: name, Type: "http", Definition: h.providerText()}).Message())
	}
	for _, k := range historyKinds() {
		list = append(list, (&ledger.KindDefinition{Kind: k}).Message(), h.verification("b", k.Name))
	}
	return list
}

func (h *history) verification(provider, kind string) ledger.Message {
	v := &ledger.Verification{Provider: provider, Kind: kind, Passed: h.rnd.IntN(5) > 0, ExpiresAt: time.Now().Add(time.Hour)}
	if h.rnd.IntN(2) == 0 {
		v.Report = []byte(`{"cases": [1, 2.0]}`)
	}
	return v.Message()
}

func (h *history) choose() ledger.Message {
	switch n := h.rnd.IntN(100); {
	case n < 22 || len(h.jobs) < 5:
		return h.newRequest()
	case n < 26:
		return h.repeatedRequest()
	case n < 46:
		return h.claim()
	case n < 70:
		return h.completion()
	case n < 81:
		return h.due()
	case n < 84:
		return (&ledger.Cancel{Job: h.anyJob(), Owner: h.sometimes("acme"), Reason: "why", Actor: "someone"}).Message()
	case n < 90:
		return h.ask()
	case n < 94:
		return h.resolution()
	case n < 96:
		return h.definition()
	}
	return h.poison()
}

func (h *history) newRequest() ledger.Message {
	kinds := historyKinds()
	r := &ledger.Request{
		Owner: []string{"acme", "ümlaut", "a:b"}[h.rnd.IntN(3)], Key: fmt.Sprintf("key %d", len(h.requests)),
		Kind: kinds[h.rnd.IntN(len(kinds))].Name, Input: h.document(),
	}
	switch h.rnd.IntN(10) {
	case 0:
		r.Provider = "c"
	case 1:
		r.DelayMS = 1 + int64(h.rnd.IntN(5))
	case 2:
		r.RunAt = time.Now().Add(time.Millisecond).Truncate(time.Microsecond)
	case 3:
		r.Provider = "nobody" // refused
	}
	h.requests = append(h.requests, r)
	return r.Message()
}

// repeatedRequest is a duplicate or a conflict.
func (h *history) repeatedRequest() ledger.Message {
	r := *h.requests[h.rnd.IntN(len(h.requests))]
	if h.rnd.IntN(2) == 0 {
		r.Input = h.document()
	}
	return r.Message()
}

func (h *history) document() []byte {
	docs := []string{
		`{"b": 1.0, "a": [1e2, -0]}`, `"\ud83d\ude00 \u00e9 \/"`, `null`, `1e1000`, `12345678901234567890.10`, `[[[{}]]]`, `{"": ""}`,
		fmt.Sprintf(`{"n": %d}`, h.rnd.IntN(1000)),
	}
	return []byte(docs[h.rnd.IntN(len(docs))])
}

func (h *history) sometimes(v string) string {
	if h.rnd.IntN(4) == 0 {
		return v
	}
	return ""
}

func (h *history) anyJob() uuid.UUID {
	if h.rnd.IntN(30) == 0 {
		return ledger.JobID("nobody", "nothing")
	}
	return h.jobs[h.rnd.IntN(len(h.jobs))]
}

// attempt returns an attempt, if it can one in a wanted state, and its job.
func (h *history) attempt(wanted ...ledger.AttemptState) (*ledger.Job, *ledger.Attempt) {
	var j *ledger.Job
	var a *ledger.Attempt
	for range 30 {
		other := h.state.Job(h.jobs[h.rnd.IntN(len(h.jobs))])
		if len(other.Attempts) == 0 {
			continue
		}
		j, a = other, other.Attempts[h.rnd.IntN(len(other.Attempts))]
		for _, s := range wanted {
			if a.State == s {
				return j, a
			}
		}
	}
	if a == nil {
		return &ledger.Job{ID: h.jobs[0]}, &ledger.Attempt{Job: h.jobs[0], Number: 1, Provider: "a", JobVersion: 1}
	}
	return j, a
}

func claimText(a *ledger.Attempt, n int) string {
	return fmt.Sprintf("claim-%s-%d-%d", a.Job, a.Number, n)
}

func (h *history) claim() ledger.Message {
	_, a := h.attempt(ledger.AttemptStarting)
	c := &ledger.Claim{
		Job: a.Job, Attempt: a.Number, JobVersion: a.JobVersion, Provider: a.Provider, Claim: claimText(a, 0),
		Worker: "worker 1", StartSeq: uint64(h.count),
	}
	switch h.rnd.IntN(20) {
	case 3, 4:
		_, a = h.attempt(ledger.AttemptUnknown)
		c.Job, c.Attempt, c.JobVersion, c.Provider = a.Job, a.Number, a.JobVersion, a.Provider
		c.Claim, c.Replay, c.Worker = claimText(a, a.Replays+1), true, "reconciler"
	case 0:
		c.Claim = claimText(a, 1)
	case 1:
		c.JobVersion++
	case 2:
		c.Provider = "c"
	}
	return c.Message()
}

func (h *history) completion() ledger.Message {
	_, a := h.attempt(ledger.AttemptRunning, ledger.AttemptUnknown)
	c := &ledger.Completion{
		Job: a.Job, Attempt: a.Number, JobVersion: a.JobVersion, Provider: a.Provider, Claim: claimText(a, a.Replays),
		Outcome: ledger.OutcomeSucceeded, Result: h.document(), ProviderRef: h.sometimes("ref-1"),
	}
	switch h.rnd.IntN(12) {
	case 0, 1, 2, 3:
		c.Outcome, c.Result = ledger.OutcomeFailed, nil
		c.Failure = h.failure()
		if h.rnd.IntN(3) == 0 {
			c.Failure.RetryAfterMS = 2
		}
	case 4:
		c.Outcome, c.Result = ledger.OutcomeUnsent, nil
	case 5, 6:
		c.Outcome, c.Result, c.Failure = ledger.OutcomeUnknown, nil, ledger.Failure{Class: "timeout", Message: "no answer", Executed: true}
	case 7:
		c.Claim = claimText(a, 1)
	case 8:
		c.Result = []byte(`{"twice": 1, "twice": 2}`)
	}
	if h.rnd.IntN(3) == 0 {
		c.Usage = []byte(`{"tokens": 12, "cost": 0.50}`)
	}
	return c.Message()
}

func (h *history) failure() ledger.Failure {
	reaches := []ledger.Reach{"", ledger.ReachRequest, ledger.ReachProvider, ledger.ReachTransient, ledger.ReachTransient}
	return ledger.Failure{
		Class: "broken", Message: h.sometimes("the provider said no"), Executed: h.rnd.IntN(3) == 0,
		Reach: reaches[h.rnd.IntN(len(reaches))],
	}
}

// due echoes a due time that holds, has been handled or has not come.
func (h *history) due() ledger.Message {
	for range 30 {
		j := h.state.Job(h.jobs[h.rnd.IntN(len(h.jobs))])
		if at, attempt := j.NextDue(); !at.IsZero() && at.Before(time.Now()) {
			return (&ledger.Due{Job: j.ID, Attempt: attempt, Due: at}).Message()
		}
	}
	_, a := h.attempt()
	d := &ledger.Due{Job: a.Job, Attempt: a.Number, Due: a.DueAt}
	if a.DueAt.IsZero() {
		d.Due = time.Now().Add(-time.Second)
	}
	return d.Message()
}

func (h *history) ask() ledger.Message {
	a := &ledger.AttemptAsk{Job: h.anyJob(), Key: fmt.Sprint("again ", h.rnd.IntN(3)), Force: h.rnd.IntN(2) == 0, Actor: "operator"}
	a.Provider = []string{"", "a", "b", "c", "nobody"}[h.rnd.IntN(5)]
	a.Owner = h.sometimes("acme")
	return a.Message()
}

func (h *history) resolution() ledger.Message {
	_, a := h.attempt(ledger.AttemptUnknown)
	r := &ledger.Resolution{Job: a.Job, Attempt: a.Number, As: ledger.OutcomeCancelled, Reason: "asked the provider", Actor: "operator"}
	switch h.rnd.IntN(5) {
	case 3, 4:
		_, a = h.attempt(ledger.AttemptRunning)
		r.Job, r.Attempt, r.As, r.Worker = a.Job, a.Number, ledger.OutcomeUnknown, "worker 1"
	case 0:
		r.As, r.Result = ledger.OutcomeSucceeded, h.document()
	case 1:
		r.As, r.Failure = ledger.OutcomeFailed, h.failure()
	}
	return r.Message()
}

func (h *history) definition() ledger.Message {
	kinds := historyKinds()
	k := kinds[h.rnd.IntN(len(kinds))]
	switch h.rnd.IntN(5) {
	case 3:
		return (&ledger.ProviderBrake{Name: k.Providers[h.rnd.IntN(3)], Paused: true, Reason: h.sometimes("slow"), Actor: "operator"}).Message()
	case 4:
		return (&ledger.ProviderBrake{Name: k.Providers[h.rnd.IntN(3)], Actor: "operator"}).Message()
	case 0:
		k.MaxAttempts = 2 + h.rnd.IntN(3)
		return (&ledger.KindDefinition{Kind: k, Actor: "operator"}).Message()
	case 1:
		return (&ledger.ProviderDefinition{Name: k.Providers[2], Type: "exec", Definition: h.providerText()}).Message()
	}
	return h.verification(k.Providers[h.rnd.IntN(3)], []string{k.Name, "nothing"}[h.rnd.IntN(2)])
}

func (h *history) providerText() []byte {
	return fmt.Appendf(nil, `{"n": %d.0, "reconcile": {"replay": true}}`, h.rnd.IntN(2))
}

func (h *history) poison() ledger.Message {
	p := poisons[h.rnd.IntN(len(poisons))]
	return ledger.Message{Subject: p.subject, Data: []byte(p.body)}
}
