package workertest

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// checks are what every worker has to pass, each on a ledger of its own.
var checks = map[string]func(b *bench){
	"carries out an attempt":                    carriesOut,
	"says how calls end":                        saysHowCallsEnd,
	"knows what was not sent":                   knowsWhatWasNotSent,
	"claims anew when a start comes again":      claimsAnew,
	"calls nothing again after a crash":         crashesDuringTheCall,
	"calls nothing after a crash with a claim":  crashesWithAClaim,
	"makes one call for each attempt":           callsOnce,
	"repeats a claim whose decision is lost":    repeatsAClaim,
	"gives up a claim that was accepted":        givesUpAnAcceptedClaim,
	"gives up a claim that was never stored":    givesUpAClaimThatIsNotThere,
	"calls nothing when its claim is refused":   forgetsWhatIsNotItsOwn,
	"leaves what it cannot read":                leavesWhatItCannotRead,
	"calls nothing when it is too late":         isTooLate,
	"calls nothing when it was frozen":          wasFrozen,
	"ends a call at the deadline":               endsAtTheDeadline,
	"completes late rather than not":            completesLate,
	"completes until it is acknowledged":        completesUntilAcknowledged,
	"stops what it is told to":                  stops,
	"keeps a start from coming again":           reportsProgress,
	"lets calls finish when it is told to exit": exitsAfterItsCalls,
	"ends calls when its grace is over":         exitsAfterItsGrace,
	"gives up a claim when it is told to exit":  exitsDuringAClaim,
}

func conform(t *testing.T, worker contestant) {
	command, environment := worker(t)
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := playLedger(t)
			checks[name](&bench{
				ledgerPlay: l, endpoint: newEndpoint(t), proxy: testenv.NewProxy(t, l.url),
				command: command, environment: environment, concurrency: 4, graceMS: ample,
			})
		})
	}
	for _, name := range slices.Sorted(maps.Keys(withRealLedger)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withRealLedger[name](newRealLedger(t, command, environment))
		})
	}
}

// A bench is a ledger and an endpoint with a worker between them.
type bench struct {
	*ledgerPlay
	endpoint             *endpoint
	proxy                *testenv.Proxy // between the worker and NATS
	command, environment []string
	concurrency, graceMS int
}

// run starts a worker.
func (b *bench) run() *process {
	b.t.Helper()
	return launch(b.t, b.command, append([]string{
		"NATS_URL=" + b.proxy.URL(b.url), "LEDGER_STREAM=" + b.stream, "LEDGER_PREFIX=" + b.prefix, "LEDGER_PROVIDER=" + provider,
		fmt.Sprint("LEDGER_CONCURRENCY=", b.concurrency), fmt.Sprint("LEDGER_GRACE_MS=", b.graceMS), "WORK_URL=" + b.endpoint.url,
	}, b.environment...))
}

// ends waits for the attempt's only completion and insists on its outcome.
func (b *bench) ends(s *begun, outcome ledger.Outcome) *ledger.Completion {
	b.t.Helper()
	var found []*ledger.Completion
	testenv.Eventually(b.t, patience, func() (bool, string) {
		found = b.completionsOf(s)
		return len(found) > 0, "no completion of " + s.id
	})
	require.Len(b.t, found, 1)
	require.Equal(b.t, outcome, found[0].Outcome, "%+v", found[0].Failure)
	require.Equal(b.t, s.JobVersion, found[0].JobVersion)
	return found[0]
}

func carriesOut(b *bench) {
	b.run()
	s := b.start("order", "answer", ample)
	c := b.ends(s, ledger.OutcomeSucceeded)
	require.Equal(b.t, result, string(c.Result), "the result is kept as it came")
	claims := b.claimed(1)
	require.Len(b.t, claims, 1)
	require.Equal(b.t, claims[0].Claim, c.Claim)
	require.Equal(b.t, s.seq, claims[0].StartSeq)
	require.Equal(b.t, s.JobVersion, claims[0].JobVersion)
	require.NotEmpty(b.t, claims[0].Worker)
	require.GreaterOrEqual(b.t, len(claims[0].Claim), 22, "a claim of 128 random bits")
	call := b.endpoint.last(s.id)
	require.JSONEq(b.t, fmt.Sprintf(`{"job_id":%q,"attempt":1,"kind":"echo","input":{"do":"answer"}}`, s.Job), call.body)
	require.Equal(b.t, s.Job.String(), call.key)
	b.said(s, "+ACK")
	b.settled()
	require.Equal(b.t, 1, b.endpoint.count(s.id))

	// Workers in other languages share the consumer.
	config := b.consumer().Config
	require.Equal(b.t, b.prefix+".attempt.start."+provider, config.FilterSubject)
	require.Equal(b.t, jetstream.AckExplicitPolicy, config.AckPolicy)
	require.Equal(b.t, 30*time.Second, config.AckWait)
	require.Equal(b.t, -1, config.MaxDeliver)
}

// Whatever is not proved is unknown.
func saysHowCallsEnd(b *bench) {
	endings := map[string]struct {
		outcome  ledger.Outcome
		executed bool
		reach    ledger.Reach
	}{
		"close": {ledger.OutcomeUnknown, true, ""}, "500": {ledger.OutcomeUnknown, true, ""},
		"302": {ledger.OutcomeUnknown, true, ""}, "307": {ledger.OutcomeUnknown, true, ""}, "202": {ledger.OutcomeUnknown, true, ""},
		"503":   {ledger.OutcomeUnknown, true, ""}, // without a Retry-After
		"422":   {ledger.OutcomeFailed, false, ledger.ReachRequest},
		"403":   {ledger.OutcomeFailed, false, ledger.ReachProvider},
		"429":   {ledger.OutcomeFailed, false, ledger.ReachTransient},
		"prose": {ledger.OutcomeFailed, true, ledger.ReachTransient},
	}
	b.run()
	starts := map[string]string{}
	for do := range endings {
		starts[b.start(do, do, ample).id] = do
	}
	for _, c := range b.completed(len(endings)) {
		id := attemptID(c.Job, c.Attempt)
		expected := endings[starts[id]]
		require.Equal(b.t, expected.outcome, c.Outcome, starts[id])
		require.Equal(b.t, expected.executed, c.Failure.Executed, starts[id])
		require.Equal(b.t, expected.reach, c.Failure.Reach, starts[id])
		require.Equal(b.t, 1, b.endpoint.count(id), starts[id])
	}
	b.settled()
	require.Equal(b.t, len(endings), b.endpoint.total())
}

func knowsWhatWasNotSent(b *bench) {
	b.endpoint.url = fmt.Sprintf("http://127.0.0.1:%d/run", testenv.FreePort(b.t))
	b.run()
	s := b.start("order", "answer", ample)
	require.False(b.t, b.ends(s, ledger.OutcomeUnsent).Failure.Executed)
	b.said(s, "+ACK")
}

// Two deliveries of a start are two claims, of which the second is refused.
func claimsAnew(b *bench) {
	b.run()
	s := b.start("order", "stall", ample)
	b.endpoint.called(s.id)
	b.redeliver(s)
	b.claimed(2)
	b.said(s, "+ACK") // of a delivery that was not the attempt's
	again := b.start("order", "stall", ample)
	b.said(again, "+ACK")
	claims := b.claimed(3)
	require.Len(b.t, claims, 3)
	require.NotEqual(b.t, claims[0].Claim, claims[1].Claim)
	require.NotEqual(b.t, claims[0].Claim, claims[2].Claim)
	require.NotEqual(b.t, claims[1].Claim, claims[2].Claim)
	b.endpoint.releaseAll()
	require.Equal(b.t, b.claimed(1)[0].Claim, b.ends(s, ledger.OutcomeSucceeded).Claim)
	b.settled()
	require.Equal(b.t, 1, b.endpoint.count(s.id))
}

func crashesDuringTheCall(b *bench) {
	p := b.run()
	s := b.start("order", "stall", ample)
	b.endpoint.called(s.id)
	b.crash(p)
	b.comesBack(s)
	require.Equal(b.t, 1, b.endpoint.count(s.id))
}

func crashesWithAClaim(b *bench) {
	b.script = func(n int, _ *ledger.Claim, _ ledger.Answer) move {
		if n == 1 {
			return mute
		}
		return tell
	}
	p := b.run()
	s := b.start("order", "answer", ample)
	b.claimed(1)
	b.crash(p)
	b.comesBack(s)
	require.Zero(b.t, b.endpoint.count(s.id))
}

// crash kills a worker, and waits until the server knows that it is gone: until
// then it would deliver to it.
func (b *bench) crash(p *process) {
	b.t.Helper()
	p.kill()
	testenv.Eventually(b.t, patience, func() (bool, string) {
		n := b.consumer().NumWaiting
		return n == 0, fmt.Sprintf("%d pulls of a dead worker are waiting", n)
	})
}

// comesBack starts a worker after a crash, which is given the start again. The
// claim is its predecessor's, so that it may do nothing but acknowledge it.
func (b *bench) comesBack(s *begun) {
	b.t.Helper()
	b.run()
	b.redeliver(s)
	claims := b.claimed(2)
	require.Len(b.t, claims, 2)
	require.NotEqual(b.t, claims[0].Claim, claims[1].Claim, "claims are not kept over a crash")
	b.said(s, "+ACK")
	b.settled()
	b.goesOn()
	require.Empty(b.t, b.completionsOf(s), "only the dead one could have said how it ended")
}

// goesOn insists that the worker still works.
func (b *bench) goesOn() {
	b.t.Helper()
	b.ends(b.start("what comes next", "answer", ample), ledger.OutcomeSucceeded)
}

// Two workers, and every start twice and more.
func callsOnce(b *bench) {
	const attempts = 60
	b.run()
	b.run()
	var starts []*begun
	for n := range attempts {
		s := b.start(fmt.Sprint(n), "answer", ample)
		b.start(fmt.Sprint(n), "answer", ample) // the same once more
		starts = append(starts, s)
	}
	b.claimed(1)
	for _, s := range starts { // those that are being worked on
		b.redeliver(s)
	}
	found := b.completed(attempts)
	b.settled()
	for _, c := range found {
		require.Equal(b.t, ledger.OutcomeSucceeded, c.Outcome)
	}
	for _, s := range starts {
		require.Equal(b.t, 1, b.endpoint.count(s.id))
	}
	require.Len(b.t, b.completed(attempts), attempts)
}

func repeatsAClaim(b *bench) {
	b.script = func(n int, _ *ledger.Claim, _ ledger.Answer) move {
		if n <= 2 {
			return mute
		}
		return tell
	}
	b.run()
	s := b.start("order", "answer", ample)
	c := b.ends(s, ledger.OutcomeSucceeded)
	claims := b.claimed(3)
	require.Len(b.t, claims, 3)
	for _, claim := range claims {
		require.Equal(b.t, claims[0], claim)
	}
	require.Equal(b.t, claims[0].Claim, c.Claim)
	b.settled()
	require.Equal(b.t, 1, b.endpoint.count(s.id))
}

// The claim was accepted, and nobody says so: the attempt must not be left
// running with nobody.
func givesUpAnAcceptedClaim(b *bench) {
	b.script = func(_ int, _ *ledger.Claim, a ledger.Answer) move {
		if a.Decision == ledger.Accepted || a.Decision == ledger.Duplicate {
			return mute
		}
		return tell
	}
	b.run()
	s := b.start("order", "answer", 1_500)
	c := b.ends(s, ledger.OutcomeUnsent)
	first := b.claimed(1)[0].Claim
	require.Equal(b.t, first, c.Claim)
	b.redeliver(s)
	testenv.Eventually(b.t, patience, func() (bool, string) {
		claims := b.claimed(1)
		return claims[len(claims)-1].Claim != first, "the start does not come again"
	})
	b.said(s, "+ACK")
	b.settled()
	require.Zero(b.t, b.endpoint.total())
}

// The claim was never stored, so that the attempt still waits for a worker: the
// start must not be acknowledged, or nobody would ever work on it.
func givesUpAClaimThatIsNotThere(b *bench) {
	b.script = func(_ int, c *ledger.Claim, _ ledger.Answer) move {
		if c.Claim == b.claims[0].Claim { // a script runs with the lock held
			return absent
		}
		return tell
	}
	b.run()
	s := b.start("order", "answer", 1_500)
	require.Equal(b.t, ledger.OutcomeUnsent, b.completed(1)[0].Outcome)
	for _, a := range b.said(s, "-NAK") {
		require.NotEqual(b.t, "+ACK", a.what)
	}
	require.Zero(b.t, b.endpoint.total())
	b.redeliver(s)
	c := b.completed(2)[1]
	require.Equal(b.t, ledger.OutcomeSucceeded, c.Outcome)
	require.NotEqual(b.t, b.claimed(1)[0].Claim, c.Claim)
	b.said(s, "+ACK")
	require.Equal(b.t, 1, b.endpoint.count(s.id))
}

func forgetsWhatIsNotItsOwn(b *bench) {
	b.run()
	for i, refusal := range []ledger.Answer{
		{Decision: ledger.Refused, Reason: ledger.AlreadyClaimed}, {Decision: ledger.Refused, Reason: ledger.AttemptEnded},
		{Decision: ledger.Refused, Reason: ledger.UnknownAttempt}, {Decision: ledger.Refused, Reason: "a_reason_of_a_newer_ledger"},
		{Decision: ledger.Conflict}, {Decision: ledger.Malformed, Reason: ledger.BadEntry}, {Decision: "a decision of a newer ledger"},
	} {
		b.mu.Lock()
		b.refusal = &refusal
		b.mu.Unlock()
		s := b.start(fmt.Sprint(i), "answer", ample)
		b.said(s, "+ACK")
		require.Len(b.t, b.claimed(i+1), i+1)
	}
	b.settled()
	b.mu.Lock()
	b.refusal = nil
	b.mu.Unlock()
	b.goesOn()
	require.Equal(b.t, 1, b.endpoint.total())
}

// A start of a version that the worker does not know is for a newer one.
func leavesWhatItCannotRead(b *bench) {
	b.run()
	for _, body := range []string{`{"v":2,"job":"of a newer ledger"}`, "rubbish"} {
		ack, err := b.js.Publish(b.ctx(), b.prefix+".attempt.start."+provider, []byte(body))
		require.NoError(b.t, err)
		for _, a := range b.said(&begun{seq: ack.Sequence}, "-NAK") {
			require.Equal(b.t, "-NAK", a.what, "it is given back, not dropped")
		}
	}
	b.goesOn()
	require.Len(b.t, b.claimed(1), 1)
}

// The answer to the claim says how long the attempt may take, and comes when
// that is over.
func isTooLate(b *bench) {
	b.timeoutMS = 400
	b.script = func(int, *ledger.Claim, ledger.Answer) move { return later }
	b.run()
	s := b.start("order", "answer", ample)
	b.claimed(1)
	over := time.NewTimer(time.Duration(b.timeoutMS) * time.Millisecond)
	<-over.C
	b.sayNow()
	c := b.ends(s, ledger.OutcomeUnsent)
	require.False(b.t, c.Failure.Executed)
	b.said(s, "+ACK")
	b.settled()
	require.Zero(b.t, b.endpoint.total())
}

// The answer comes in time, but the worker does not get to read it.
func wasFrozen(b *bench) {
	b.timeoutMS = 1_000
	b.script = func(int, *ledger.Claim, ledger.Answer) move { return later }
	p := b.run()
	s := b.start("order", "answer", ample)
	b.claimed(1)
	p.freeze()
	b.sayNow()
	over := time.NewTimer(time.Duration(b.timeoutMS) * time.Millisecond)
	<-over.C
	p.thaw()
	b.ends(s, ledger.OutcomeUnsent)
	require.Zero(b.t, b.endpoint.total())
}

func endsAtTheDeadline(b *bench) {
	b.run()
	s := b.start("order", "stall", 1_000)
	b.endpoint.called(s.id)
	b.endpoint.givenUp(s.id)
	b.ends(s, ledger.OutcomeUnknown)
	b.said(s, "+ACK")
	b.settled()
	require.Equal(b.t, 1, b.endpoint.count(s.id))
}

// The call gives its result in time, but the broker is away until the attempt's
// time is over: by then it is unknown, and only this worker knows better.
func completesLate(b *bench) {
	const timeoutMS = 2_000
	b.run()
	s := b.start("order", "stall", timeoutMS)
	b.endpoint.called(s.id)
	b.proxy.Cut()
	b.endpoint.releaseAll()
	over := time.NewTimer(timeoutMS * time.Millisecond)
	<-over.C
	require.Empty(b.t, b.completed(0))
	b.proxy.Restore()
	c := b.ends(s, ledger.OutcomeSucceeded)
	require.Equal(b.t, result, string(c.Result))
	b.redeliver(s) // the acknowledgement, too, may have been lost
	b.settled()
	require.Equal(b.t, 1, b.endpoint.count(s.id))
}

// Acknowledgements are lost: what is stored, and what of it the server has seen,
// the worker cannot know. Until it does, it says the same again.
func completesUntilAcknowledged(b *bench) {
	b.run()
	s := b.start("order", "stall", ample)
	b.endpoint.called(s.id)
	b.proxy.HoldAnswers()
	b.endpoint.releaseAll()
	b.completed(1)
	require.Empty(b.t, b.saidSoFar(s), "it is acknowledged before the worker can know that the completion is stored")
	b.proxy.Drop() // and with the connection, the acknowledgement
	b.proxy.Restore()
	found := b.completed(2)
	for _, c := range found {
		require.Equal(b.t, found[0], c)
	}
	require.Equal(b.t, ledger.OutcomeSucceeded, found[0].Outcome)
	b.said(s, "+ACK")
	require.Equal(b.t, 1, b.endpoint.count(s.id))
}

func stops(b *bench) {
	b.run()
	s, other := b.start("order", "stall", ample), b.start("another", "stall", ample)
	b.endpoint.called(s.id)
	b.endpoint.called(other.id)
	for _, body := range []string{
		"rubbish", "{}", "null", fmt.Sprintf(`{"job":%q,"attempt":2}`, s.Job), fmt.Sprintf(`{"job":%q,"attempt":1}`, s.Job),
	} {
		require.NoError(b.t, b.nc.Publish(b.prefix+"."+ledger.StopSubject(provider), []byte(body)))
	}
	b.endpoint.givenUp(s.id)
	b.ends(s, ledger.OutcomeUnknown) // nobody knows how far it had come
	b.endpoint.releaseAll()
	c := b.completed(2)[1]
	require.Equal(b.t, other.id, attemptID(c.Job, c.Attempt))
	require.Equal(b.t, ledger.OutcomeSucceeded, c.Outcome)
	b.settled()
	require.Equal(b.t, 2, b.endpoint.total())
}

func reportsProgress(b *bench) {
	b.run()
	s := b.start("order", "stall", ample)
	b.endpoint.called(s.id)
	b.said(s, "+WPI")
	b.endpoint.releaseAll()
	b.ends(s, ledger.OutcomeSucceeded)
	b.settled()
	require.Len(b.t, b.claimed(1), 1)
}

func exitsAfterItsCalls(b *bench) {
	p := b.run()
	s := b.start("order", "stall", ample)
	b.endpoint.called(s.id)
	p.signal(syscall.SIGTERM)
	left := b.leftToOthers()
	b.endpoint.releaseAll()
	b.ends(s, ledger.OutcomeSucceeded)
	require.Zero(b.t, p.ended(patience))
	b.said(s, "+ACK")
	require.Equal(b.t, 1, b.endpoint.count(s.id))
	require.False(b.t, b.isClaimed(left))
	for _, a := range b.saidSoFar(left) {
		require.Equal(b.t, "-NAK", a.what)
	}
}

// leftToOthers appends starts until one is given back, or not fetched at all: the
// worker has understood that it must exit.
func (b *bench) leftToOthers() *begun {
	b.t.Helper()
	for n := 0; ; n++ {
		s, taken := b.start(fmt.Sprint("probe ", n), "answer", ample), false
		testenv.Eventually(b.t, patience, func() (bool, string) {
			taken = b.isClaimed(s)
			return taken || len(b.saidSoFar(s)) > 0 || b.isNotFetched(), "the worker has the start and does nothing with it"
		})
		if !taken {
			return s
		}
	}
}

func (b *bench) isClaimed(s *begun) bool {
	for _, c := range b.claimed(0) {
		if attemptID(c.Job, c.Attempt) == s.id {
			return true
		}
	}
	return false
}

func exitsAfterItsGrace(b *bench) {
	b.graceMS = 200
	p := b.run()
	s := b.start("order", "stall", ample)
	b.endpoint.called(s.id)
	p.signal(syscall.SIGTERM)
	b.endpoint.givenUp(s.id)
	b.ends(s, ledger.OutcomeUnknown)
	require.Zero(b.t, p.ended(patience))
	b.said(s, "+ACK")
	require.Equal(b.t, 1, b.endpoint.count(s.id))
}

func exitsDuringAClaim(b *bench) {
	b.script = func(int, *ledger.Claim, ledger.Answer) move { return mute }
	p := b.run()
	s := b.start("order", "answer", ample)
	b.claimed(1)
	p.signal(syscall.SIGTERM)
	require.Equal(b.t, b.claimed(1)[0].Claim, b.ends(s, ledger.OutcomeUnsent).Claim)
	require.Zero(b.t, p.ended(patience))
	require.Zero(b.t, b.endpoint.total())
}
