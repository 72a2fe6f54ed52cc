package ledger_test

import (
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// request asks for a new job, or for one of before in the same or other words.
func (w *world) request() error {
	owner, key := one(w.dice, worldOwners...), "k"+strconv.Itoa(1+w.n(5))
	b := w.plainRequest(owner, key)
	if w.percent(8) {
		b.Kind = "nokind"
	}
	switch w.n(10) {
	case 0:
		b.Provider = one(w.dice, "p1", "p2", "p3", "p9")
	case 1, 2:
		b.DelayMS = int64(1 + w.n(5000))
	case 3:
		b.RunAt = w.now.Add(time.Duration(w.n(8000)-2000) * time.Millisecond).Truncate(time.Millisecond)
	}
	if w.percent(30) {
		b.Input = []byte(one(w.dice, `{"s":"\u00e9","n":1.0}`, `{"n":2,"s":"é"}`, `{"n":1,"s":"e"}`))
	}
	if j := w.run.twin.jobs[twinJobID(owner, key)]; j != nil && w.percent(60) {
		// The same intent, as a retry would say it.
		parts := strings.SplitN(j.intent, "|", 5)
		delay, _ := strconv.ParseInt(parts[2], 10, 64)
		runAt, _ := time.Parse(time.RFC3339Nano, parts[3])
		*b = ledger.Request{Owner: owner, Key: key, Kind: parts[0], Provider: parts[1], DelayMS: delay, Input: []byte(parts[4])}
		if runAt.Year() > 1 {
			b.RunAt = runAt.Add(one(w.dice, 0, 0, 0, time.Microsecond))
		}
	}
	b.Producer = one(w.dice, "", "", "web")
	return w.say(b)
}

// attempt picks an attempt of a job, rather one in flight.
func (w *world) attempt() (uuid.UUID, *twinJob, *twinAttempt) {
	id, j := w.job()
	if j == nil || len(j.attempts) == 0 {
		return id, j, nil
	}
	if w.percent(85) {
		for range 4 {
			if a := j.attempts[w.n(len(j.attempts))]; a.end == "" {
				return id, j, a
			}
		}
	}
	return id, j, j.attempts[w.n(len(j.attempts))]
}

// work is what a worker does with an attempt: claim it, or complete it.
func (w *world) work() error {
	id, j, a := w.attempt()
	if a == nil {
		return w.say(&ledger.Claim{Job: id, Attempt: 1, JobVersion: 1, Provider: "p1", Claim: w.newClaim(), StartSeq: 9})
	}
	if late, b := w.straggler(); b != nil && w.percent(40) {
		return w.say(w.completion(late, b))
	}
	if a.end == "" && a.lost && w.percent(25) || w.percent(3) {
		return w.say(w.replay(id, a))
	}
	if a.claim == "" && w.percent(95) || w.percent(6) {
		return w.say(w.claim(id, a))
	}
	if j.settled() || a.end == "" || w.percent(30) {
		return w.say(w.completion(id, a))
	}
	return w.request()
}

func (w *world) newClaim() string { return "claim-" + strconv.FormatUint(w.next(), 16) + "----------" }

func (w *world) claim(id uuid.UUID, a *twinAttempt) *ledger.Claim {
	b := &ledger.Claim{
		Job: id, Attempt: a.number, JobVersion: a.version, Provider: a.provider, Claim: w.newClaim(),
		Worker: "w" + strconv.Itoa(w.n(3)), StartSeq: uint64(1 + w.n(90)),
	}
	switch w.n(30) {
	case 5, 6: // at the very last moment, or past it
		if !a.startBy.IsZero() {
			w.now = a.startBy
		}
	case 0:
		b.JobVersion++
	case 1:
		b.Attempt = a.number%3 + 1
	case 2:
		b.Provider = one(w.dice, worldProvider...)
	case 3, 4:
		if a.claim != "" {
			b.Claim = a.claim
		}
	}
	return b
}

// replay is a reconciler's claim on an attempt of which the end is not known.
func (w *world) replay(id uuid.UUID, a *twinAttempt) *ledger.Claim {
	b := w.claim(id, a)
	b.Replay, b.StartSeq, b.Worker = true, max(a.startSeq, 1), one(w.dice, "rec", "w1")
	return b
}

func (w *world) completion(id uuid.UUID, a *twinAttempt) *ledger.Completion {
	b := &ledger.Completion{
		Job: id, Attempt: a.number, JobVersion: a.version, Provider: a.provider, Claim: a.claim,
		Outcome: one(w.dice, ledger.OutcomeSucceeded, ledger.OutcomeSucceeded, ledger.OutcomeFailed, ledger.OutcomeFailed,
			ledger.OutcomeFailed, ledger.OutcomeUnsent, ledger.OutcomeUnsent, ledger.OutcomeUnknown),
	}
	if b.Outcome == ledger.OutcomeSucceeded {
		b.Result = []byte(one(w.dice, `{"a":1,"b":2}`, `{"b":2.0,"a":1}`, `null`, `[1]`))
	} else if w.percent(92) {
		b.Failure = w.failure(b.Outcome)
	}
	if w.percent(25) {
		b.ProviderRef = one(w.dice, "ref-1", "ref-2")
	}
	if w.percent(20) {
		b.Usage = []byte(one(w.dice, `{"tokens":7}`, `{"tokens":9}`))
	}
	switch w.n(30) {
	case 0:
		b.JobVersion++
	case 1:
		b.Attempt = a.number%3 + 1
	case 2:
		b.Provider = one(w.dice, worldProvider...)
	case 3:
		b.Claim = w.newClaim()
	}
	if b.Claim == "" {
		b.Claim = w.newClaim()
	}
	return b
}

func (w *world) failure(o ledger.Outcome) ledger.Failure {
	f := ledger.Failure{
		Class: one(w.dice, "refused", "contract"), Message: one(w.dice, "", "no"),
		Reach: one(w.dice, "", ledger.ReachTransient, ledger.ReachTransient, ledger.ReachProvider, ledger.ReachRequest),
	}
	if f.Reach == ledger.ReachRequest && w.percent(50) {
		f.Reach = ledger.ReachTransient
	}
	f.Executed = o != ledger.OutcomeUnsent && w.percent(25)
	if w.percent(20) {
		f.RetryAfterMS = one[int64](w.dice, 10, 2000, 100_000)
	}
	return f
}

// clock is the projector's clock: mostly right, at times early, late or stale.
func (w *world) clock() error {
	id, j := w.job()
	if j == nil {
		return w.say(&ledger.Due{Job: id, Due: w.now})
	}
	at, attempt := j.due, 0
	for _, a := range j.attempts {
		if !a.due().IsZero() && (at.IsZero() || a.due().Before(at) || w.percent(20)) {
			at, attempt = a.due(), a.number
		}
	}
	if at.IsZero() {
		if w.percent(70) {
			return w.work()
		}
		at = w.now.Add(-time.Duration(w.n(2)) * time.Second)
	}
	switch r := w.n(100); {
	case r < 8: // too early
		if at.After(w.now) && w.percent(50) {
			w.now = at.Add(-time.Microsecond)
		}
	case r < 12: // stale
		at = at.Add(-time.Second)
	case r < 15:
		attempt = w.n(4)
	case w.now.Before(at) && r < 60:
		w.now = at
	case w.now.Before(at):
		w.now = at.Add(time.Duration(w.n(700)) * time.Millisecond)
	}
	return w.say(&ledger.Due{Job: id, Attempt: attempt, Due: at})
}

// lost says that a worker is gone, mostly the one that holds the attempt.
func (w *world) lost() error {
	id, _, a := w.attempt()
	b := &ledger.Resolution{
		Job: id, Attempt: 1, As: ledger.OutcomeUnknown, Worker: "w1", Reason: "silent for 5s", Actor: "presence",
	}
	if a != nil {
		b.Attempt = a.number
		if a.worker != "" && w.percent(85) {
			b.Worker = a.worker
		}
	}
	return w.say(b)
}

func (w *world) resolve() error {
	if w.percent(30) {
		return w.lost()
	}
	id, j, a := w.attempt()
	if j != nil && w.percent(60) {
		for _, b := range j.attempts {
			if b.state() == ledger.AttemptUnknown {
				a = b
			}
		}
	}
	as := one(w.dice, ledger.OutcomeSucceeded, ledger.OutcomeFailed, ledger.OutcomeCancelled)
	if late, b := w.straggler(); b != nil && w.percent(70) {
		id, a = late, b
		as = one(w.dice, as, ledger.OutcomeSucceeded)
	}
	b := &ledger.Resolution{
		Job: id, Attempt: 1 + w.n(3), As: as, Reason: one(w.dice, "looked", "asked them"), Actor: "op",
		IfUnknown: w.percent(20),
	}
	if a != nil {
		b.Attempt = a.number
	}
	switch {
	case b.As == ledger.OutcomeSucceeded:
		b.Result = []byte(one(w.dice, `{"a":1,"b":2}`, `{"b":2,"a":1.0}`, `3`))
	case b.As == ledger.OutcomeFailed && w.percent(40):
		b.Failure = w.failure(ledger.OutcomeFailed)
	}
	return w.say(b)
}

func (w *world) ask() error {
	id, j := w.job()
	for _, other := range w.ids {
		if k := w.run.twin.jobs[other]; k != nil && k.state() == ledger.JobUnknown && w.percent(30) {
			id, j = other, k
		}
	}
	b := &ledger.AttemptAsk{
		Job: id, Key: "click-" + strconv.Itoa(w.n(30)), Provider: one(w.dice, "", "p1", "p1", "p2", "p3"), Actor: "op",
		Force: w.percent(40),
	}
	if proofs := w.run.twin.proofs; len(proofs) > 0 && w.percent(8) { // when a proof is about to expire
		if v := proofs[w.n(len(proofs))]; v.ExpiresAt.Sub(w.now) < time.Minute {
			w.now, b.Provider, b.Force = v.ExpiresAt, v.Provider, false
		}
	}
	if w.percent(5) {
		b.Provider = "p9"
	}
	if j != nil && w.percent(40) {
		b.Owner = one(w.dice, j.owner, j.owner, j.owner, "mallory")
	}
	return w.say(b)
}

func (w *world) cancel() error {
	id, j := w.job()
	b := &ledger.Cancel{Job: id, Reason: "enough", Actor: "alice"}
	if j != nil && w.percent(60) {
		b.Owner = one(w.dice, j.owner, j.owner, "mallory")
	}
	return w.say(b)
}

// redefine changes a definition in the middle of things, or says one again.
func (w *world) redefine() error {
	switch w.n(8) {
	case 6:
		return w.say(&ledger.ProviderBrake{Name: one(w.dice, worldProvider...), Paused: true, Reason: one(w.dice, "", "slow"), Actor: "op"})
	case 7:
		return w.say(&ledger.ProviderBrake{Name: one(w.dice, worldProvider...), Actor: "op"})
	case 0:
		return w.say(&ledger.Rules{Rules: 1})
	case 1:
		i := w.n(len(w.kinds))
		w.kinds[i] = w.newKind(w.kinds[i].Name)
		return w.say(&ledger.KindDefinition{Kind: w.kinds[i]})
	case 2:
		return w.say(&ledger.KindDefinition{Kind: w.kinds[w.n(len(w.kinds))]})
	case 3:
		return w.say(w.providerDefinition(one(w.dice, worldProvider...), w.n(3)))
	default:
		return w.say(w.verification(one(w.dice, worldProvider...)))
	}
}

// noise is what goes wrong on the way: an entry that is stored twice, a start,
// or something that is no entry at all.
func (w *world) noise() error {
	switch w.n(9) {
	case 8:
		return w.append("job.cancel", []byte(`{"v":1,"reason":"`+strings.Repeat("x", 5000)+`"}`))
	case 0:
		return w.append("job.request", []byte(one(w.dice, `{`, `{"v":1}`, `{"v":2}`, `{"v":1,"owner":" x"}`, ``)))
	case 1:
		return w.append(one(w.dice, "attempt.claim.p1", "attempt.complete.p1", "attempt.resolve", "clock.due"), []byte(`{"v":1,"x":1}`))
	case 2:
		return w.append("no.such.entry", []byte(`{"v":1}`))
	case 3:
		return w.append("attempt.start.p1", []byte(`{"v":1}`))
	default:
		again := w.said[w.n(len(w.said))]
		return w.append(again.subject, again.data)
	}
}
