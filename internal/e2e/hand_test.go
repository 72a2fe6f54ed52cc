package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// body is an entry's body, written by hand.
type body = map[string]any

// A decision is what the ledger answers to who appended an entry.
type decision struct {
	Seq       uint64 `json:"seq"`
	Decision  string `json:"decision"`
	Reason    string `json:"reason"`
	Job       string `json:"job"`
	Attempt   int    `json:"attempt"`
	State     string `json:"state"`
	TimeoutMS int64  `json:"timeout_ms"`
}

// publish appends an entry as a program in any language would, without a message
// id, and returns the decision.
func (w *world) publish(subject string, b body) decision {
	w.t.Helper()
	nc := w.js.Conn()
	inbox := nc.NewInbox()
	replies, err := nc.SubscribeSync(inbox)
	require.NoError(w.t, err)
	defer func() { _ = replies.Unsubscribe() }()

	msg := nats.NewMsg(w.prefix + "." + subject)
	msg.Header.Set("Ledger-Reply", inbox)
	entry := body{"v": 1}
	maps.Copy(entry, b)
	msg.Data, err = json.Marshal(entry)
	require.NoError(w.t, err)
	ack, err := w.js.PublishMsg(w.ctx(), msg)
	require.NoError(w.t, err)
	require.False(w.t, ack.Duplicate)

	reply, err := replies.NextMsg(patience)
	require.NoError(w.t, err, "no decision on entry %d, %s", ack.Sequence, msg.Data)
	var d decision
	require.NoError(w.t, json.Unmarshal(reply.Data, &d), string(reply.Data))
	require.Equal(w.t, ack.Sequence, d.Seq)
	return d
}

// is insists on a decision and its reason.
func (w *world) is(d decision, decided, reason string) {
	w.t.Helper()
	require.Equal(w.t, decided+" "+reason, d.Decision+" "+d.Reason, "%+v", d)
}

// A hand is a worker that the test plays itself, by the protocol for workers in
// any language, so that it decides when what is said.
type hand struct {
	w        *world
	provider string
	starts   jetstream.Consumer
}

// A handful is an attempt that a hand works on.
type handful struct {
	h       *hand
	Job     string          `json:"job"`
	Attempt int             `json:"attempt"`
	Version int64           `json:"job_version"`
	Kind    string          `json:"kind"`
	Input   json.RawMessage `json:"input"`
	claimID string
}

// byHand makes the test the worker of a provider that no process serves.
func (w *world) byHand(provider string) *hand {
	w.t.Helper()
	starts, err := w.js.CreateOrUpdateConsumer(w.ctx(), w.stream, jetstream.ConsumerConfig{
		Durable: "worker-" + provider, FilterSubject: w.prefix + ".attempt.start." + provider,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: patience,
	})
	require.NoError(w.t, err)
	return &hand{w: w, provider: provider, starts: starts}
}

// next takes the provider's next start, and claims it.
func (h *hand) next() *handful {
	h.w.t.Helper()
	msg, err := h.starts.Next(jetstream.FetchMaxWait(patience))
	require.NoError(h.w.t, err, "no start for provider %s", h.provider)
	require.NoError(h.w.t, msg.Ack())
	a := &handful{h: h, claimID: rand.Text()}
	require.NoError(h.w.t, json.Unmarshal(msg.Data(), a), string(msg.Data()))
	meta, err := msg.Metadata()
	require.NoError(h.w.t, err)
	d := h.w.publish("attempt.claim."+h.provider, body{
		"job": a.Job, "attempt": a.Attempt, "job_version": a.Version, "claim": a.claimID,
		"worker": "by hand", "start_seq": meta.Sequence.Stream,
	})
	h.w.is(d, "accepted", "")
	require.Positive(h.w.t, d.TimeoutMS)
	return a
}

// succeed completes the attempt with a result that names it.
func (a *handful) succeed() decision {
	a.h.w.t.Helper()
	return a.complete(body{"outcome": "succeeded", "result": body{"by": a.h.provider, "attempt": a.Attempt}, "usage": body{"tokens": 7}})
}

// result is what succeed says.
func (a *handful) result() string {
	return fmt.Sprintf(`{"by":%q,"attempt":%d}`, a.h.provider, a.Attempt)
}

func (a *handful) complete(b body) decision {
	a.h.w.t.Helper()
	entry := body{"job": a.Job, "attempt": a.Attempt, "job_version": a.Version, "claim": a.claimID}
	maps.Copy(entry, b)
	return a.h.w.publish("attempt.complete."+a.h.provider, entry)
}

// prove records that a provider has passed the verification of a kind.
func (w *world) prove(provider, kind string) {
	w.t.Helper()
	digest := w.text("SELECT encode(digest, 'hex') FROM ledger.providers WHERE name = $1 ORDER BY seq DESC LIMIT 1", provider)
	d := w.publish("provider.verified", body{
		"provider": provider, "kind": kind, "provider_digest": digest, "passed": true,
		"expires_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano),
	})
	w.is(d, "accepted", "")
}
