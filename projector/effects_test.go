package projector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// answers collects the decisions that are published on an inbox, by sequence.
type answers struct {
	t     *testing.T
	inbox string
	sub   *nats.Subscription
}

func (w *world) answers() *answers {
	w.t.Helper()
	return w.answersOn(w.nc.NewInbox())
}

func (w *world) answersOn(inbox string) *answers {
	w.t.Helper()
	sub, err := w.nc.SubscribeSync(inbox)
	require.NoError(w.t, err)
	require.NoError(w.t, w.nc.Flush())
	return &answers{w.t, inbox, sub}
}

func (a *answers) next() ledger.Answer {
	a.t.Helper()
	m, err := a.sub.NextMsg(20 * time.Second)
	require.NoError(a.t, err)
	require.Empty(a.t, m.Reply, "decisions are published without a reply subject")
	answer, err := ledger.ParseAnswer(m.Data)
	require.NoError(a.t, err)
	return answer
}

// all returns the answers to the entries given, in any order; each comes once.
func (a *answers) all(seqs ...uint64) map[uint64]ledger.Answer {
	a.t.Helper()
	found := map[uint64]ledger.Answer{}
	for range seqs {
		answer := a.next()
		require.NotContains(a.t, found, answer.Seq)
		found[answer.Seq] = answer
	}
	for _, seq := range seqs {
		require.Contains(a.t, found, seq)
	}
	return found
}

// TestAnswersAfterRecovery asks for the decision on entries of every kind, then
// has all effects performed again: what the tables tell is what the fold said.
func TestAnswersAfterRecovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	stop := w.project()
	in := w.answers()
	var seqs []uint64
	ask := func(b ledger.Body) { seqs = append(seqs, w.ask(b, in.inbox)) }
	id := func(key string) uuid.UUID { return ledger.JobID("acme", key) }

	ask(&ledger.Rules{Rules: 1}) // again it would be a duplicate, which the tables do not tell apart
	ask(echoKind())
	ask(echoKind())
	ask(&ledger.ProviderDefinition{Name: "fallback", Type: "exec", Definition: []byte(`{"n":1}`)})
	digest, err := ledger.ProviderDigest("exec", []byte(`{"n":1}`))
	require.NoError(t, err)
	ask(&ledger.Verification{Provider: "fallback", Kind: "echo", ProviderDigest: digest.String(), Passed: true, ExpiresAt: time.Now().Add(time.Hour)})
	ask(&ledger.Verification{Provider: "fallback", Kind: "nothing", Passed: true, ExpiresAt: time.Now().Add(time.Hour)})
	race := echoKind(func(k *ledger.Kind) {
		k.Name, k.Effects, k.Mode, k.HedgeAfterMS = "race", ledger.EffectsNone, ledger.ModeRace, 1
	})
	ask(race)
	ask(&ledger.Verification{Provider: "fallback", Kind: "race", ProviderDigest: digest.String(), Passed: true, ExpiresAt: time.Now().Add(time.Hour)})

	// One that is started, claimed twice and done, with all that is too late.
	ask(request("done"))
	ask(request("done"))
	other := request("done")
	other.Input = []byte("2")
	ask(other)
	ask(claimOf(id("done"), 1))
	ask(claimOf(id("done"), 1))
	second := claimOf(id("done"), 1)
	second.Claim = "another claim of it"
	ask(second)
	ask(completionOf(id("done"), 1, ledger.OutcomeSucceeded))
	ask(completionOf(id("done"), 1, ledger.OutcomeSucceeded))
	ask(completionOf(id("done"), 1, ledger.OutcomeFailed))
	ask(&ledger.Cancel{Job: id("done")})
	ask(&ledger.AttemptAsk{Job: id("done"), Key: "again"})

	// One that fails over at once: the completion answers for its own attempt.
	ask(request("failing over"))
	ask(claimOf(id("failing over"), 1))
	failed := completionOf(id("failing over"), 1, ledger.OutcomeFailed)
	failed.Failure = ledger.Failure{Class: "out", Reach: ledger.ReachProvider}
	ask(failed)

	// One that is claimed and asked for again by its claimant.
	ask(request("running"))
	ask(claimOf(id("running"), 1))
	ask(claimOf(id("running"), 1))
	ask(&ledger.AttemptAsk{Job: id("running"), Key: "again"})

	// One that is cancelled while it waits for a worker, and a stranger's try.
	ask(request("cancelled"))
	ask(&ledger.Cancel{Job: id("cancelled"), Owner: "stranger"})
	ask(&ledger.Cancel{Job: id("cancelled")})
	ask(&ledger.Cancel{Job: id("cancelled")})
	ask(&ledger.AttemptAsk{Job: id("cancelled"), Owner: "stranger", Key: "again"})

	// One that is resolved, and one that a person starts again.
	ask(request("resolved"))
	ask(claimOf(id("resolved"), 1))
	ask(completionOf(id("resolved"), 1, ledger.OutcomeUnknown))
	resolved := &ledger.Resolution{Job: id("resolved"), Attempt: 1, As: ledger.OutcomeCancelled, Reason: "it says so"}
	ask(resolved)
	ask(resolved)
	ask(&ledger.AttemptAsk{Job: id("resolved"), Key: "again"})
	ask(&ledger.AttemptAsk{Job: id("resolved"), Key: "again"})
	ask(&ledger.AttemptAsk{Job: id("resolved"), Key: "again", Provider: "fallback"})

	// A race whose second runner wins while the first still waits for a worker.
	r := request("race")
	r.Kind = "race"
	ask(r)
	testenv.Eventually(t, 20*time.Second, func() (bool, string) {
		j, err := NewQueries(w.pool).Job(w.ctx(), id("race"))
		return err == nil && j != nil && len(j.Attempts) == 2, fmt.Sprint("the hedge has not started: ", err)
	})
	hedge := claimOf(id("race"), 2)
	hedge.Provider = "fallback"
	ask(hedge)
	won := completionOf(id("race"), 2, ledger.OutcomeSucceeded)
	won.Provider = "fallback"
	ask(won)

	later := request("scheduled")
	later.DelayMS = 3_600_000
	ask(later)
	normal := in.all(seqs...)
	last := w.last()
	w.settled(last)
	stop()
	w.verify()
	starts := w.starts()

	_, err = w.pool.Exec(w.ctx(), "UPDATE ledger_a.checkpoints SET effects_seq = 0")
	require.NoError(t, err)
	stop = w.project()
	recovered := in.all(seqs...)
	w.settled(last)
	stop()
	latest := map[uuid.UUID]uint64{} // the last entry of a job: only there its state is what it was
	for _, seq := range seqs {
		latest[normal[seq].Job] = max(latest[normal[seq].Job], seq)
	}
	for _, seq := range seqs {
		want, got := normal[seq], recovered[seq]
		if want.State != "" && seq != latest[want.Job] {
			require.NotEmpty(t, got.State)
			want.State, want.Version = got.State, got.Version
		}
		m, err := w.stream.GetMsg(w.ctx(), seq)
		require.NoError(t, err)
		require.Equal(t, want, got, "%s %s", m.Subject, m.Data)
	}
	require.Equal(t, starts, w.starts(), "what was started is not started again")
}

// failing is an Appender that fails while it is told to.
type failing struct {
	w       *world
	broken  atomic.Bool
	refused chan struct{} // a signal for failures
}

func (w *world) failing() *failing { return &failing{w: w, refused: make(chan struct{}, 1)} }

func (f *failing) Append(ctx context.Context, m ledger.Message) (uint64, error) {
	if !f.broken.Load() {
		return f.w.Append(ctx, m)
	}
	select {
	case f.refused <- struct{}{}:
	default:
	}
	return 0, errors.New("the stream is not to be reached")
}

// TestDiedBeforeItsEffects: what was committed by a projector that died before
// the effects is started and answered by the next one, once.
func TestDiedBeforeItsEffects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.append(echoKind())
	f := w.failing()
	f.broken.Store(true)
	stop := w.project(appendTo(f))
	in := w.answers()
	const jobs = 50
	seqs := make([]uint64, jobs)
	for i := range seqs {
		seqs[i] = w.ask(request(fmt.Sprint(i)), in.inbox)
	}
	receive(t, f.refused, "a refused start")
	last := seqs[jobs-1]
	w.caughtUp(last)
	stop()
	require.Empty(t, w.starts())
	w.verify()
	in = w.answersOn(in.inbox)

	stop = w.project()
	w.settled(last)
	stop()
	starts := w.starts()
	require.Len(t, starts, jobs)
	for name, n := range starts {
		require.Equal(t, 1, n, name)
	}
	answered := map[uint64]bool{}
	for len(answered) < jobs {
		a := in.next()
		answered[a.Seq] = true
		require.Equal(t, ledger.Accepted, a.Decision)
		require.Equal(t, 1, a.Attempt)
		require.Equal(t, ledger.JobRunning, a.State)
	}
	w.verify()
}

// TestStartsAreTriedUntilTheyAreStored: an Appender that fails for a while
// delays starts and loses none.
func TestStartsAreTriedUntilTheyAreStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.append(echoKind())
	f := w.failing()
	f.broken.Store(true)
	w.project(appendTo(f))
	seq := w.append(request("one"))
	receive(t, f.refused, "a refused start")
	receive(t, f.refused, "another refused start")
	f.broken.Store(false)
	w.settled(seq)
	require.Equal(t, map[string]int{attemptName(ledger.JobID("acme", "one"), 1): 1}, w.starts())
}

// TestAnswersGoToInboxesOnly: a producer cannot make the projector publish
// anywhere else.
func TestAnswersGoToInboxesOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.append(echoKind())
	w.project(func(o *Options) { o.Inbox = "in." + w.prefix })
	inbox := "in." + w.prefix
	hostile, err := w.nc.SubscribeSync(inbox + "x.>")
	require.NoError(t, err)
	ours, err := w.nc.SubscribeSync(inbox + ".>")
	require.NoError(t, err)
	before := w.last()
	for i, reply := range []string{
		w.prefix + ".job.request", w.prefix + ".clock.due", inbox, inbox + ".", inbox + ".*", inbox + ".>", inbox + ".a.>", inbox + "..a",
		inbox + ".a b", inbox + "x.a", "_INBOX.a", "$JS.API.STREAM.LIST", inbox + "." + strings.Repeat("x", 300), strings.ToUpper(inbox) + ".a",
	} {
		w.ask(request(fmt.Sprint(i)), reply)
	}
	good := w.ask(request("good"), inbox+".good")
	m, err := ours.NextMsg(20 * time.Second)
	require.NoError(t, err)
	require.Equal(t, inbox+".good", m.Subject)
	answer, err := ledger.ParseAnswer(m.Data)
	require.NoError(t, err)
	require.Equal(t, good, answer.Seq)
	n, _, err := hostile.Pending()
	require.NoError(t, err)
	require.Zero(t, n)
	w.settled(good)
	jobs := good - before
	require.Equal(t, before+2*jobs, w.last(), "nothing but the requests and their starts was stored")
}
