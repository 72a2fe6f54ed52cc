package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A later is a job for later, by one of the ways in.
type later struct {
	key string
	at  time.Time // zero: its delay counts
	// delay is what the request says, if it has one.
	delay time.Duration
}

// Jobs for later come by every door, wait without a start, and begin when they
// are due: while a worker is there, after one comes back, and although the
// projector was killed in between.
func TestJobsForLater(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind("", main)})
	w.attach(main)
	p := w.serve("api,projector")
	c := p.client("acme")
	w.apply()
	const delay = 3 * time.Second
	at := time.Now().Add(delay).UTC().Truncate(time.Millisecond)
	runAt := at.Format(time.RFC3339Nano)
	c.create("http delay", `{"kind":"pay","input":{},"delay":"3s"}`)
	c.create("http run_at", `{"kind":"pay","input":{},"run_at":"`+runAt+`"}`)
	for key, flags := range map[string][]string{"cli delay": {"--delay", "3000ms"}, "cli run_at": {"--run-at", runAt}} {
		args := append([]string{"submit", "--owner", "acme", "--key", key, "--kind", "pay", "--input", "{}", "-o", "json"}, flags...)
		var said struct {
			State  string `json:"state"`
			Reason string `json:"state_reason"`
		}
		require.NoError(t, json.Unmarshal([]byte(w.run(args...).is(t, 0).stdout), &said))
		require.Equal(t, "waiting scheduled", said.State+" "+said.Reason)
	}
	w.is(w.publish("job.request", body{"owner": "acme", "key": "plain delay", "kind": "pay", "input": body{}, "delay": "3s"}), "accepted", "")
	w.is(w.publish("job.request", body{"owner": "acme", "key": "plain run_at", "kind": "pay", "input": body{}, "run_at": runAt}), "accepted", "")
	c.create("past", `{"kind":"pay","input":{},"run_at":"2001-02-03T04:05:06Z"}`)

	list := []later{{"http delay", time.Time{}, delay}, {"http run_at", at, 0}, {"cli delay", time.Time{}, delay},
		{"cli run_at", at, 0}, {"plain delay", time.Time{}, delay}, {"plain run_at", at, 0}}
	for i := range list {
		l := &list[i]
		created := w.moment("SELECT created_at FROM ledger.jobs WHERE id = $1", c.jobID(l.key))
		if l.delay > 0 {
			l.at = created.Add(l.delay)
		}
		require.Equal(t, l.at.UTC(), w.moment("SELECT run_at FROM ledger.jobs WHERE id = $1", c.jobID(l.key)).UTC(), l.key)
	}
	// The same intent, said later and in other words, is the same job.
	c.submit("http delay", `{"kind":"pay","input":{},"delay":"3000ms"}`).replayed()
	c.submit("http delay", `{"kind":"pay","input":{},"delay":"4s"}`).is(http.StatusConflict, "idempotency-conflict")
	c.submit("both", `{"kind":"pay","input":{},"delay":"4s","run_at":"`+runAt+`"}`).is(http.StatusBadRequest)
	c.submit("never", `{"kind":"pay","input":{},"delay":"-4s"}`).is(http.StatusBadRequest)
	w.run("submit", "--owner", "acme", "--key", "never", "--kind", "pay", "--input", "{}", "--delay", "-4s").is(t, 2)

	p.crash()
	w.eventually(len(list)+1, "SELECT count(*) FROM ledger.attempts WHERE state = 'starting'") // and nobody to work on them
	require.Zero(t, main.count(""))
	w.serve("worker")
	for _, l := range list {
		id := c.jobID(l.key)
		c.finished(id, "succeeded")
		require.False(t, w.moment("SELECT requested_at FROM ledger.attempts WHERE job_id = $1", id).Before(l.at), "%s began too early", l.key)
	}
	c.finished(c.jobID("past"), "succeeded")
	w.verify()
}

// A scheduled job that a person does not want to wait for begins at once, and
// not once more when it is due.
func TestAScheduledJobIsStartedByHand(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w, c := startWorld(t, oneKind("", main))
	w.attach(main)
	var ids []string
	for i := range 3 {
		ids = append(ids, c.create(fmt.Sprint(i), `{"kind":"pay","input":{},"delay":"2s"}`))
	}
	pressed, cancelled, waits := ids[0], ids[1], ids[2]
	require.Equal(t, "waiting scheduled", c.state(pressed))
	c.press(pressed, "now", "").created()
	c.finished(pressed, "succeeded")
	c.cancel(cancelled).is(http.StatusOK)
	c.finished(waits, "succeeded")
	w.requireQuiet()
	require.Equal(t, []int{1, 0, 1}, []int{main.count(pressed), main.count(cancelled), main.count(waits)})
	w.verify()
}
