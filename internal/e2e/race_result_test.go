package e2e_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// handConfig has kinds on two providers that the test plays itself.
const handConfig = `
kinds:
  pay:   {providers: [main, spare]}
  brief: {providers: [main, spare], attempt_timeout: 300ms}
  infer: {providers: [main, spare], effects: none, mode: race, hedge_after: 100ms}
providers:
  main:  {type: exec, command: ["false"]}
  spare: {type: exec, command: ["false"]}
`

// A handWorld is a world without workers.
type handWorld struct {
	*world
	c           *client
	main, spare *hand
}

// Whoever returns second loses, even if it was the primary.
func TestTheSecondToReturnLoses(t *testing.T) {
	t.Parallel()
	w := &handWorld{world: newWorld(t, setup{yaml: handConfig})}
	w.c = w.serve("api,projector").client("acme")
	w.apply()
	w.main, w.spare = w.byHand("main"), w.byHand("spare")
	w.inARace()
	w.afterItWasResolved("pay", "running")
	w.afterItWasResolved("brief", "unknown")
	w.afterTheJobWasCancelled()
	w.unlessItWasAloneAndLate()
	w.verify()
}

// requireDropped: the loser's completion is kept as a rejection that points to
// its sequence, and none of it has come into the job.
func (w *world) requireDropped(d decision, loser *handful, reason string) {
	w.t.Helper()
	w.is(d, "refused", reason)
	require.Equal(w.t, 1, w.number(`SELECT count(*) FROM ledger.rejections WHERE seq = $1 AND entry = $2
		AND job_id = $3 AND attempt = $4 AND reason = $5`,
		d.Seq, "attempt.complete", loser.Job, loser.Attempt, reason), "rejections")
	require.Zero(w.t, w.number("SELECT count(*) FROM ledger.jobs WHERE id = $1 AND result = $2::jsonb", loser.Job, loser.result()))
}

// requireRace: the race is on record.
func (w *world) requireRace(job string, winner, loser int, state string) {
	w.t.Helper()
	require.Equal(w.t, fmt.Sprintf("%d %d %s", winner, loser, state), w.text(`SELECT concat(coalesce(winner_attempt, 0), ' ', loser_attempt, ' ', loser_state)
		FROM ledger.races WHERE job_id = $1`, job))
	require.Equal(w.t, 1, w.number("SELECT count(*) FROM ledger.races WHERE job_id = $1 AND late IS NOT NULL AND loser_seconds >= 0", job))
}

func (w *handWorld) inARace() {
	t, c := w.t, w.c
	w.prove("spare", "infer")
	id := c.create("race", `{"kind":"infer","input":1}`)
	primary := w.main.next()
	hedge := w.spare.next() // started by itself, because the primary is slow
	require.Equal(t, []any{1, 2, id, id}, []any{primary.Attempt, hedge.Attempt, primary.Job, hedge.Job})

	w.is(hedge.succeed(), "accepted", "")
	won := c.finished(id, "succeeded")
	require.Equal(t, "2", won.text("completed_by"))
	require.Equal(t, "hedge", won.text("attempts.1.reason"))

	d := primary.succeed()
	w.requireDropped(d, primary, "result_already_claimed")
	w.requireRace(id, 2, 1, "superseded")
	after := c.job(id)
	require.JSONEq(t, hedge.result(), after.text("result"))
	for _, member := range []string{"state", "version", "completed_by", "completed_at", "result"} {
		require.Equal(t, won.text(member), after.text(member), member)
	}
	require.JSONEq(t, `{"tokens":7}`, w.text("SELECT loser_usage::text FROM ledger.races WHERE job_id = $1", id))
	w.is(primary.succeed(), "duplicate", "")
	w.is(primary.complete(body{"outcome": "failed", "failure": body{"class": "late", "message": "changed its mind", "executed": true}}),
		"refused", "result_already_claimed")
}

// afterItWasResolved: somebody has called the first attempt off, which runs or
// is unknown, and pressed the button.
func (w *handWorld) afterItWasResolved(kind, state string) {
	t, c := w.t, w.c
	id := c.create("resolved "+state, `{"kind":"`+kind+`","input":1}`)
	primary := w.main.next()
	if state == "unknown" {
		c.settled(id, state)
	}
	c.resolve(id, 1, `{"as":"cancelled","reason":"it hangs"}`).is(http.StatusOK)
	c.press(id, "fallback", `{"provider":"spare","force":true}`).created()
	second := w.spare.next()
	require.Equal(t, 2, second.Attempt)

	// The first returns while the second is at work: it is fenced.
	w.requireDropped(primary.succeed(), primary, "attempt_ended")
	require.Contains(t, []string{"running", "unknown"}, c.job(id).text("state"))
	w.is(second.succeed(), "accepted", "")
	require.JSONEq(t, second.result(), c.finished(id, "succeeded").text("result"))
	// And again after the second has won.
	d := primary.complete(body{"outcome": "succeeded", "result": body{"by": "main", "attempt": 1}, "provider_ref": "later"})
	w.requireDropped(d, primary, "result_already_claimed")
	w.requireRace(id, 2, 1, "cancelled")
}

func (w *handWorld) afterTheJobWasCancelled() {
	t, c := w.t, w.c
	id := c.create("cancelled", `{"kind":"pay","input":1}`)
	primary := w.main.next()
	a := c.cancel(id).is(http.StatusOK)
	require.Equal(t, "cancelled", a.text("state"))
	c.cancel(id).replayed()
	w.requireDropped(primary.succeed(), primary, "fenced")
	w.requireRace(id, 0, 1, "superseded")
	a = c.job(id)
	require.Equal(t, "cancelled", a.text("state"))
	require.Equal(t, "", a.text("completed_by"))
	c.press(id, "button", "").is(http.StatusConflict, "job-finished")
}

func (w *handWorld) unlessItWasAloneAndLate() {
	t, c := w.t, w.c
	id := c.create("late", `{"kind":"brief","input":1}`)
	primary := w.main.next()
	c.settled(id, "unknown")
	w.is(primary.succeed(), "accepted", "")
	a := c.finished(id, "succeeded")
	require.Equal(t, "1", a.text("completed_by"))
	w.is(primary.succeed(), "duplicate", "")
	require.Zero(t, w.number("SELECT count(*) FROM ledger.races WHERE job_id = $1", id))
}

const races = 12 // below a worker's concurrency

// Both providers answer at the same moment.
func TestRacesHaveOneWinner(t *testing.T) {
	t.Parallel()
	main, spare := newStub(t, "main"), newStub(t, "spare")
	w, c := startWorld(t, oneKind("effects: none, mode: race, hedge_after: 1h", main, spare))
	w.attach(main, spare)
	for i := range races {
		id := c.create(fmt.Sprint(i), pay(`"stall"`))
		c.press(id, "hedge", `{"provider":"spare","force":true}`).created()
	}
	for i := range races {
		id := c.jobID(fmt.Sprint(i))
		main.arrived(id, 1)
		spare.arrived(id, 1)
	}
	var both sync.WaitGroup
	for _, s := range []*stub{main, spare} {
		both.Go(s.releaseAll)
	}
	both.Wait()
	for i := range races {
		c.finished(c.jobID(fmt.Sprint(i)), "succeeded")
	}
	w.eventually(0, "SELECT count(*) FROM ledger.attempts WHERE state IN ('starting', 'running')")
	require.Equal(t, races, w.number("SELECT count(*) FROM ledger.attempts WHERE state = 'succeeded'"))
	require.Equal(t, races, w.number("SELECT count(*) FROM ledger.attempts WHERE state IN ('superseded', 'unknown', 'cancelled', 'failed')"))
	require.Equal(t, races, w.number("SELECT count(*) FROM ledger.races"))
	require.Zero(t, w.number(`SELECT count(*) FROM ledger.jobs AS j JOIN ledger.attempts AS a ON a.job_id = j.id AND a.number = j.completed_by
		WHERE j.result->>'by' <> a.provider OR (j.result->>'attempt')::int <> a.number`), "results of another attempt than the winner")
	w.verify()
}
