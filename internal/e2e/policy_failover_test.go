package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

// proves appends a verification as an operator's program would.
func (w *world) proves(provider, kind string, passed bool, expires time.Time, digest string) {
	w.t.Helper()
	w.is(w.publish("provider.verified", body{
		"provider": provider, "kind": kind, "provider_digest": digest, "passed": passed,
		"expires_at": expires.UTC().Format(time.RFC3339Nano), "actor": "operator:ann",
	}), "accepted", "")
}

func (w *world) digestOf(provider string) string {
	w.t.Helper()
	return w.text("SELECT encode(digest, 'hex') FROM ledger.providers WHERE name = $1 ORDER BY seq DESC LIMIT 1", provider)
}

// A job whose provider is out waits until another one has proved itself. What is
// no proof changes nothing: one that failed, one that is over, one of another
// definition, one for another kind.
func TestFailoverWaitsForProof(t *testing.T) {
	t.Parallel()
	main, spare := newStub(t, "main"), newStub(t, "spare")
	w, c := startWorld(t, `
kinds:
  pay:   {providers: [main, spare], failover: verified}
  other: {providers: [main, spare]}
  never: {providers: [main, spare], failover: never}
providers:
`+main.provider()+spare.provider())
	w.attach(main, spare)
	w.prove("spare", "other")
	w.prove("spare", "never")
	w.proves("spare", "pay", false, time.Now().Add(time.Hour), w.digestOf("spare"))
	w.proves("spare", "pay", true, time.Now().Add(-time.Minute), w.digestOf("spare"))
	w.proves("spare", "pay", true, time.Now().Add(time.Hour), w.digestOf("main"))

	const out = `{"main":"401","spare":"answer"}`
	waits, pressed, gone := c.create("waits", pay(out)), c.create("pressed", pay(out)), c.create("gone", pay(out))
	for _, id := range []string{waits, pressed, gone} {
		w.becomes(id, "waiting failover-unverified")
		ended := w.moment("SELECT finished_at FROM ledger.attempts WHERE job_id = $1", id)
		require.Equal(t, time.Minute, w.moment("SELECT due_at FROM ledger.jobs WHERE id = $1", id).Sub(ended))
		c.press(id, "no proof", `{"provider":"spare"}`).is(http.StatusConflict, "provider-not-verified")
	}
	never := c.create("never", `{"kind":"never","input":{"do":`+out+`}}`)
	require.Equal(t, "http_401", c.finished(never, "failed").text("failure.class"))
	other := c.create("other", `{"kind":"other","input":{"do":`+out+`}}`)
	require.Equal(t, "failover", c.finished(other, "succeeded").text("attempts.1.reason"))
	require.Equal(t, 1, spare.count(""))

	require.Equal(t, "cancelled", c.cancel(gone).is(http.StatusOK).text("state"))
	w.processes[0].crash()
	w.prove("spare", "pay")
	c.press(pressed, "proved", `{"provider":"spare"}`).created() // a person need not wait
	require.Equal(t, "manual", c.finished(pressed, "succeeded").text("attempts.1.reason"))
	testenv.Eventually(t, 2*patience, func() (bool, string) { // it looks again every minute
		state := c.state(waits)
		return state == "succeeded", "the job is " + state
	})
	a := c.job(waits)
	require.Equal(t, "2 failover spare", a.text("completed_by")+" "+a.text("attempts.1.reason")+" "+a.text("attempts.1.provider"))
	require.Zero(t, spare.count(gone))
	w.verify()
}

// A proof is of one definition: once the provider means something else, jobs wait
// again.
func TestAChangedProviderHasToProveItselfAgain(t *testing.T) {
	t.Parallel()
	main, spare := newStub(t, "main"), newStub(t, "spare")
	w, c := startWorld(t, oneKind("", main, spare))
	w.attach(main, spare)
	w.prove("spare", "pay")
	const out = `{"main":"401","spare":"answer"}`
	c.finished(c.create("before", pay(out)), "succeeded")
	w.is(w.publish("provider.define", body{"name": "spare", "type": "http", "definition": body{"url": spare.url, "model": "another"}}), "accepted", "")
	id := c.create("after", pay(out))
	w.becomes(id, "waiting failover-unverified")
	c.press(id, "proof is of before", `{"provider":"spare"}`).is(http.StatusConflict, "provider-not-verified")
	c.press(id, "a person knows", `{"provider":"spare","force":true}`).created()
	c.finished(id, "succeeded")
	w.verify()
}

// A provider that only fails for now gets two tries in a row; then it is the turn
// of one that has proved itself, and then its own again.
func TestTransientFailuresMoveOnAfterTwoTries(t *testing.T) {
	t.Parallel()
	main, spare := newStub(t, "main"), newStub(t, "spare")
	w, c := startWorld(t, oneKind("max_attempts: 5, backoff: {initial: 20ms, max: 20ms}", main, spare))
	w.attach(main, spare)
	w.prove("spare", "pay")
	id := c.create("order", pay(`"429"`))
	c.finished(id, "failed")
	require.Equal(t, "main initial, main retry, spare failover, spare retry, main failover",
		w.text("SELECT string_agg(provider || ' ' || reason, ', ' ORDER BY number) FROM ledger.attempts WHERE job_id = $1", id))
	w.verify()
}
