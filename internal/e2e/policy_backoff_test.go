package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The waits between tries follow from the job's id and the number of its
// attempts alone: they are the documented ones to the millisecond, they differ
// from job to job, and nothing that happens to a process changes them.
func TestBackoffIsTheSameForEver(t *testing.T) {
	t.Parallel()
	const jobs, tries = 6, 4
	main := newStub(t, "main")
	w, c := startWorld(t, `
kinds:
  pay:   {providers: [main], max_attempts: 4, backoff: {initial: 200ms, max: 1s, factor: 3}}
  later: {providers: [main], backoff: {initial: 1h, max: 4h, factor: 2}}
providers:
`+main.provider())
	w.attach(main)
	for i := range jobs {
		c.create(fmt.Sprint(i), pay(`"429"`))
	}
	later := c.create("later", `{"kind":"later","input":{"do":"429"}}`)
	asked := c.create("asked", `{"kind":"later","input":{"do":"429:7200"}}`)
	tooLong := c.create("too long", `{"kind":"later","input":{"do":"429:86400"}}`)

	waits := map[string]time.Duration{later: backoffWait(later, 1, 1, time.Hour, 4*time.Hour, 2), asked: 2 * time.Hour, tooLong: 4 * time.Hour}
	dues := map[string]time.Time{}
	for id, wait := range waits {
		w.becomes(id, "waiting backoff")
		ended := w.moment("SELECT finished_at FROM ledger.attempts WHERE job_id = $1", id)
		dues[id] = w.moment("SELECT due_at FROM ledger.jobs WHERE id = $1", id)
		require.Equal(t, wait, dues[id].Sub(ended))
	}
	for i := range jobs {
		a := c.finished(c.jobID(fmt.Sprint(i)), "failed")
		require.Equal(t, "http_429", a.text("failure.class"))
		require.Len(t, a.body["attempts"], tries)
	}
	w.processes[0].crash()
	for id := range waits {
		require.Equal(t, dues[id], w.moment("SELECT due_at FROM ledger.jobs WHERE id = $1", id))
	}

	// The clock's entries repeat the due times that were set.
	said := map[string]map[time.Time]bool{}
	for _, e := range w.entries("clock.due") {
		if said[e.Job] == nil {
			said[e.Job] = map[time.Time]bool{}
		}
		said[e.Job][e.Due.UTC()] = true
	}
	first := map[time.Duration]bool{}
	for i := range jobs {
		id := c.jobID(fmt.Sprint(i))
		require.Len(t, said[id], tries-1)
		for n := 1; n < tries; n++ {
			ended := w.moment("SELECT finished_at FROM ledger.attempts WHERE job_id = $1 AND number = $2", id, n)
			wait := backoffWait(id, n, n, 200*time.Millisecond, time.Second, 3)
			require.Contains(t, said[id], ended.Add(wait).UTC(), "job %s after attempt %d", id, n)
			next := w.moment("SELECT requested_at FROM ledger.attempts WHERE job_id = $1 AND number = $2", id, n+1)
			require.GreaterOrEqual(t, next.Sub(ended), wait)
			if n == 1 {
				first[wait] = true
			}
		}
	}
	require.Greater(t, len(first), 1, "different first waits")
	require.Equal(t, jobs*tries+len(waits), main.count(""))
	w.verify() // folds the stream anew: the same due times in every cell
}

// A person does not wait for a back-off.
func TestThePressOfAButtonOverridesTheBackoff(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w, c := startWorld(t, oneKind("max_attempts: 2, backoff: {initial: 1h, max: 1h}", main))
	w.attach(main)
	id := c.create("order", pay(`"429"`))
	w.becomes(id, "waiting backoff")
	c.press(id, "now", "").created()
	a := c.finished(id, "failed") // two tries are all that the kind allows
	require.Equal(t, "manual", a.text("attempts.1.reason"))
	c.press(id, "beyond max_attempts", "").created()
	c.finished(id, "failed")
	require.Equal(t, 3, main.count(id))
	w.verify()
}
