package e2e_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// What failed is opened again by whoever presses the button: the owner, on a
// provider that is allowed to take it; an operator, by force, on any.
func TestAFailedJobIsOpenedAgain(t *testing.T) {
	t.Parallel()
	main, spare := newStub(t, "main"), newStub(t, "spare")
	w := newWorld(t, setup{
		yaml:   oneKind("max_attempts: 2, backoff: {initial: 100ms, max: 100ms}", main, spare),
		tokens: tokenLine("of-acme", "acme", "producer") + tokenLine("of-root", "root", "operator"),
	})
	w.attach(main, spare)
	p := w.serve("api,projector,worker")
	w.apply()
	acme, root := p.client("acme"), p.client("acme")
	acme.token, root.token = "of-acme", "of-root"
	root.owner = ""

	id := acme.create("order", pay(`{"main":"prose","spare":"stall"}`)) // executed, and of no use
	failed := acme.finished(id, "failed")
	require.Equal(t, "invalid_result true", failed.text("failure.class")+" "+failed.text("failure.executed"))
	require.Len(t, failed.body["attempts"], 1)

	acme.press(id, "elsewhere", `{"provider":"spare"}`).is(http.StatusConflict, "provider-not-verified")
	acme.press(id, "elsewhere", `{"provider":"spare","force":true}`).is(http.StatusForbidden, "forbidden")
	acme.press(id, "nowhere", `{"provider":"nobody"}`).is(http.StatusBadRequest, "unknown-provider")
	require.Equal(t, failed.text("version"), acme.job(id).text("version"), "a refusal changes nothing")

	again := acme.press(id, "again", "").created()
	require.Equal(t, "2 main manual", again.text("number")+" "+again.text("provider")+" "+again.text("reason"))
	failed = acme.finished(id, "failed")
	require.Equal(t, "2", failed.text("version"), "the reopening has raised it")

	forced := root.press(id, "force", `{"provider":"spare","force":true}`).created()
	require.Equal(t, "3 spare", forced.text("number")+" "+forced.text("provider"))
	spare.arrived(id, 1)
	require.Equal(t, "running", acme.state(id))
	require.Empty(t, acme.job(id).text("failure"))
	acme.press(id, "impatient", "").is(http.StatusConflict, "attempt-in-flight")
	spare.release(id)
	a := acme.finished(id, "succeeded")
	require.Equal(t, "3", a.text("completed_by"))
	acme.press(id, "again", "").replayed()
	acme.press(id, "once more", "").is(http.StatusConflict, "job-finished")
	require.Equal(t, []int{2, 1}, []int{main.count(id), spare.count(id)})
	require.NotZero(t, w.number("SELECT count(*) FROM ledger.rejections WHERE job_id = $1 AND reason = 'provider_not_verified'", id))
	w.verify()
}

// After a person's start the kind's policy goes on, from there: what was tried
// before does not put its provider out.
func TestThePolicyGoesOnAfterAPersonsStart(t *testing.T) {
	t.Parallel()
	main, spare := newStub(t, "main"), newStub(t, "spare")
	w, c := startWorld(t, oneKind("backoff: {initial: 100ms, max: 100ms}", main, spare))
	w.attach(main, spare)
	w.prove("spare", "pay")
	id := c.create("order", pay(`{"main":"401","spare":"401"}`))
	c.finished(id, "failed") // both are out
	c.press(id, "again", `{"provider":"main"}`).created()
	c.finished(id, "failed")
	require.Equal(t, "main initial, spare failover, main manual, spare failover",
		w.text("SELECT string_agg(provider || ' ' || reason, ', ' ORDER BY number) FROM ledger.attempts WHERE job_id = $1", id))
	w.verify()
}
