package ledger_test

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"jobledger/ledger"
)

// What may follow an ending, in words: start, hold, prove, fail.
type twinNext struct {
	do       string
	provider string
	why      ledger.AttemptReason
	waitMS   int64
	failure  ledger.Failure
}

// follow decides what comes next if nothing is in flight any more.
func (c *twinCall) follow() {
	if !c.j.settled() && !c.j.busy() {
		c.carryOut(c.next(), false)
	}
}

func (c *twinCall) carryOut(n twinNext, now bool) {
	j := c.j
	switch {
	case n.do == "start" && (now || n.waitMS == 0) && c.t.paused[n.provider]:
		c.quiet = j.wait == ledger.ProviderPaused
		j.wait, j.due = ledger.ProviderPaused, c.t.changed
	case n.do == "start" && (now || n.waitMS == 0):
		c.start(n.provider, n.why, "")
	case n.do == "start":
		j.wait, j.due = ledger.Backoff, c.e.At.Add(time.Duration(n.waitMS)*time.Millisecond)
	case n.do == "hold":
		j.wait, j.due = ledger.Held, time.Time{}
	case n.do == "prove":
		c.quiet = j.wait == ledger.FailoverUnverified // a mere look leaves no trace but the next due time
		j.wait, j.due = ledger.FailoverUnverified, c.e.At.Add(time.Minute)
	case n.do == "fail":
		j.failed, j.failure, j.closedAt, j.closedSeq = true, n.failure, c.e.At, c.e.Seq
		j.failure.Reach = ""
		j.wait, j.due = "", time.Time{}
	}
}

// next is the policy. Attempts that were cancelled or superseded say nothing.
// Those before the latest start by a person count only towards the bounds.
func (c *twinCall) next() twinNext {
	j := c.j
	telling := slices.DeleteFunc(slices.Clone(j.attempts), func(a *twinAttempt) bool {
		return a.end != ledger.AttemptFailed && a.end != ledger.AttemptUnsent && a.end != ledger.AttemptExpired
	})
	person := 0
	for _, a := range j.attempts {
		if a.why == ledger.Manual && a.end != ledger.AttemptCancelled {
			person = a.number
		}
	}
	failures, idle := 0, 0
	var recent []*twinAttempt
	for _, a := range telling {
		if a.end == ledger.AttemptFailed {
			failures++
		} else {
			idle++
		}
		if a.number >= person {
			recent = append(recent, a)
		}
	}
	if len(recent) == 0 {
		if other := c.other(recent, j.first()); c.t.paused[j.first()] && c.mayGo(other) {
			return twinNext{do: "start", provider: other, why: ledger.Failover}
		}
		return twinNext{do: "start", provider: j.first(), why: ledger.Initial}
	}
	last := recent[len(recent)-1]
	for _, a := range slices.Backward(recent) {
		if a.end == ledger.AttemptFailed && a.failure.Reach == ledger.ReachRequest {
			return twinNext{do: "fail", failure: a.failure}
		}
	}
	for _, a := range slices.Backward(recent) {
		if a.end == ledger.AttemptFailed && a.failure.Executed && j.kind.Effects == ledger.EffectsExternal {
			return twinNext{do: "fail", failure: a.failure}
		}
	}
	if idle >= 20 || len(j.attempts) >= 1000 {
		return twinNext{do: "hold"}
	}
	if failures >= j.kind.MaxAttempts {
		return twinNext{do: "fail", failure: last.failure}
	}
	return c.choose(recent, last)
}

// choose picks the provider of the next automatic start.
func (c *twinCall) choose(recent []*twinAttempt, last *twinAttempt) twinNext {
	j := c.j
	out := func(p string) bool { return twinOut(recent, p) }
	other := c.other(recent, last.provider)
	never := j.kind.Failover == ledger.FailoverNever
	streak := 0
	for _, a := range slices.Backward(recent) {
		if a.provider != last.provider {
			break
		}
		streak++
	}
	stay := !out(last.provider) && c.allowed(last.provider)
	leave := c.mayGo(other) && (streak >= 2 || c.t.paused[last.provider])
	switch {
	case stay && !leave:
		return c.begin(recent, last, last.provider)
	case other != "":
		return c.begin(recent, last, other)
	case !out(last.provider), !never && slices.ContainsFunc(j.kind.Providers, func(p string) bool { return !out(p) }):
		return twinNext{do: "prove"}
	}
	return twinNext{do: "fail", failure: last.failure}
}

func twinOut(recent []*twinAttempt, p string) bool {
	return slices.ContainsFunc(recent, func(a *twinAttempt) bool {
		return a.provider == p && a.end == ledger.AttemptFailed && a.failure.Reach == ledger.ReachProvider
	})
}

func (c *twinCall) allowed(p string) bool {
	return p == c.j.first() || c.t.proven(p, &c.j.kind, c.e.At)
}

// mayGo reports whether there is another provider, and no brake on it.
func (c *twinCall) mayGo(other string) bool { return other != "" && !c.t.paused[other] }

// other is the next provider in the kind's order, round, that may take over:
// the first that is not paused, or else the first.
func (c *twinCall) other(recent []*twinAttempt, after string) string {
	k := c.j.kind
	if k.Failover == ledger.FailoverNever {
		return ""
	}
	at := slices.Index(k.Providers, after)
	round := append(slices.Clone(k.Providers[at+1:]), k.Providers[:at]...)
	round = slices.DeleteFunc(round, func(p string) bool { return twinOut(recent, p) || !c.allowed(p) })
	if i := slices.IndexFunc(round, c.mayGo); i >= 0 {
		return round[i]
	}
	return append(round, "")[0]
}

// begin plans a start: at once on a provider that recent has not seen.
func (c *twinCall) begin(recent []*twinAttempt, last *twinAttempt, provider string) twinNext {
	n := twinNext{do: "start", provider: provider, why: ledger.Failover}
	if provider == last.provider {
		n.why = ledger.Retry
	}
	if slices.ContainsFunc(recent, func(a *twinAttempt) bool { return a.provider == provider }) {
		n.waitMS = c.backoff(len(recent), provider)
	}
	return n
}

func (c *twinCall) backoff(n int, provider string) int64 {
	b := c.j.kind.Backoff
	ms := b.InitialMS
	for i := 1; i < n && ms < b.MaxMS; i++ {
		ms = ms * b.FactorMilli / 1000
	}
	ms = min(ms, b.MaxMS)
	seed := binary.BigEndian.AppendUint32(slices.Clone(c.j.id[:]), uint32(len(c.j.attempts)))
	sum := sha256.Sum256(seed)
	ms -= int64(binary.BigEndian.Uint64(sum[:8]) % uint64(ms/2+1))
	if provider != c.wisher {
		return ms
	}
	return max(ms, min(c.wish, b.MaxMS))
}

// hedgeDue is when the race's next provider starts too.
func (c *twinCall) hedgeDue(starting string) time.Time {
	j := c.j
	if j.kind.Mode != ledger.ModeRace || j.counted()+1 >= j.kind.MaxAttempts {
		return time.Time{}
	}
	for _, p := range j.kind.Providers {
		if p != starting && !j.used(p) {
			return c.e.At.Add(time.Duration(j.kind.HedgeAfterMS) * time.Millisecond)
		}
	}
	return time.Time{}
}

// counted is how many attempts count for a race's max_attempts: all but those
// that provably never ran.
func (j *twinJob) counted() (n int) {
	for _, a := range j.attempts {
		if a.end != ledger.AttemptExpired && a.end != ledger.AttemptUnsent && a.end != ledger.AttemptCancelled {
			n++
		}
	}
	return n
}

func (j *twinJob) used(p string) bool {
	return slices.ContainsFunc(j.attempts, func(a *twinAttempt) bool { return a.provider == p })
}
