package e2e_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/workers/presence"
)

// A kind whose attempts may take an hour, and whose workers may be silent for
// longer than a busy machine makes one of them wait that is well.
const heartbeats = "attempt_timeout: 1h, heartbeat_timeout: 15s"

// keys returns the names in the bucket of the workers' presence.
func (w *world) keys() []string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	kv, err := w.js.KeyValue(ctx, presence.Bucket(w.stream))
	require.NoError(w.t, err)
	list, err := kv.ListKeys(ctx)
	require.NoError(w.t, err)
	var keys []string
	for key := range list.Keys() {
		keys = append(keys, key)
	}
	return keys
}

// awaitKeys waits until so many processes are known.
func (w *world) awaitKeys(n int) {
	w.t.Helper()
	testenv.Eventually(w.t, patience, func() (bool, string) {
		return len(w.keys()) == n, "not so many processes announce themselves"
	})
}

// A worker is killed: what it was doing becomes unknown after seconds and not at
// the deadline. What another worker does, does not.
func TestAKilledWorkerIsNoticed(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: "kinds:\n  pay: {providers: [main], " + heartbeats + "}\nproviders:\n" + main.provider("concurrency: 1")})
	w.attach(main)
	c := w.serve("api,projector,reconciler").client("acme")
	w.apply()
	doomed := w.serve("worker")
	first := c.create("first", pay(`"stall"`))
	main.arrived(first, 1)
	healthy := w.serve("worker")
	w.awaitKeys(3)
	second := c.create("second", pay(`"stall"`)) // the first worker has no slot for it
	main.arrived(second, 1)

	doomed.kill()
	w.eventually(1, "SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND state = 'unknown'", first)
	require.Equal(t, 1, w.number("SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND unknown_since >= started_at + interval '10 seconds'", first))
	a := c.job(first)
	require.Equal(t, "unknown worker_lost", a.text("state")+" "+a.text("attempts.0.failure.class"))
	require.Contains(t, a.text("attempts.0.failure.message"), "nothing was heard of the worker for")
	require.Equal(t, "running", c.job(second).text("state"))
	main.release(second)
	c.finished(second, "succeeded")
	healthy.stop()
	main.releaseAll()
	w.verify()
}

// Workers that stop as they are asked to leave nobody to be missed.
func TestCleanExitsAreNoLosses(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind(heartbeats, main)})
	w.attach(main)
	c := w.serve("api,projector").client("acme")
	w.apply()
	worker, reconciler := w.serve("worker"), w.serve("reconciler")
	w.awaitKeys(2)
	c.finished(c.create("order", pay(`"answer"`)), "succeeded")
	worker.stop()
	w.awaitKeys(1)
	reconciler.stop()
	w.awaitKeys(0)
	w.verify()
}

// A worker that was only paused comes back: it is called lost, and what it then
// says counts if nobody has won, and is dropped if somebody has.
func TestAPausedWorkerComesBack(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind(heartbeats, main)})
	w.attach(main)
	c := w.serve("api,projector,reconciler").client("acme")
	w.apply()
	paused := w.serve("worker")
	alone := c.create("nobody has won", pay(`"stall"`))
	beaten := c.create("somebody has won", pay(`"stall"`))
	main.arrived(alone, 1)
	main.arrived(beaten, 1)
	w.eventually(2, "SELECT count(*) FROM ledger.attempts WHERE state = 'running'")
	w.awaitKeys(2)

	paused.freeze()
	w.eventually(2, "SELECT count(*) FROM ledger.attempts WHERE state = 'unknown' AND failure_class = 'worker_lost'")
	c.resolve(beaten, 1, `{"as":"succeeded","result":{"by":"a person"},"reason":"seen in the provider's books"}`).is(200)

	main.releaseAll()
	paused.thaw()
	a := c.finished(alone, "succeeded")
	require.JSONEq(t, `{"by":"main","attempt":1}`, a.text("result"))
	require.Equal(t, "1", a.text("completed_by"))
	w.eventually(1, "SELECT count(*) FROM ledger.rejections WHERE job_id = $1 AND entry = 'attempt.complete' AND reason = 'result_already_claimed'", beaten)
	require.JSONEq(t, `{"by":"a person"}`, c.job(beaten).text("result"))
	paused.stop()
	w.verify()
}

// Without the bucket work goes on, and the log says what is missing.
func TestWorkGoesOnWithoutPresence(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind(heartbeats, main)})
	w.attach(main)
	require.NoError(t, w.js.DeleteKeyValue(w.ctx(), presence.Bucket(w.stream)))
	p := w.serve("api,projector,worker,reconciler")
	w.apply()
	c := p.client("acme")
	c.finished(c.create("order", pay(`"answer"`)), "succeeded")
	require.Contains(t, p.log.String(), "there is no bucket for the workers' presence")
	p.stop()
	p.start()
	w.verify()
}
