package e2e_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestPlainDecisions(t *testing.T) {
	t.Parallel()
	w, main, c, p := plainWorld(t)
	id := c.jobID("order")

	d := p.decided(order("acme", "order", "stall"))
	w.is(d, "accepted", "")
	require.Equal(t, id, d.Job)
	require.Equal(t, "running", d.State)
	main.arrived(id, 1)

	d = p.decided(`{"input":{"do":"stall"}, "kind":"pay", "key":"order", "owner":"acme", "v":1}`)
	w.is(d, "duplicate", "")
	require.Equal(t, id, d.Job)
	d = p.decided(order("acme", "order", "answer"))
	w.is(d, "conflict", "idempotency_conflict")
	require.Equal(t, id, d.Job)
	w.is(p.decided(`{"v":1,"owner":"acme","key":"no such kind","kind":"nothing","input":1}`), "refused", "unknown_kind")
	w.is(p.decided("rubbish"), "malformed", "bad_entry")
	w.is(p.decided(`{"v":2,"owner":"acme","key":"later","kind":"pay","input":1}`), "malformed", "unsupported_version")

	// A producer may have its name in the subject.
	named := *p
	named.subject += ".shop"
	w.is(named.decided(order("acme", "named", "answer")), "accepted", "")
	require.Equal(t, 4, w.number("SELECT count(*) FROM ledger.rejections"))

	main.release(id)
	c.finished(id, "succeeded")
	c.finished(c.jobID("named"), "succeeded")
	w.verify()
}

// A reply subject that is not an inbox would make the projector publish in the
// producer's place. Such a request counts; its decision goes nowhere.
func TestPlainRepliesStayInTheInbox(t *testing.T) {
	t.Parallel()
	w, _, c, p := plainWorld(t)
	subjects := []string{
		w.prefix + ".elsewhere", "_INBOX", "_INBOXES." + w.prefix, "_inbox." + w.prefix, "x._INBOX." + w.prefix,
		w.prefix + ".job.request", w.prefix + ".clock.due", "$JS.API.STREAM.DELETE." + w.stream,
	}
	var heard []*nats.Subscription
	for _, s := range subjects[:5] {
		heard = append(heard, p.hear(s))
	}
	// Wildcards, and what is no subject at all.
	heard = append(heard, p.hear("_INBOX."+w.prefix+".>"))
	for _, s := range []string{"*", ">", ".", " x", "..x", ".x y", ".x."} {
		subjects = append(subjects, "_INBOX."+w.prefix+s)
	}
	for _, s := range append(subjects, "_INBOX.*", "_INBOX.>", "") {
		p.send(order("acme", "order", "answer"), "Ledger-Reply", s)
	}
	sent := w.requests()
	// The same job's decisions are published in order, so that this one comes
	// after all that should not have been.
	w.is(p.decided(order("acme", "order", "answer")), "duplicate", "")
	require.NoError(t, p.nc.FlushTimeout(patience))
	for _, sub := range heard {
		pending, _, err := sub.Pending()
		require.NoError(t, err)
		require.Zero(t, pending, "decisions on %s", sub.Subject)
	}
	require.Equal(t, sent+1, w.requests(), "a decision was published as a request")
	require.Zero(t, w.number("SELECT count(*) FROM ledger.rejections"))
	require.Equal(t, "succeeded", c.finished(c.jobID("order"), "succeeded").text("state"))
	w.verify()
}
