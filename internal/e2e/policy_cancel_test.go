package e2e_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// A cancellable is a state in which a job is cancelled.
type cancellable struct {
	state   string // of the job
	attempt string // of its latest attempt before; "": there is none
	after   string // of the attempt, once everything has come to rest
	request string
	// prepare brings the job there from where it is by itself; nil: nothing.
	prepare func(id string)
}

// A job is cancelled from every state, and nothing that happens afterwards
// changes it. Only what has succeeded cannot be cancelled.
func TestCancelInEveryState(t *testing.T) {
	t.Parallel()
	main, spare, absent, braked := newStub(t, "main"), newStub(t, "spare"), newStub(t, "absent"), newStub(t, "braked")
	w := newWorld(t, setup{yaml: `
kinds:
  pay:   {providers: [main, spare], backoff: {initial: 1h, max: 1h}}
  brief: {providers: [main], attempt_timeout: 500ms}
  idle:  {providers: [absent]}
  brake: {providers: [braked]}
providers:
` + main.provider() + spare.provider() + absent.provider() + braked.provider()})
	w.attach(main, spare, absent, braked)
	served := w.serve("api,projector")
	c := served.client("acme")
	w.apply()
	w.byHand("absent") // a worker that takes nothing
	w.serveOnly("main", main.provider())
	w.brake("braked", true)

	called := func(id string) { main.arrived(id, 1) }
	states := map[string]cancellable{
		"scheduled":           {state: "waiting scheduled", request: `{"kind":"pay","input":{},"delay":"1h"}`},
		"backoff":             {state: "waiting backoff", attempt: "failed", after: "failed", request: pay(`"429"`)},
		"failover-unverified": {state: "waiting failover-unverified", attempt: "failed", after: "failed", request: pay(`"401"`)},
		"provider-paused":     {state: "waiting provider-paused", request: `{"kind":"brake","input":{}}`},
		"starting":            {state: "running", attempt: "starting", after: "cancelled", request: `{"kind":"idle","input":{}}`},
		"running":             {state: "running", attempt: "running", after: "unknown", request: pay(`"stall"`), prepare: called},
		"unknown":             {state: "unknown", attempt: "unknown", after: "unknown", request: `{"kind":"brief","input":{"do":"close"}}`},
		"failed":              {state: "failed", attempt: "failed", after: "failed", request: pay(`"400"`)},
		"held": {state: "waiting held", attempt: "cancelled", after: "cancelled", request: pay(`"close"`), prepare: func(id string) {
			w.becomes(id, "unknown")
			c.resolve(id, 1, `{"as":"cancelled","reason":"it never arrived"}`).is(http.StatusOK)
		}},
	}
	for name, s := range states {
		id := c.create(name, s.request)
		if s.prepare != nil {
			s.prepare(id)
		}
		w.becomes(id, s.state)
		before := c.job(id)
		if s.attempt != "" {
			require.Equal(t, s.attempt, before.text("attempts.0.state"), name)
		}
		a := c.cancel(id).is(http.StatusOK)
		require.Equal(t, "cancelled", a.text("state"), name)
		require.Empty(t, a.text("state_reason"), name)
		c.cancel(id).replayed()
		c.press(id, "button", "").is(http.StatusConflict, "job-finished")
		c.submit(name, s.request).replayed()
		require.Equal(t, 0, w.number("SELECT count(*) FROM ledger.jobs WHERE id = $1 AND (due_at IS NOT NULL OR cancelled_at IS NULL OR cancelled_by IS NULL)", id), name)
	}
	main.hungUp(c.jobID("running")) // the call was told to stop
	done := c.create("succeeded", pay(`"answer"`))
	c.finished(done, "succeeded")
	c.cancel(done).is(http.StatusConflict, "job-finished")
	out := w.run("job", "cancel", done).is(t, 4)
	require.Contains(t, out.stderr, "succeeded by attempt 1")

	// What would have moved the jobs comes too late.
	w.brake("braked", false)
	w.prove("spare", "pay")
	w.serve("worker")
	w.awaitStartsTaken("absent")
	w.requireQuiet()
	for name, s := range states {
		a := c.job(c.jobID(name))
		require.Equal(t, "cancelled", a.text("state"), name)
		require.Equal(t, s.after, a.text("attempts.0.state"), name)
		require.Empty(t, a.text("attempts.1.state"), name)
	}
	require.Equal(t, 1, w.number("SELECT count(*) FROM ledger.races WHERE job_id = $1 AND winner_attempt IS NULL AND loser_seconds > 0", c.jobID("running")))
	require.Zero(t, spare.count("")+absent.count("")+braked.count(""))
	w.verify()
}
