package workertest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

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

func repeatsAClaim(b *bench) {
	b.follow(func(n int, _ *ledger.Claim, _ ledger.Answer) move {
		if n <= 2 {
			return mute
		}
		return tell
	})
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
	b.follow(func(_ int, _ *ledger.Claim, a ledger.Answer) move {
		if a.Decision == ledger.Accepted || a.Decision == ledger.Duplicate {
			return mute
		}
		return tell
	})
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
	b.follow(func(_ int, c *ledger.Claim, _ ledger.Answer) move {
		if c.Claim == b.claims[0].Claim { // a script runs with the lock held
			return absent
		}
		return tell
	})
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
		b.refuse(&refusal)
		s := b.start(fmt.Sprint(i), "answer", ample)
		b.said(s, "+ACK")
		require.Len(b.t, b.claimed(i+1), i+1)
	}
	b.settled()
	b.refuse(nil)
	b.goesOn()
	require.Equal(b.t, 1, b.endpoint.total())
}

// A new consumer begins at the stream's first start.
func losesItsConsumer(b *bench) {
	b.run()
	s := b.start("order", "answer", ample)
	b.ends(s, ledger.OutcomeSucceeded)
	b.said(s, "+ACK")
	require.NoError(b.t, b.js.DeleteConsumer(b.ctx(), b.stream, "worker-"+provider))
	b.goesOn()
	b.settled()
	b.ends(s, ledger.OutcomeSucceeded)
	require.Equal(b.t, 1, b.endpoint.count(s.id))
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
	const timeoutMS = 400
	b.allow(timeoutMS)
	b.follow(func(int, *ledger.Claim, ledger.Answer) move { return later })
	b.run()
	s := b.start("order", "answer", ample)
	b.claimed(1)
	over := time.NewTimer(timeoutMS * time.Millisecond)
	<-over.C
	b.sayNow()
	c := b.ends(s, ledger.OutcomeUnsent)
	require.False(b.t, c.Failure.Executed)
	b.said(s, "+ACK")
	b.settled()
	require.Zero(b.t, b.endpoint.total())
}

// A worker that cannot judge the result by the contract under which the job was
// accepted does not begin.
func hasNoSuchContract(b *bench) {
	b.run()
	s := b.startUnder("order", "answer", "sha256:nobody-has-it", ample)
	c := b.ends(s, ledger.OutcomeUnsent)
	require.Equal(b.t, "contract_mismatch", c.Failure.Class)
	require.False(b.t, c.Failure.Executed)
	b.said(s, "+ACK")
	b.settled()
	require.Zero(b.t, b.endpoint.total())
}

// The answer comes in time, but the worker does not get to read it.
func wasFrozen(b *bench) {
	const timeoutMS = 1_000
	b.allow(timeoutMS)
	b.follow(func(int, *ledger.Claim, ledger.Answer) move { return later })
	p := b.run()
	s := b.start("order", "answer", ample)
	b.claimed(1)
	p.freeze()
	b.sayNow()
	over := time.NewTimer(timeoutMS * time.Millisecond)
	<-over.C
	p.thaw()
	b.ends(s, ledger.OutcomeUnsent)
	require.Zero(b.t, b.endpoint.total())
}
