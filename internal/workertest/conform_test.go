package workertest

import (
	"fmt"
	"maps"
	"slices"
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
	"goes on when its consumer is deleted":      losesItsConsumer,
	"leaves what it cannot read":                leavesWhatItCannotRead,
	"calls nothing when it is too late":         isTooLate,
	"calls nothing when it was frozen":          wasFrozen,
	"calls nothing under a contract it has not": hasNoSuchContract,
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

// ends waits for the attempt's completion, which may be stored more than once, and
// insists on its outcome.
func (b *bench) ends(s *begun, outcome ledger.Outcome) *ledger.Completion {
	b.t.Helper()
	var found []*ledger.Completion
	testenv.Eventually(b.t, patience, func() (bool, string) {
		found = b.completionsOf(s)
		return len(found) > 0, "no completion of " + s.id
	})
	for _, c := range found {
		require.Equal(b.t, found[0], c, "two completions that do not say the same")
	}
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

func crashesDuringTheCall(b *bench) {
	p := b.run()
	s := b.start("order", "stall", ample)
	b.endpoint.called(s.id)
	b.crash(p)
	b.comesBack(s)
	require.Equal(b.t, 1, b.endpoint.count(s.id))
}

func crashesWithAClaim(b *bench) {
	b.follow(func(n int, _ *ledger.Claim, _ ledger.Answer) move {
		if n == 1 {
			return mute
		}
		return tell
	})
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
