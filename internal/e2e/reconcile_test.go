package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

// reconcileConfig has two kinds on one provider's two faces: one whose absence
// says nothing, and one that promises to know all of its attempts.
func reconcileConfig(b *books) string {
	return "kinds:\n" +
		"  pay:  {providers: [plain], attempt_timeout: 1h, max_attempts: 1}\n" +
		"  sure: {providers: [sure], attempt_timeout: 2s, max_attempts: 1}\n" +
		"providers:\n" + b.provider("plain", b.lookup()) + b.provider("sure", b.lookup()+", not_found: failed")
}

// What the provider's look-up knows settles an unknown attempt; what it does not
// know, or says of another attempt, changes nothing.
func TestUnknownsAreSettledByLookup(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	w := newWorld(t, setup{yaml: reconcileConfig(b)})
	c := w.serve("api,projector,worker").client("acme")
	w.apply()
	answers := map[string]string{
		"succeeded": `{"attempt":$attempt,"status":"succeeded","result":{"seen":1.50}}`,
		"failed":    `{"attempt":$attempt,"status":"failed","message":"no money"}`,
		"running":   `{"attempt":$attempt,"status":"running"}`,
		"another":   `{"attempt":2,"status":"succeeded","result":{"of":"another"}}`,
		"absent":    `{"attempt":$attempt,"status":"not_found"}`,
		"prose":     `Sorry, we are being redesigned.`,
		"invalid":   `{"attempt":$attempt,"status":"succeeded","result":{"a":1,"a":2}}`,
		"broken":    "",
	}
	for key, answer := range answers {
		b.set(func() { b.before[c.jobID(key)], b.answers[c.jobID(key)] = drop, answer })
		c.create(key, `{"kind":"pay","input":{}}`)
	}
	for key := range answers {
		c.settled(c.jobID(key), "unknown")
	}
	reconciler := w.serve("reconciler")
	other := w.serve("reconciler") // two of them do no harm

	a := c.finished(c.jobID("succeeded"), "succeeded")
	require.JSONEq(t, `{"seen":1.5}`, a.text("result"))
	require.Regexp(t, "^reconciler/.+/[0-9]+/", a.text("attempts.0.resolved_by"))
	require.Equal(t, "provider plain answered the look-up: succeeded", a.text("attempts.0.resolution_reason"))
	a = c.finished(c.jobID("failed"), "failed")
	require.Equal(t, "lookup_failed true", a.text("attempts.0.failure.class")+" "+a.text("attempts.0.failure.executed"))
	require.Contains(t, a.text("attempts.0.resolution_reason"), "no money")

	for _, key := range []string{"running", "another", "absent", "prose", "invalid", "broken"} {
		b.awaitCount(t, b.lookups, c.jobID(key)+"/1", 4)
		a := c.job(c.jobID(key))
		require.Equal(t, "unknown unknown", a.text("state")+" "+a.text("attempts.0.state"), key)
		require.Empty(t, a.text("attempts.0.resolved_by"), key)
	}
	require.Zero(t, w.number("SELECT count(*) FROM ledger.rejections WHERE entry = 'attempt.resolve' AND decision = 'malformed'"))

	// What was running ends, and is found out.
	b.set(func() { b.answers[c.jobID("running")] = answers["succeeded"] })
	c.finished(c.jobID("running"), "succeeded")
	reconciler.stop()
	other.stop()
	for key := range answers {
		require.Equal(t, 1, b.count(b.calls, c.jobID(key)+"/1"), "calls of %s", key)
	}
	w.verify()
}

// That an attempt is not found is the truth if the provider declares it, and
// then only after the deadline: until then the request may be under way.
func TestAbsenceIsTheTruthWhereItIsDeclared(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	w, c := startWorld(t, reconcileConfig(b))
	w.serve("reconciler")
	id := c.jobID("order")
	b.set(func() { b.before[id], b.answers[id] = drop, `{"attempt":$attempt,"status":"not_found"}` })
	c.create("order", `{"kind":"sure","input":{}}`)
	a := c.finished(id, "failed")
	require.Equal(t, "not_found false", a.text("attempts.0.failure.class")+" "+a.text("attempts.0.failure.executed"))
	require.Equal(t, 1, w.number("SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND unknown_since < deadline AND resolved_at > deadline", id))
	require.Greater(t, b.count(b.lookups, id+"/1"), 1, "it was asked before the deadline, too")
	w.verify()
}

func replayConfig(b *books, kind string) string {
	return fmt.Sprintf("kinds:\n  pay: {providers: [plain], max_attempts: 1, %s}\nproviders:\n%s", kind, b.provider("plain", "replay: true"))
}

// A provider that honours idempotency keys is sent the same request again: one
// effect, and one request for each claim that the fold accepted.
func TestReplayHasOneEffect(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	w, c := startWorld(t, replayConfig(b, "attempt_timeout: 1h"))
	lost, late := c.jobID("the answer is lost"), c.jobID("the request is lost")
	down := c.jobID("lost again and again")
	b.set(func() {
		b.after[lost], b.before[late] = dropFirst, dropFirst
		b.after[down] = func(n int) {
			if n <= 3 {
				drop(n)
			}
		}
	})
	input := `{"kind":"pay","input":{"n": 1.50, "text":"\u00e9"}}`
	for _, key := range []string{"the answer is lost", "the request is lost", "lost again and again"} {
		c.create(key, input)
		c.settled(c.jobID(key), "unknown")
	}
	w.serve("reconciler")
	w.serve("reconciler")
	for id, replays := range map[string]int{lost: 1, late: 1, down: 3} {
		a := c.finished(id, "succeeded")
		require.JSONEq(t, fmt.Sprintf(`{"by":"the books","key":%q}`, id), a.text("result"))
		require.Equal(t, replays, w.number("SELECT replays FROM ledger.attempts WHERE job_id = $1", id))
		require.Equal(t, replays+1, b.count(b.calls, id+"/1"), "requests")
		require.Equal(t, 1, b.count(b.effects, id), "effects")
		require.Contains(t, b.bodies[id+"/1"], `"input":{"n": 1.50, "text":"\u00e9"}`)
		require.Equal(t, "1", a.text("completed_by"))
		require.Equal(t, "", a.text("attempts.1.state"))
	}
	w.verify()
}

// The reconciler dies in the middle of a replay: the claim that it made is as
// good as any other, and so is its end.
func TestReconcilerDiesInAReplay(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	w, c := startWorld(t, replayConfig(b, heartbeats))
	id := c.jobID("order")
	hold := make(chan struct{})
	b.set(func() {
		b.after[id] = func(n int) {
			switch n {
			case 1:
				drop(n)
			case 2:
				<-hold
			}
		}
	})
	defer close(hold)
	c.create("order", `{"kind":"pay","input":1}`)
	c.settled(id, "unknown")
	doomed := w.serve("reconciler")
	b.awaitCount(t, b.calls, id+"/1", 2)
	w.eventually(1, "SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND state = 'running' AND replays = 1", id)
	require.Equal(t, "running", c.job(id).text("state"))
	doomed.kill()
	w.serve("reconciler")
	a := c.finished(id, "succeeded")
	require.JSONEq(t, fmt.Sprintf(`{"by":"the books","key":%q}`, id), a.text("result"))
	require.Equal(t, 2, w.number("SELECT replays FROM ledger.attempts WHERE job_id = $1", id))
	require.Equal(t, []int{3, 1}, []int{b.count(b.calls, id+"/1"), b.count(b.effects, id)}, "requests, effects")
	w.verify()
}

// A replay that is under way when everything is told to stop is finished and
// recorded.
func TestReplaysEndBeforeTheProcess(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	w := newWorld(t, setup{yaml: replayConfig(b, "attempt_timeout: 1h")})
	c := w.serve("api,projector").client("acme")
	w.apply()
	p := w.serve("worker,reconciler")
	id := c.jobID("order")
	called, hold := make(chan struct{}), make(chan struct{})
	b.set(func() {
		b.after[id] = func(n int) {
			if n == 1 {
				drop(n)
			}
			close(called)
			<-hold
		}
	})
	c.create("order", `{"kind":"pay","input":1}`)
	<-called
	p.terminate()
	w.eventually(1, "SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND state = 'running' AND replays = 1", id)
	close(hold)
	p.stop()
	c.finished(id, "succeeded")
	require.Equal(t, http.StatusOK, c.job(id).status)
	require.Equal(t, 2, b.count(b.calls, id+"/1"))
	w.verify()
}

// The provider has moved: whoever stands at the new place has never seen the
// idempotency key, so the request is not sent again.
func TestNothingIsReplayedElsewhere(t *testing.T) {
	t.Parallel()
	b, elsewhere := newBooks(t), newBooks(t)
	w, c := startWorld(t, replayConfig(b, "attempt_timeout: 1h"))
	id := c.jobID("order")
	b.set(func() { b.after[id] = drop })
	c.create("order", `{"kind":"pay","input":1}`)
	c.settled(id, "unknown")
	w.writeConfig(setup{yaml: replayConfig(elsewhere, "attempt_timeout: 1h")})
	w.apply()
	p := w.serve("reconciler")
	testenv.Eventually(t, patience, func() (bool, string) {
		return strings.Contains(p.log.String(), "an unknown attempt is not replayed"), "the reconciler has not refused it"
	})
	require.Equal(t, "unknown", c.job(id).text("state"))
	require.Equal(t, []int{1, 0}, []int{b.count(b.calls, id+"/1"), elsewhere.count(elsewhere.calls, id+"/1")})
	w.verify()
}
