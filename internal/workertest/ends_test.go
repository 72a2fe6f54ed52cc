package workertest

import (
	"fmt"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

func endsAtTheDeadline(b *bench) {
	b.run()
	s := b.start("order", "stall", 3_000)
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
	const timeoutMS = 4_000
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
	for _, a := range b.saidSoFar(s) {
		require.NotEqual(b.t, "+ACK", a.what, "it cannot know yet that the completion is stored")
	}
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
	require.Empty(b.t, b.completionsOf(left))
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
	b.follow(func(int, *ledger.Claim, ledger.Answer) move { return mute })
	p := b.run()
	s := b.start("order", "answer", ample)
	b.claimed(1)
	p.signal(syscall.SIGTERM)
	require.Equal(b.t, b.claimed(1)[0].Claim, b.ends(s, ledger.OutcomeUnsent).Claim)
	require.Zero(b.t, p.ended(patience))
	require.Zero(b.t, b.endpoint.total())
}
