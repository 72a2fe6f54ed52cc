package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const raceConfig = `
kinds:
  infer:  {providers: [main, spare], effects: none, mode: race, hedge_after: 300ms}
  single: {providers: [main, spare], effects: none, mode: race, hedge_after: 300ms, max_attempts: 1}
providers:
`

func infer(do string) string { return `{"kind":"infer","input":{"do":` + do + `}}` }

// A race's second runner starts because the first is slow; the loser is told to
// stop, in its own process, and stands in the view of races with what it cost.
func TestTheLoserOfARaceIsStopped(t *testing.T) {
	t.Parallel()
	main, spare := newStub(t, "main"), newStub(t, "spare")
	w := newWorld(t, setup{yaml: raceConfig + main.provider() + spare.provider()})
	w.attach(main, spare)
	c := w.serve("api,projector").client("acme")
	w.serve("worker")
	w.apply()
	w.prove("spare", "infer")
	w.prove("spare", "single")

	id := c.create("slow", infer(`{"main":"stall","spare":"answer"}`))
	a := c.finished(id, "succeeded")
	require.Equal(t, "2 hedge", a.text("completed_by")+" "+a.text("attempts.1.reason"))
	require.GreaterOrEqual(t, w.moment("SELECT requested_at FROM ledger.attempts WHERE job_id = $1 AND number = 2", id).
		Sub(w.moment("SELECT requested_at FROM ledger.attempts WHERE job_id = $1 AND number = 1", id)), 300*time.Millisecond)
	main.hungUp(id) // although nobody has released it
	w.eventually(1, "SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND number = 1 AND state = 'unknown' AND failure_class = 'stopped'", id)
	require.Equal(t, 1, w.number(`SELECT count(*) FROM ledger.races WHERE job_id = $1 AND winner_attempt = 2 AND winner_provider = 'spare'
		AND loser_attempt = 1 AND loser_provider = 'main' AND loser_state = 'unknown' AND loser_seconds >= 0.3 AND late >= interval '0'`, id))
	require.Zero(t, w.number("SELECT count(*) FROM ledger.unknown_attempts WHERE job_id = $1 AND blocks_job", id))
	require.Regexp(t, "unknown attempts +ok +none", w.run("doctor", "--unknown-age", "1ns").stdout, "it is nobody's concern")

	quick := c.create("quick", infer(`"answer"`))
	c.finished(quick, "succeeded")
	alone := c.create("alone", `{"kind":"single","input":{"do":"stall"}}`)
	main.arrived(alone, 1)
	// A race goes on while one of its runners is left, whatever became of another.
	refused := c.create("refused", infer(`{"main":"stall:400","spare":"stall"}`))
	spare.arrived(refused, 1)
	main.release(refused)
	w.eventually(1, "SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND number = 1 AND state = 'failed'", refused)
	require.Equal(t, "running", c.state(refused))
	spare.release(refused)
	require.Equal(t, "2", c.finished(refused, "succeeded").text("completed_by"))
	require.Zero(t, w.number("SELECT count(*) FROM ledger.races WHERE job_id = $1", refused), "it had ended before the race was won")

	main.release(alone)
	c.finished(alone, "succeeded")
	require.Zero(t, spare.count(alone), "max_attempts is 1")
	require.Zero(t, spare.count(quick))
	w.verify()
}

// What has not begun when the race is won never begins, and no race starts a
// provider that is not proved.
func TestAHedgeThatHasNotBegun(t *testing.T) {
	t.Parallel()
	main, spare := newStub(t, "main"), newStub(t, "spare")
	w := newWorld(t, setup{yaml: raceConfig + main.provider() + spare.provider()})
	w.attach(main, spare)
	c := w.serve("api,projector").client("acme")
	w.apply()
	mainHand := w.byHand("main") // the test, and nobody works for spare
	unproved := c.create("unproved", infer(`"answer"`))
	first := mainHand.next()
	// The clock has looked, and will look again.
	w.eventually(1, "SELECT count(*) FROM ledger.jobs WHERE id = $1 AND due_at >= created_at + interval '10 seconds'", unproved)
	require.Equal(t, 1, w.number("SELECT count(*) FROM ledger.attempts WHERE job_id = $1", unproved))
	w.is(first.succeed(), "accepted", "")

	w.prove("spare", "infer")
	id := c.create("order", infer(`"answer"`))
	first = mainHand.next()
	w.eventually(1, "SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND reason = 'hedge' AND state = 'starting'", id)
	w.is(first.succeed(), "accepted", "")
	a := c.finished(id, "succeeded")
	require.Equal(t, "1 cancelled", a.text("completed_by")+" "+a.text("attempts.1.state"))
	require.Equal(t, 1, w.number("SELECT count(*) FROM ledger.races WHERE job_id = $1 AND loser_attempt = 2 AND loser_state = 'cancelled' AND loser_seconds IS NULL", id))

	w.serve("worker")
	w.awaitStartsTaken("spare")
	require.Zero(t, spare.count(""))
	c.press(id, "again", `{"provider":"spare"}`).is(http.StatusConflict, "job-finished")
	w.verify()
}
