package e2e_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

func TestCancelledBeforeItBegan(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind("", main)})
	w.attach(main)
	c := w.serve("api,projector").client("acme")
	w.apply()
	id := c.create("order", pay(`"answer"`))
	c.cancel(id).is(http.StatusOK)
	w.serve("worker")
	w.awaitStartsTaken("main")
	require.Zero(t, main.count(""), "the provider was called for a cancelled job")
	a := c.job(id)
	require.Equal(t, "cancelled cancelled", a.text("state")+" "+a.text("attempts.0.state"))
	c.submit("order", pay(`"answer"`)).replayed()
	w.verify()
}

// awaitStartsTaken waits until the provider's worker has dealt with every start.
func (w *world) awaitStartsTaken(provider string) {
	w.t.Helper()
	testenv.Eventually(w.t, patience, func() (bool, string) {
		consumer, err := w.js.Consumer(w.ctx(), w.stream, "worker-"+provider)
		if err != nil {
			return false, err.Error()
		}
		info := consumer.CachedInfo()
		return info.Delivered.Stream > 0 && info.NumPending == 0 && info.NumAckPending == 0,
			fmt.Sprintf("%d starts are pending, %d not acknowledged", info.NumPending, info.NumAckPending)
	})
}

const (
	cancelRaces = 200
	cancelWave  = 20 // at the same time
)

func TestCancelRacesWithTheFinish(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w, c := startWorld(t, oneKind("", main))
	w.attach(main)
	answers := make([]answer, cancelRaces)
	errs := make([]error, cancelRaces)
	for wave := 0; wave < cancelRaces; wave += cancelWave {
		var all sync.WaitGroup
		for i := wave; i < wave+cancelWave; i++ {
			all.Go(func() { answers[i], errs[i] = cancelRace(c, main, i) })
		}
		all.Wait()
	}
	for _, err := range errs {
		require.NoError(t, err)
	}
	w.eventually(0, "SELECT count(*) FROM ledger.attempts WHERE state IN ('starting', 'running')")
	cancelled := 0
	for i := range cancelRaces {
		state := c.job(c.jobID(fmt.Sprint(i))).text("state")
		if answers[i].status == http.StatusOK {
			cancelled++
			require.Equal(t, "cancelled", state)
			continue
		}
		answers[i].is(http.StatusConflict, "job-finished")
		require.Equal(t, "succeeded", state)
	}
	t.Logf("%d of %d cancels were in time", cancelled, cancelRaces)
	require.Equal(t, cancelRaces, w.number("SELECT count(*) FROM ledger.jobs WHERE (completed_by IS NULL) <> (cancelled_at IS NULL)"))
	w.verify()
}

// cancelRace submits a job and cancels it at the moment at which it may finish.
func cancelRace(c *client, s *stub, i int) (answer, error) {
	key := fmt.Sprint(i)
	a, err := c.verdict("POST", "/v1/jobs", pay(`"stall"`), "Idempotency-Key", key)
	id := c.jobID(key)
	if err != nil || a.text("id") != id {
		return a, fmt.Errorf("submit: %s %w", a.raw, err)
	}
	if !s.waitFor(id, 1) {
		return a, fmt.Errorf("job %s has not reached the provider", id)
	}
	go s.release(id)
	return c.verdict("POST", jobPath(id)+"/cancel", "")
}
