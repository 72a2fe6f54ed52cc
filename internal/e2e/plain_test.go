package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// A plain is a producer that has a NATS client, the contract's text and nothing
// of ours.
type plain struct {
	w       *world
	nc      *nats.Conn
	js      jetstream.JetStream
	subject string
}

func (w *world) plain() *plain {
	w.t.Helper()
	nc := testenv.Connect(w.t, w.nats)
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	return &plain{w: w, nc: nc, js: js, subject: w.prefix + ".job.request"}
}

// order is the body of a request for the kind pay.
func order(owner, key, do string) string {
	return fmt.Sprintf(`{"v":1,"owner":%q,"key":%q,"kind":"pay","input":{"do":%q}}`, owner, key, do)
}

// messageID is the one id that the contract allows for a request.
func messageID(owner, key, body string) string {
	digest := sha256.Sum256([]byte(body))
	return ledger.JobID(owner, key).String() + "/" + hex.EncodeToString(digest[:])
}

// send publishes a body, with the headers given as names and values in turn.
func (p *plain) send(body string, headers ...string) *jetstream.PubAck {
	p.w.t.Helper()
	msg := &nats.Msg{Subject: p.subject, Data: []byte(body), Header: nats.Header{}}
	for i := 0; i+1 < len(headers); i += 2 {
		msg.Header.Set(headers[i], headers[i+1])
	}
	ack, err := p.js.PublishMsg(p.w.ctx(), msg)
	require.NoError(p.w.t, err)
	require.Equal(p.w.t, p.w.stream, ack.Stream)
	return ack
}

// An inboxOf hears decisions.
type inboxOf struct {
	p       *plain
	subject string
	replies *nats.Subscription
}

func (p *plain) inbox() *inboxOf {
	p.w.t.Helper()
	i := &inboxOf{p: p, subject: p.nc.NewInbox()}
	i.replies = p.hear(i.subject)
	return i
}

// hear subscribes, and returns once the server knows of it.
func (p *plain) hear(subject string) *nats.Subscription {
	p.w.t.Helper()
	sub, err := p.nc.SubscribeSync(subject)
	require.NoError(p.w.t, err)
	require.NoError(p.w.t, p.nc.FlushTimeout(patience))
	return sub
}

// next waits for the next decision.
func (i *inboxOf) next() (d decision) {
	i.p.w.t.Helper()
	msg, err := i.replies.NextMsg(patience)
	require.NoError(i.p.w.t, err, "no decision on %s", i.subject)
	require.Empty(i.p.w.t, msg.Reply)
	require.NoError(i.p.w.t, json.Unmarshal(msg.Data, &d), string(msg.Data))
	return d
}

// decided publishes a body and returns what the ledger decided on it.
func (p *plain) decided(body string, headers ...string) decision {
	p.w.t.Helper()
	i := p.inbox()
	ack := p.send(body, append(headers, "Ledger-Reply", i.subject)...)
	require.False(p.w.t, ack.Duplicate)
	d := i.next()
	require.Equal(p.w.t, ack.Sequence, d.Seq)
	return d
}

// plainWorld is a world that jobs run in, and a plain producer for it.
func plainWorld(t *testing.T) (*world, *stub, *client, *plain) {
	t.Helper()
	main := newStub(t, "main")
	w, c := startWorld(t, oneKind("", main))
	w.attach(main)
	return w, main, c, w.plain()
}

func TestPlainTheSameRequestTenTimes(t *testing.T) {
	t.Parallel()
	const times = 10
	w, main, c, p := plainWorld(t)
	withID := func(body, id string) []string { return []string{"Nats-Msg-Id", id} }
	for name, way := range map[string]struct {
		headers func(body string, n int) []string
		stored  uint64
	}{
		"without ids": {func(string, int) []string { return nil }, times},
		"one id": {func(body string, _ int) []string {
			return withID(body, messageID("acme", "one id", body))
		}, 1},
		"an id for each": {func(body string, n int) []string {
			return withID(body, fmt.Sprintf("%s %d", nats.NewInbox(), n))
		}, times},
	} {
		body := order("acme", name, "answer")
		before, i := w.requests(), p.inbox()
		var first *jetstream.PubAck
		for n := range times {
			ack := p.send(body, append(way.headers(body, n), "Ledger-Reply", i.subject)...)
			if n == 0 {
				first = ack
			}
			require.Equal(t, n > 0 && way.stored == 1, ack.Duplicate, "%s, time %d", name, n+1)
			if ack.Duplicate { // nobody decides on it again
				require.Equal(t, first.Sequence, ack.Sequence)
			}
		}
		require.Equal(t, way.stored, w.requests()-before, name)
		for n := range way.stored {
			d, expected := i.next(), "duplicate"
			if n == 0 {
				expected = "accepted"
			}
			w.is(d, expected, "")
			require.Equal(t, c.jobID(name), d.Job)
		}
		c.finished(c.jobID(name), "succeeded")
		require.Equal(t, 1, main.count(c.jobID(name)), name)
	}
	require.Equal(t, 3, w.number("SELECT count(*) FROM ledger.jobs"))
	require.Equal(t, 3, w.number("SELECT count(*) FROM ledger.attempts"))
	require.Zero(t, w.number("SELECT count(*) FROM ledger.rejections"), "saying the same again is no fault")
	w.verify()
}

// Beyond the window the server stores the same id again: then it is the fold that
// recognises the request. The window of this test's stream is shortened for that.
func TestPlainBeyondTheDuplicateWindow(t *testing.T) {
	t.Parallel()
	w, main, c, p := plainWorld(t)
	body := order("acme", "order", "answer")
	id := messageID("acme", "order", body)
	require.False(t, p.send(body, "Nats-Msg-Id", id).Duplicate)
	c.finished(c.jobID("order"), "succeeded")
	require.True(t, p.send(body, "Nats-Msg-Id", id).Duplicate)
	before := w.jobRow(c.jobID("order"))

	w.forgetMessageIDs(func() { p.send(body, "Nats-Msg-Id", id) }, func() {
		for range 10 {
			testenv.Eventually(t, patience, func() (bool, string) {
				return !p.send(body, "Nats-Msg-Id", id).Duplicate, "the server still remembers the id"
			})
		}
	})
	require.GreaterOrEqual(t, w.requests(), uint64(11), "each of them was stored")
	w.is(p.decided(body), "duplicate", "")
	w.is(p.decided(order("acme", "order", "another")), "conflict", "idempotency_conflict")
	w.caughtUp()
	require.Equal(t, before, w.jobRow(c.jobID("order")))
	require.Equal(t, 1, main.count(""))
	w.verify()
}

// What contract.md says of ids that are not ours: the server keeps the first
// message under an id, whoever sent it and wherever to, and answers the second
// with the first one's sequence. Nothing of the second reaches the ledger.
func TestPlainTwoMessagesUnderOneForeignID(t *testing.T) {
	t.Parallel()
	w, main, c, p := plainWorld(t)
	other := c.as("other")
	first := p.send(order("acme", "order", "answer"), "Nats-Msg-Id", "order-1")
	require.False(t, first.Duplicate)
	c.finished(c.jobID("order"), "succeeded")

	i := p.inbox()
	for what, body := range map[string]string{
		"another owner's request": order("other", "order", "answer"),
		"another body":            order("acme", "order", "something else"),
		"another key":             order("acme", "order 2", "answer"),
		"rubbish":                 "rubbish",
	} {
		ack := p.send(body, "Nats-Msg-Id", "order-1", "Ledger-Reply", i.subject)
		require.True(t, ack.Duplicate, what)
		require.Equal(t, first.Sequence, ack.Sequence, what)
	}
	elsewhere := *p // the id is taken on every other subject, too
	elsewhere.subject = w.prefix + ".job.cancel"
	ack := elsewhere.send(fmt.Sprintf(`{"v":1,"job":%q}`, c.jobID("order")), "Nats-Msg-Id", "order-1", "Ledger-Reply", i.subject)
	require.True(t, ack.Duplicate)
	require.Equal(t, first.Sequence, ack.Sequence)

	// This one is decided after all of those would have been.
	w.is(p.decided(order("acme", "order", "answer")), "duplicate", "")
	w.caughtUp()
	pending, _, err := i.replies.Pending()
	require.NoError(t, err)
	require.Zero(t, pending, "decisions on messages that were dropped")
	require.Equal(t, 1, w.number("SELECT count(*) FROM ledger.jobs"))
	require.Zero(t, w.number("SELECT count(*) FROM ledger.rejections"))

	// Nothing but the message is lost: without an id, the same works.
	w.is(p.decided(order("other", "order", "answer")), "accepted", "")
	other.finished(other.jobID("order"), "succeeded")
	require.Equal(t, 2, main.count(""))
	w.verify()
}
