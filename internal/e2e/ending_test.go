package e2e_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

// endings says how attempts end, by what the provider does.
var endings = []struct {
	do       string // what the stub is told
	job      string // the job's state then
	attempt  string // the attempt's
	class    string // of the failure; "": any
	executed string
}{
	{"close", "unknown", "unknown", "connection_lost", "true"},
	{"reset", "unknown", "unknown", "connection_lost", "true"},
	{"500", "unknown", "unknown", "http_500", "true"},
	{"502", "unknown", "unknown", "http_502", "true"},
	{"503", "unknown", "unknown", "http_503", "true"}, // without a Retry-After
	{"504", "unknown", "unknown", "http_504", "true"},
	{"301", "unknown", "unknown", "http_301", "true"},
	{"302", "unknown", "unknown", "http_302", "true"},
	{"307", "unknown", "unknown", "http_307", "true"},
	{"308", "unknown", "unknown", "http_308", "true"},
	{"202", "unknown", "unknown", "http_202", "true"},
	{"204", "unknown", "unknown", "http_204", "true"},
	{"short", "unknown", "unknown", "truncated", "true"},
	{"cut", "unknown", "unknown", "truncated", "true"},
	{"long", "unknown", "unknown", "result_too_large", "true"},
	{"stall", "unknown", "unknown", "timeout", "true"},
	{"400", "failed", "failed", "http_400", "false"},
	{"404", "failed", "failed", "http_404", "false"},
	{"422", "failed", "failed", "http_422", "false"},
	{"prose", "failed", "failed", "invalid_result", "true"},
	{"empty", "failed", "failed", "invalid_result", "true"},
	{"answer", "succeeded", "succeeded", "", ""},
}

func TestEndings(t *testing.T) {
	t.Parallel()
	main, spare := newStub(t, "main"), newStub(t, "spare")
	w, c := startWorld(t, oneKind("attempt_timeout: 5s, backoff: {initial: 50ms, max: 100ms}", main, spare))
	w.attach(main, spare)
	w.prove("spare", "pay") // so that nothing but the rule keeps a job from failing over
	for _, e := range endings {
		c.create(e.do, pay(`"`+e.do+`"`))
	}
	for _, e := range endings {
		id := c.jobID(e.do)
		a := c.settled(id, e.job)
		require.Equal(t, e.attempt, a.text("attempts.0.state"), "%s: %s", e.do, a.raw)
		require.Equal(t, "", a.text("attempts.1.state"), "%s: %s", e.do, a.raw)
		if e.class != "" {
			require.Equal(t, e.class, a.text("attempts.0.failure.class"), "%s: %s", e.do, a.raw)
			require.Equal(t, e.executed, a.text("attempts.0.failure.executed"), "%s: %s", e.do, a.raw)
			require.Equal(t, "", a.text("result"))
		}
	}
	w.requireQuiet()
	for _, e := range endings {
		require.Equal(t, 1, main.count(c.jobID(e.do)), "wire calls of %s", e.do)
	}
	require.Zero(t, spare.count(""))
	w.requireUnknownsAreBlocked(c)
	w.verify()
}

// requireQuiet waits until the ledger has nothing more to do by itself.
func (w *world) requireQuiet() {
	w.t.Helper()
	w.eventually(0, "SELECT count(*) FROM ledger.attempts WHERE state IN ('starting', 'running')")
	w.eventually(0, "SELECT count(*) FROM ledger.jobs WHERE due_at IS NOT NULL")
	w.eventually(0, "SELECT count(*) FROM ledger.attempts WHERE due_at IS NOT NULL")
	w.caughtUp()
}

// requireUnknownsAreBlocked: no click moves a job whose attempt is unknown.
func (w *world) requireUnknownsAreBlocked(c *client) {
	w.t.Helper()
	for _, e := range endings {
		if e.job != "unknown" {
			continue
		}
		id := c.jobID(e.do)
		a := c.press(id, "fallback", `{"provider":"spare","force":true}`).is(http.StatusConflict, "attempt-in-flight")
		require.Equal(w.t, "1 unknown", a.text("attempt")+" "+a.text("state"))
		require.NotEmpty(w.t, a.text("since"))
		c.submit(e.do, pay(`"`+e.do+`"`)).replayed()
	}
	unknown := w.number("SELECT count(*) FROM ledger.jobs WHERE state = 'unknown'")
	require.Equal(w.t, unknown, w.number("SELECT count(*) FROM ledger.unknown_attempts"))
	list := c.do("GET", "/v1/attempts?state=unknown&limit=500", "").is(http.StatusOK)
	require.Len(w.t, list.body["attempts"], unknown)
}

func TestAProviderThatIsNotThereIsTriedAgain(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	main.down()
	w, c := startWorld(t, oneKind("max_attempts: 1, backoff: {initial: 200ms, max: 1s}", main))
	w.attach(main)
	id := c.create("order", pay(`"answer"`))
	testenv.Eventually(t, patience, func() (bool, string) {
		n := w.number("SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND state = 'unsent' AND executed = false", id)
		return n >= 2, "the attempts are not unsent"
	})
	require.NoError(t, main.up())
	a := c.finished(id, "succeeded")
	require.Equal(t, 1, main.count(id))
	require.Equal(t, "unsent", a.text("attempts.0.state"))
	require.Equal(t, "retry", a.text("attempts.1.reason"))
	require.Equal(t, 1, w.number("SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND state <> 'unsent'", id))
	w.verify()
}

func TestAttemptInFlight(t *testing.T) {
	t.Parallel()
	main, spare := newStub(t, "main"), newStub(t, "spare")
	w := newWorld(t, setup{yaml: oneKind("", main, spare)})
	w.attach(main, spare)
	c := w.serve("api,projector").client("acme")
	w.apply()
	id := c.create("order", pay(`"stall:close"`))
	refused := func(state string) {
		t.Helper()
		for _, body := range []string{``, `{"provider":"main"}`, `{"provider":"spare","force":true}`} {
			a := c.press(id, "while it is "+state, body).is(http.StatusConflict, "attempt-in-flight")
			require.Equal(t, []string{id, "1", state}, []string{a.text("job_id"), a.text("attempt"), a.text("state")})
			require.NotEmpty(t, a.text("since"))
			require.Equal(t, state != "starting", a.text("deadline") != "", "%s", a.raw)
		}
	}
	refused("starting")
	w.serve("worker")
	main.arrived(id, 1)
	refused("running")
	main.release(id)
	c.settled(id, "unknown")
	refused("unknown")
	require.Equal(t, 1, w.number("SELECT count(*) FROM ledger.attempts"))
	require.Zero(t, spare.count(""))
	require.GreaterOrEqual(t, w.number("SELECT count(*) FROM ledger.rejections WHERE job_id = $1 AND reason = 'attempt_in_flight'", id), 3)
	w.verify()
}

func TestATimeoutIsUnknownUntilSomebodyKnows(t *testing.T) {
	t.Parallel()
	main, spare := newStub(t, "main"), newStub(t, "spare")
	w, c := startWorld(t, oneKind("attempt_timeout: 1500ms", main, spare))
	w.attach(main, spare)
	for _, as := range []string{"cancelled", "failed", "succeeded"} {
		c.create(as, pay(`{"main":"stall"}`))
	}
	const force = `{"provider":"spare","force":true}`
	for _, as := range []string{"cancelled", "failed", "succeeded"} {
		a := c.settled(c.jobID(as), "unknown")
		require.Equal(t, "unknown", a.text("attempts.0.state"))
		c.press(c.jobID(as), "too early", force).is(http.StatusConflict, "attempt-in-flight")
	}

	id := c.jobID("cancelled")
	a := c.resolve(id, 1, `{"as":"cancelled","reason":"the provider has no trace of it"}`).is(http.StatusOK)
	require.Equal(t, "waiting held", a.text("state")+" "+a.text("state_reason"))
	require.Equal(t, "the provider has no trace of it", a.text("attempts.0.resolution_reason"))
	c.press(id, "button", force).created()
	a = c.finished(id, "succeeded")
	require.Equal(t, "2", a.text("completed_by"))
	require.JSONEq(t, `{"by":"spare","attempt":2}`, a.text("result"))

	id = c.jobID("failed")
	c.resolve(id, 1, `{"as":"failed","reason":"seen in the provider's books"}`).is(http.StatusOK)
	w.eventually(1, "SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND number = 1 AND state = 'failed'", id)

	id = c.jobID("succeeded")
	a = c.resolve(id, 1, `{"as":"succeeded","result":{"seen":true},"reason":"seen in the provider's books"}`).is(http.StatusOK)
	require.Equal(t, "succeeded", a.text("state"))
	require.JSONEq(t, `{"seen":true}`, a.text("result"))
	c.resolve(id, 1, `{"as":"failed","reason":"another opinion"}`).is(http.StatusConflict)
	main.releaseAll()
	w.verify()
}

// A frozen worker wakes up after the deadline: what it then says can only settle
// its own attempt.
func TestAFrozenWorkerWakesUpLate(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind("attempt_timeout: 1s", main)})
	w.attach(main)
	c := w.serve("api,projector").client("acme")
	worker := w.serve("worker")
	w.apply()
	id := c.create("order", pay(`"stall"`))
	main.arrived(id, 1)
	worker.freeze()
	c.settled(id, "unknown") // by the ledger's clock
	main.release(id)
	worker.thaw()
	worker.stop() // it has said what it knows
	w.caughtUp()
	state := c.job(id).text("attempts.0.state")
	require.Contains(t, []string{"unknown", "succeeded"}, state)
	require.Equal(t, 1, main.count(id))
	require.Equal(t, 1, w.number("SELECT count(*) FROM ledger.attempts"))
	w.verify()
}
