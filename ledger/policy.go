package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"
)

// consecutiveTries is how many attempts in a row a provider gets at transient
// failures before a verified one takes its turn.
const consecutiveTries = 2

// action is what follows when nothing of a job is in flight.
type action int

const (
	actStart action = iota + 1
	actHold
	actAwaitProof
	actFail
)

// plan is the policy's answer to an ending.
type plan struct {
	act      action
	provider string
	reason   AttemptReason
	waitMS   int64
	failure  Failure // with actFail: what the job fails with
}

// follow decides what comes after an attempt has ended or become unknown,
// unless the job is settled or another attempt is still at it.
func (st *step) follow() {
	if st.job.State.Settled() || st.rest() {
		return
	}
	st.carryOut(st.plan(), false)
}

// rest brings the job's state in line with the attempts in flight and reports
// whether there are any.
func (st *step) rest() bool {
	unknown := false
	for _, a := range st.job.Attempts {
		switch a.State {
		case AttemptStarting, AttemptRunning:
			return true
		case AttemptUnknown:
			unknown = true
		}
	}
	if unknown && st.job.State != JobUnknown {
		st.touchJob()
		st.s.moveJob(st.job, jobLostSight)
		st.announce()
	}
	return unknown
}

// carryOut does what the plan says; with now set its waiting time is over.
func (st *step) carryOut(p plan, now bool) {
	j := st.job
	later := p.act == actStart && p.waitMS > 0 && !now
	paused := p.act == actStart && !later && st.s.defs.paused(p.provider)
	switch {
	case p.act == actAwaitProof && j.StateReason == FailoverUnverified:
		st.lookAgain(st.e.At.Add(FailoverRecheck))
		return
	case paused && j.StateReason == ProviderPaused:
		st.lookAgain(st.s.defs.changedAt)
		return
	}
	st.touchJob()
	switch {
	case later:
		st.wait(Backoff, st.e.At.Add(milliseconds(p.waitMS)))
	case paused:
		st.wait(ProviderPaused, st.s.defs.changedAt)
	case p.act == actStart:
		st.start(jobStarted, p.provider, p.reason)
	case p.act == actHold:
		st.wait(Held, zeroTime)
	case p.act == actAwaitProof:
		st.wait(FailoverUnverified, st.e.At.Add(FailoverRecheck))
	case p.act == actFail:
		st.s.moveJob(j, jobFailed)
		j.StateReason, j.DueAt = "", zeroTime
		p.failure.Reach = "" // of the attempt, not of the job
		j.Failure, j.CompletedAt, j.CompletedSeq = p.failure, st.e.At, st.e.Seq
		st.announce()
	}
}

// lookAgain sets when to look once more for what the job waits for. It leaves
// no sequence on the row: a job may wait for months, and its row must not grow
// with that. A job whose provider is paused is due since the latest change of a
// provider or a verification: the clock leaves it alone until there is another.
func (st *step) lookAgain(due time.Time) {
	st.s.moveJob(st.job, jobWaits)
	st.job.DueAt = due
	st.markJob()
}

func (st *step) wait(reason StateReason, due time.Time) {
	st.s.moveJob(st.job, jobWaits)
	st.job.StateReason, st.job.DueAt = reason, due
}

// plan decides from the job's attempts and its kind alone, so that it gives the
// same answer when a back-off ends as when it began. Only attempts since the
// latest one that a person started count for what is out: the person knew.
func (st *step) plan() plan {
	j, k := st.job, st.kind
	w := summarize(j.Attempts)
	switch {
	case w.last == nil: // nothing was tried yet
		return st.first(w)
	case w.fatal != nil:
		return plan{act: actFail, failure: w.fatal.Failure}
	case w.executed != nil && k.Effects == EffectsExternal:
		return plan{act: actFail, failure: w.executed.Failure}
	case w.neverRan >= MaxNeverRan || len(j.Attempts) >= MaxAttemptsPerJob:
		return plan{act: actHold}
	case w.ran >= k.MaxAttempts:
		return plan{act: actFail, failure: w.last.Failure}
	case w.out[w.last.Provider]:
		return st.failover(w)
	case !st.mayStart(w.last.Provider): // a person forced it, or its proof is gone
		return st.unproven(w)
	}
	provider := w.last.Provider
	if w.streak >= consecutiveTries || st.s.defs.paused(provider) {
		provider = st.elsewhere(w, provider)
	}
	return st.startOn(w, provider)
}

// first plans the first start, past a provider that is paused if there is a way.
func (st *step) first(w window) plan {
	p := plan{act: actStart, provider: firstChoice(st.job, st.kind), reason: Initial}
	if st.s.defs.paused(p.provider) {
		if next := st.elsewhere(w, p.provider); next != p.provider {
			p.provider, p.reason = next, Failover
		}
	}
	return p
}

// elsewhere returns the provider that takes over from one that could go on: a
// verified one that is not paused, if the kind fails over; else the same.
func (st *step) elsewhere(w window, from string) string {
	if st.kind.Failover == FailoverVerified {
		if next := st.nextVerified(w, from); next != "" && !st.s.defs.paused(next) {
			return next
		}
	}
	return from
}

// failover leaves a provider that is out.
func (st *step) failover(w window) plan {
	if st.kind.Failover == FailoverNever {
		return plan{act: actFail, failure: w.last.Failure}
	}
	if next := st.nextVerified(w, w.last.Provider); next != "" {
		return st.startOn(w, next)
	}
	for _, p := range st.kind.Providers {
		if !w.out[p] {
			return plan{act: actAwaitProof}
		}
	}
	return plan{act: actFail, failure: w.last.Failure}
}

// unproven leaves a provider that may not be started on without a person, or
// waits for its proof.
func (st *step) unproven(w window) plan {
	if st.kind.Failover == FailoverVerified {
		if next := st.nextVerified(w, w.last.Provider); next != "" {
			return st.startOn(w, next)
		}
	}
	return plan{act: actAwaitProof}
}

// nextVerified returns the first provider after the given one, in the kind's
// order and round, that is not out, not paused, and may start. If only paused
// ones are left it returns one of them, and if none are, "".
func (st *step) nextVerified(w window, after string) string {
	providers := st.kind.Providers
	from := max(slices.Index(providers, after), 0)
	next := ""
	for i := 1; i < len(providers); i++ {
		p := providers[(from+i)%len(providers)]
		switch {
		case w.out[p] || !st.mayStart(p):
		case !st.s.defs.paused(p):
			return p
		default:
			next = p
		}
	}
	return next
}

// startOn plans a start: at once on a provider that was not tried yet, after
// the back-off on one that was.
func (st *step) startOn(w window, provider string) plan {
	p := plan{act: actStart, provider: provider, reason: Retry}
	if provider != w.last.Provider {
		p.reason = Failover
	}
	if w.tried[provider] {
		b := st.kind.Backoff
		wait := b.wait(w.ended)
		wait -= jitter(st.job, wait/2)
		if p.waitMS = wait; provider == st.asker {
			p.waitMS = max(wait, min(st.retryAfterMS, b.MaxMS))
		}
	}
	return p
}

// jitter returns a number from 0 to most that depends on the job and on how
// many attempts it has, and on nothing else.
func jitter(j *Job, most int64) int64 {
	var seed [20]byte
	copy(seed[:], j.ID[:])
	binary.BigEndian.PutUint32(seed[16:], uint32(len(j.Attempts)))
	sum := sha256.Sum256(seed[:])
	return int64(binary.BigEndian.Uint64(sum[:8]) % uint64(most+1))
}

// window sums up the attempts of a job for the policy.
type window struct {
	last     *Attempt // the latest that was not cancelled or beaten
	fatal    *Attempt // one whose failure no provider would avoid
	executed *Attempt // one that failed after the work was done
	ran      int      // of the whole job: attempts that count for max_attempts
	neverRan int      // of the whole job
	ended    int      // since the latest manual start
	streak   int      // the latest attempts in a row on last's provider
	out      map[string]bool
	tried    map[string]bool
}

func summarize(attempts []*Attempt) window {
	w := window{out: map[string]bool{}, tried: map[string]bool{}}
	from := 0
	for i, a := range attempts {
		if a.Reason == Manual && a.State != AttemptCancelled {
			from = i
		}
	}
	for i, a := range attempts {
		switch {
		case a.State.neverRan():
			w.neverRan++
		case a.State == AttemptFailed:
			w.ran++
		default: // cancelled and superseded attempts say nothing about a provider
			continue
		}
		if i < from {
			continue
		}
		w.add(a)
	}
	return w
}

func (w *window) add(a *Attempt) {
	w.ended++
	w.tried[a.Provider] = true
	if w.last != nil && w.last.Provider == a.Provider {
		w.streak++
	} else {
		w.streak = 1
	}
	w.last = a
	if a.State != AttemptFailed {
		return
	}
	if a.Failure.Executed {
		w.executed = a
	}
	switch a.Failure.Reach {
	case ReachRequest:
		w.fatal = a
	case ReachProvider:
		w.out[a.Provider] = true
	}
}

// hedgeAt returns when the next provider of a race starts too if the one that
// starts now has brought no result; zero if there is nothing to hedge with.
func (st *step) hedgeAt(starting string) time.Time {
	if st.kind.Mode != ModeRace || st.nextHedge(starting, anyone) == "" {
		return zeroTime
	}
	return st.e.At.Add(milliseconds(st.kind.HedgeAfterMS))
}

// anyone passes every provider.
func anyone(string) bool { return true }

// nextHedge returns the first provider, in the kind's order, that the race has
// not used and that passes; starting counts as used. "" if there is none, or if
// max_attempts is reached.
func (st *step) nextHedge(starting string, passes func(provider string) bool) string {
	used, count := map[string]bool{starting: true}, 0
	if starting != "" {
		count++
	}
	for _, a := range st.job.Attempts {
		used[a.Provider] = true
		if !a.State.neverRan() && a.State != AttemptCancelled {
			count++
		}
	}
	if count >= st.kind.MaxAttempts {
		return ""
	}
	for _, p := range st.kind.Providers {
		if !used[p] && passes(p) {
			return p
		}
	}
	return ""
}

// hedge starts the next verified provider of a race beside those at work. There
// is one that was not used, or nothing would be due; if it is paused or unproven
// just now, the race looks again in a while, as long as somebody runs. That
// leaves no sequence on the row.
func (st *step) hedge() {
	ready := func(p string) bool { return st.mayStart(p) && !st.s.defs.paused(p) }
	if p := st.nextHedge("", ready); p != "" {
		st.start(jobHedged, p, Hedge)
		return
	}
	if st.job.State == JobUnknown { // that may last; a person looks at it anyway
		st.touchJob()
		st.job.DueAt = zeroTime
		return
	}
	st.job.DueAt = st.e.At.Add(FailoverRecheck)
	st.markJob()
}
