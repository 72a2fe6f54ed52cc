package ledger_test

import (
	"encoding/json"
	"slices"
	"time"

	"jobledger/ledger"
)

// twinCall is one entry on its way through the twin.
type twinCall struct {
	t *twin
	e *ledger.Entry
	j *twinJob // nil: none, or none that the speaker may see
	// quiet says that the entry is not to be noted on the job's row.
	quiet  bool
	wisher string // the provider that wishes
	wish   int64  // milliseconds that the provider of the failure at hand asks for
	out    twinAnswer
}

// twinAnswer is what the twin says of an entry.
type twinAnswer struct {
	decision ledger.Decision
	reason   ledger.Reason
	attempt  int
	timeout  int64
	state    ledger.JobState
	version  int64
	started  []*twinAttempt
	stopped  []*twinAttempt
	announce bool
	visible  *twinJob // the job that the speaker may hear of
}

// apply folds an entry.
func (t *twin) apply(e *ledger.Entry) twinAnswer {
	c := &twinCall{t: t, e: e, j: t.jobs[e.Job]}
	if e.Fault != nil {
		c.out.decision, c.out.reason = ledger.Malformed, e.Fault.Reason
		return c.out
	}
	before, was := rowsOfTwin(c.j), ledger.JobState("")
	if c.j != nil {
		was = c.j.state()
	}
	c.rule()
	if j := t.jobs[e.Job]; j != nil {
		c.note(j, before)
		is := j.state()
		c.out.announce = is != was && (is == ledger.JobUnknown || j.settled())
	}
	if c.j != nil {
		c.out.visible, c.out.state, c.out.version = c.j, c.j.state(), c.j.version
	}
	return c.out
}

// note notes the entry on the rows that differ from before.
func (c *twinCall) note(j *twinJob, before rows) {
	after := rowsOfTwin(j)
	if after.job != before.job && !c.quiet {
		j.seqs, j.updated = append(j.seqs, c.e.Seq), c.e.At
	}
	for i, a := range after.attempts {
		if i >= len(before.attempts) || a != before.attempts[i] {
			j.attempts[i].seqs = append(j.attempts[i].seqs, c.e.Seq)
		}
	}
}

func (c *twinCall) say(d ledger.Decision, r ledger.Reason) { c.out.decision, c.out.reason = d, r }
func (c *twinCall) accept()                                { c.say(ledger.Accepted, "") }
func (c *twinCall) repeat()                                { c.say(ledger.Duplicate, "") }
func (c *twinCall) refuse(r ledger.Reason)                 { c.say(ledger.Refused, r) }

func (c *twinCall) rule() {
	switch b := c.e.Body.(type) {
	case *ledger.Rules:
		c.rules(b)
	case *ledger.KindDefinition:
		c.defineKind(b)
	case *ledger.ProviderDefinition:
		c.defineProvider(b)
	case *ledger.ProviderBrake:
		c.brake(b)
	case *ledger.Verification:
		if c.t.latestKind(b.Kind) == nil {
			c.refuse(ledger.UnknownKind)
			return
		}
		c.t.proofs = append(c.t.proofs, b)
		c.change()
	case *ledger.Request:
		c.request(b)
	case *ledger.Cancel:
		c.cancel(b)
	case *ledger.AttemptAsk:
		c.ask(b)
	case *ledger.Claim:
		c.claim(b)
	case *ledger.Completion:
		c.complete(b)
	case *ledger.Resolution:
		c.resolve(b)
	case *ledger.Due:
		c.due(b)
	}
}

func (c *twinCall) rules(b *ledger.Rules) {
	switch {
	case b.Rules < c.t.rules:
		c.refuse(ledger.Forbidden)
	case b.Rules == c.t.rules:
		c.repeat()
	default:
		c.t.rules = b.Rules
		c.accept()
	}
}

func (c *twinCall) defineKind(b *ledger.KindDefinition) {
	text := string(b.Kind.AppendJSON(nil))
	if old := c.t.latestKind(b.Kind.Name); old != nil && old.text == text {
		c.repeat()
		return
	}
	c.t.kinds = append(c.t.kinds, twinKind{c.e.Seq, b.Kind, text})
	c.accept()
}

func (c *twinCall) defineProvider(b *ledger.ProviderDefinition) {
	digest, err := ledger.ProviderDigest(b.Type, b.Definition)
	if err != nil {
		panic(err)
	}
	if c.t.providers[b.Name] == digest {
		c.repeat()
		return
	}
	c.t.providers[b.Name] = digest
	var promise struct{ Reconcile struct{ Replay bool } }
	if err := json.Unmarshal(b.Definition, &promise); err != nil {
		panic(err)
	}
	c.t.promises[b.Name] = promise.Reconcile.Replay
	c.change()
}

// change takes note of a change of providers, which is later than the one before.
func (c *twinCall) change() {
	c.accept()
	later := c.t.changed.Add(time.Microsecond)
	if c.t.changed = c.e.At; c.t.changed.Before(later) {
		c.t.changed = later
	}
}

func (c *twinCall) brake(b *ledger.ProviderBrake) {
	_, defined := c.t.providers[b.Name]
	switch {
	case !defined:
		c.refuse(ledger.UnknownProvider)
	case c.t.paused[b.Name] == b.Paused:
		c.repeat()
	default:
		c.t.paused[b.Name] = b.Paused
		c.change()
	}
}

func (c *twinCall) request(b *ledger.Request) {
	if c.j != nil {
		if c.j.intent == twinIntent(b) {
			c.repeat()
		} else {
			c.say(ledger.Conflict, ledger.IdempotencyConflict)
		}
		return
	}
	def := c.t.latestKind(b.Kind)
	if def == nil {
		c.refuse(ledger.UnknownKind)
		return
	}
	if b.Provider != "" && !slices.Contains(def.kind.Providers, b.Provider) {
		c.refuse(ledger.UnknownProvider)
		return
	}
	c.j = &twinJob{
		id: twinJobID(b.Owner, b.Key), owner: b.Owner, key: b.Key, intent: twinIntent(b), input: string(b.Input),
		kind: def.kind, kindSeq: def.seq, provider: b.Provider, runAt: b.RunAt,
		created: c.e.At, createdSeq: c.e.Seq, version: 1,
	}
	c.t.jobs[c.j.id] = c.j
	c.accept()
	if b.DelayMS > 0 {
		c.j.runAt = c.e.At.Add(time.Duration(b.DelayMS) * time.Millisecond)
	}
	if c.j.runAt.After(c.e.At) {
		c.j.wait, c.j.due = ledger.Scheduled, c.j.runAt
		return
	}
	c.carryOut(c.next(), false)
}

func (c *twinCall) start(provider string, why ledger.AttemptReason, key string) {
	j := c.j
	j.wait, j.due = "", c.hedgeDue(provider)
	a := &twinAttempt{
		number: len(j.attempts) + 1, provider: provider, why: why, key: key, version: j.version, asked: c.e.At,
	}
	if j.kind.StartTimeoutMS > 0 {
		a.startBy = c.e.At.Add(time.Duration(j.kind.StartTimeoutMS) * time.Millisecond)
	}
	j.attempts = append(j.attempts, a)
	c.out.started = append(c.out.started, a)
	if c.out.attempt == 0 {
		c.out.attempt = a.number
	}
}

func (c *twinCall) cancel(b *ledger.Cancel) {
	switch {
	case c.hidden(b.Owner):
	case c.j.isCancelled:
		c.repeat()
	case c.j.winner != 0:
		c.refuse(ledger.JobFinished)
	default:
		c.accept()
		c.j.isCancelled, c.j.cancelled, c.j.cancelledBy = true, c.e.At, b.Actor
		c.j.version++
		c.j.wait, c.j.due = "", time.Time{}
		c.drop()
	}
}

// hidden refuses to speak of a job that is not there for the speaker.
func (c *twinCall) hidden(owner string) bool {
	if c.j != nil && owner != "" && owner != c.j.owner {
		c.j = nil
	}
	if c.j == nil {
		c.refuse(ledger.UnknownJob)
	}
	return c.j == nil
}

// drop is what becomes of the attempts in flight when the job has ended.
func (c *twinCall) drop() {
	for _, a := range c.j.attempts {
		switch a.state() {
		case ledger.AttemptStarting:
			a.end, a.ended = ledger.AttemptCancelled, c.e.At
		case ledger.AttemptRunning, ledger.AttemptUnknown:
			c.out.stopped = append(c.out.stopped, a)
		}
	}
}

func (c *twinCall) ask(b *ledger.AttemptAsk) {
	if c.hidden(b.Owner) {
		return
	}
	j := c.j
	for _, a := range j.attempts {
		if a.key == b.Key {
			c.out.attempt = a.number
			c.repeat()
			if b.Provider != "" && b.Provider != a.provider {
				c.say(ledger.Conflict, ledger.IdempotencyConflict)
			}
			return
		}
	}
	provider := b.Provider
	if provider == "" {
		provider = j.first()
		if n := len(j.attempts); n > 0 {
			provider = j.attempts[n-1].provider
		}
	}
	c.grant(b, provider)
}

func (c *twinCall) grant(b *ledger.AttemptAsk, provider string) {
	j := c.j
	if j.winner != 0 || j.isCancelled {
		c.refuse(ledger.JobFinished)
		return
	}
	if !slices.Contains(j.kind.Providers, provider) {
		c.refuse(ledger.UnknownProvider)
		return
	}
	for _, a := range j.attempts {
		if a.end == "" && (j.kind.Mode == ledger.ModeExclusive || a.provider == provider) {
			c.out.attempt = a.number
			c.refuse(ledger.AttemptInFlight)
			return
		}
	}
	if b.Force && b.Owner != "" {
		c.refuse(ledger.Forbidden)
		return
	}
	if !b.Force && c.t.paused[provider] {
		c.refuse(ledger.PausedProvider)
		return
	}
	if !b.Force && provider != j.first() && !c.t.proven(provider, &j.kind, c.e.At) {
		c.refuse(ledger.ProviderNotVerified)
		return
	}
	if len(j.attempts) >= 1000 {
		c.refuse(ledger.TooManyAttempts)
		return
	}
	c.accept()
	if j.failed {
		j.failed, j.failure, j.closedAt, j.closedSeq = false, ledger.Failure{}, time.Time{}, 0
		j.version++
	}
	c.start(provider, ledger.Manual, b.Key)
}

// find looks up the attempt that an entry names.
func (c *twinCall) find(number int, provider string) *twinAttempt {
	c.out.attempt = number
	if c.hidden("") {
		return nil
	}
	for _, a := range c.j.attempts {
		if a.number == number {
			if provider != "" && provider != a.provider {
				c.refuse(ledger.WrongProvider)
				return nil
			}
			return a
		}
	}
	c.refuse(ledger.UnknownAttempt)
	return nil
}
