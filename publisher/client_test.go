package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
	"jobledger/publisher"
)

// projector answers every entry that asks for it, by the given function; false
// gives no answer.
func projector(t testing.TB, js jetstream.JetStream, name string, decide func(seq uint64, msg jetstream.Msg) (ledger.Answer, bool)) {
	t.Helper()
	consumer, err := js.OrderedConsumer(testContext(t), name, jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	consuming, err := consumer.Consume(func(msg jetstream.Msg) {
		meta, err := msg.Metadata()
		if err != nil {
			t.Errorf("metadata of an entry: %v", err)
			return
		}
		reply := msg.Headers().Get(publisher.ReplyHeader)
		answer, ok := decide(meta.Sequence.Stream, msg)
		if ok && reply != "" {
			answer.Seq = meta.Sequence.Stream
			if err := js.Conn().Publish(reply, answer.AppendJSON(nil)); err != nil {
				t.Errorf("publish an answer: %v", err)
			}
		}
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		consuming.Stop()
		<-consuming.Closed()
	})
}

func newClient(t testing.TB, nc *nats.Conn, name, prefix string) *publisher.Client {
	t.Helper()
	a := newAppender(t, nc, publisher.Options{Stream: name, SubjectPrefix: prefix, AckWait: 200 * time.Millisecond})
	c, err := publisher.NewClient(nc, a, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func accepted(uint64, jetstream.Msg) (ledger.Answer, bool) {
	return ledger.Answer{Decision: ledger.Accepted}, true
}

func silent(uint64, jetstream.Msg) (ledger.Answer, bool) { return ledger.Answer{}, false }

func TestDecideGivesEachItsOwnAnswer(t *testing.T) {
	t.Parallel()
	const callers = 300
	js, name, prefix := testenv.Stream(t)
	projector(t, js, name, func(_ uint64, msg jetstream.Msg) (ledger.Answer, bool) {
		_, detail, _ := strings.Cut(string(msg.Data()), `"key":"`)
		detail, _, _ = strings.Cut(detail, `"`)
		return ledger.Answer{Decision: ledger.Accepted, Detail: detail}, true
	})
	c := newClient(t, testenv.NATS(t), name, prefix)
	var wg sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		wg.Go(func() {
			answer, err := c.Decide(testContext(t), request(fmt.Sprint(i)))
			if err == nil && answer.Detail != fmt.Sprint(i) {
				err = fmt.Errorf("%d got the answer of %s", i, answer.Detail)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Zero(t, c.Dropped())
}

func TestDecideWithoutADecision(t *testing.T) {
	t.Parallel()
	_, name, prefix := testenv.Stream(t)
	c := newClient(t, testenv.NATS(t), name, prefix)
	ctx, cancel := context.WithTimeout(testContext(t), time.Second)
	defer cancel()
	_, err := c.Decide(ctx, request("k"))
	var none *publisher.NoDecisionError
	require.ErrorAs(t, err, &none)
	require.EqualValues(t, 1, none.Seq)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestDecideOnAnEntryOfSomebodyElse(t *testing.T) {
	t.Parallel()
	js, name, prefix := testenv.Stream(t)
	projector(t, js, name, accepted)
	c := newClient(t, testenv.NATS(t), name, prefix)
	seq, err := c.Append(testContext(t), request("k"))
	require.NoError(t, err)

	_, err = c.Decide(testContext(t), request("k"))
	require.ErrorIs(t, err, publisher.ErrDuplicateAppend)
	var duplicate *publisher.DuplicateAppendError
	require.ErrorAs(t, err, &duplicate)
	require.Equal(t, seq, duplicate.Seq)

	answer, err := c.DecideFresh(testContext(t), request("k"))
	require.NoError(t, err)
	require.EqualValues(t, 2, answer.Seq)
}

func TestClaimIsRepeatedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	js, name, prefix := testenv.Stream(t)
	projector(t, js, name, func(seq uint64, msg jetstream.Msg) (ledger.Answer, bool) {
		return ledger.Answer{Decision: ledger.Duplicate, TimeoutMS: 7}, seq > 1
	})
	c := newClient(t, testenv.NATS(t), name, prefix)
	claim := (&ledger.Claim{Job: uuid.New(), Attempt: 1, JobVersion: 1, Provider: "p", Claim: "0123456789abcdef", StartSeq: 1}).Message()
	ctx, cancel := context.WithTimeout(testContext(t), 200*time.Millisecond)
	defer cancel()
	_, err := c.Decide(ctx, claim)
	require.ErrorIs(t, err, publisher.ErrNoDecision)

	answer, err := c.Decide(testContext(t), claim)
	require.NoError(t, err)
	require.Equal(t, ledger.Answer{Seq: 2, Decision: ledger.Duplicate, TimeoutMS: 7}, answer)
}

func TestAnswersForSomethingElseAreDropped(t *testing.T) {
	t.Parallel()
	js, name, prefix := testenv.Stream(t)
	projector(t, js, name, func(seq uint64, msg jetstream.Msg) (ledger.Answer, bool) {
		reply := msg.Headers().Get(publisher.ReplyHeader)
		foreign := ledger.Answer{Seq: seq + 100, Decision: ledger.Refused}
		for _, m := range []*nats.Msg{
			{Subject: reply, Data: foreign.AppendJSON(nil)},
			{Subject: reply, Data: []byte("no JSON")},
			{Subject: reply[:strings.LastIndex(reply, ".")] + ".nobody", Data: foreign.AppendJSON(nil)},
		} {
			if err := js.Conn().PublishMsg(m); err != nil {
				t.Errorf("publish: %v", err)
			}
		}
		return ledger.Answer{Decision: ledger.Accepted}, true
	})
	c := newClient(t, testenv.NATS(t), name, prefix)
	answer, err := c.Decide(testContext(t), request("k"))
	require.NoError(t, err)
	require.Equal(t, ledger.Accepted, answer.Decision)
	require.EqualValues(t, 3, c.Dropped())
}

func TestClosedClientEndsWaits(t *testing.T) {
	t.Parallel()
	js, name, prefix := testenv.Stream(t)
	seen := make(chan struct{}, 1)
	projector(t, js, name, func(seq uint64, msg jetstream.Msg) (ledger.Answer, bool) {
		seen <- struct{}{}
		return silent(seq, msg)
	})
	c := newClient(t, testenv.NATS(t), name, prefix)
	result := make(chan error, 1)
	go func() {
		_, err := c.Decide(testContext(t), request("k"))
		result <- err
	}()
	<-seen
	require.NoError(t, c.Close())
	err := <-result
	require.ErrorIs(t, err, publisher.ErrClosed)
	_, err = c.Decide(testContext(t), request("other"))
	require.ErrorIs(t, err, publisher.ErrNotAppended)
}

// An answer can be lost with the acknowledgement; the caller must learn that
// the entry is there instead of waiting for it.
func TestLostAnswerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	js, name, prefix := testenv.Stream(t)
	proxy := testenv.NewProxy(t, testenv.NATSURL(t))
	c := newClient(t, testenv.Connect(t, proxy.URL(testenv.NATSURL(t))), name, prefix)
	proxy.HoldAnswers()
	result := make(chan error, 1)
	go func() {
		_, err := c.Decide(testContext(t), request("k"))
		result <- err
	}()
	testenv.Eventually(t, testTimeout, func() (bool, string) { return len(stored(t, js, name)) == 1, "nothing is stored" })
	proxy.Drop()
	proxy.Restore()
	var duplicate *publisher.DuplicateAppendError
	require.ErrorAs(t, <-result, &duplicate)
	require.EqualValues(t, 1, duplicate.Seq)
}

func TestOutcomesAreHeard(t *testing.T) {
	t.Parallel()
	nc := testenv.NATS(t)
	outcomes := publisher.NewOutcomes(nc, "p")
	job, other := uuid.New(), uuid.New()
	heard := make(chan string, 100)
	say := func(what string) func() { return func() { heard <- what } }
	publish := func(job uuid.UUID) {
		require.NoError(t, nc.Publish("p.outcome."+job.String(), []byte("{}")))
	}
	next := func() string {
		select {
		case what := <-heard:
			return what
		case <-time.After(testTimeout):
			t.Fatal("the outcome was not heard")
			return ""
		}
	}
	stopFirst := outcomes.Watch(job, say("first"))
	stopSecond := outcomes.Watch(job, say("second"))
	stopOther := outcomes.Watch(other, say("other"))
	publish(uuid.New())
	publish(job)
	require.ElementsMatch(t, []string{"first", "second"}, []string{next(), next()})
	stopFirst()
	stopFirst()
	publish(job)
	publish(other)
	require.Equal(t, []string{"second", "other"}, []string{next(), next()})
	stopSecond()
	stopOther()
	require.Zero(t, nc.NumSubscriptions())

	// It goes on after nothing was watched, and is silent on a closed connection.
	stopOther = outcomes.Watch(other, say("again"))
	publish(other)
	require.Equal(t, "again", next())
	nc.Close()
	stopOther()
	outcomes.Watch(job, say("never"))()
	require.Empty(t, heard)
}
