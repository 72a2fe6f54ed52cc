package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// oneKind is a configuration with one kind, pay, on the given stubs.
func oneKind(members string, stubs ...*stub) string {
	var names []string
	providers := ""
	for _, s := range stubs {
		names = append(names, s.name)
		providers += s.provider()
	}
	if members != "" {
		members = ", " + members
	}
	return fmt.Sprintf("kinds:\n  pay: {providers: [%s]%s}\nproviders:\n%s", strings.Join(names, ", "), members, providers)
}

// pay is a request for the kind, with orders for the stubs.
func pay(do string) string { return `{"kind":"pay","input":{"do":` + do + `}}` }

func TestOneJobFromEndToEnd(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w, c := startWorld(t, oneKind("", main))
	w.attach(main)
	id := c.create("order-17", pay(`"answer"`))
	a := c.finished(id, "succeeded")
	require.JSONEq(t, `{"by":"main","attempt":1}`, a.text("result"))
	require.Equal(t, "main-1", a.text("attempts.0.provider_ref"))
	require.Equal(t, 1, main.count(id))
	require.Equal(t, stubCall{job: id, attempt: "1", key: id}, main.calls[0])
	c.submit("order-17", pay(`"answer"`)).replayed()
	c.submit("order-17", pay(`"close"`)).is(http.StatusConflict, "idempotency-conflict")
	w.refusesNobody(c)
	w.verify()
}

const clicks = 100

// volley makes n requests at the same moment and returns the answers.
func volley(t testing.TB, n int, request func(i int) (answer, error)) []answer {
	t.Helper()
	answers, errs := make([]answer, n), make([]error, n)
	barrier := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-barrier
			answers[i], errs[i] = request(i)
		})
	}
	close(barrier)
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return answers
}

// oneAndReplays insists that one of the answers is 201 and all others are
// replays, all of the same thing. Where one had to be asked for again, its first
// request may be the one that did it.
func oneAndReplays(t testing.TB, answers []answer, member string) {
	t.Helper()
	created, repeated := 0, false
	for _, a := range answers {
		require.Equal(t, answers[0].text(member), a.text(member))
		repeated = repeated || a.repeated
		if a.status == http.StatusCreated {
			created++
			continue
		}
		a.replayed()
	}
	require.LessOrEqual(t, created, 1, "answers that say 201")
	if !repeated {
		require.Equal(t, 1, created, "answers that say 201")
	}
}

func TestDoubleClick(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind("", main), shards: 4})
	w.attach(main)
	w.serve("projector,worker")
	w.apply()
	one, other := w.serve("api").client("acme"), w.serve("api").client("acme")
	clients := []*client{one, other}

	body := pay(`"answer"`)
	answers := volley(t, clicks, func(i int) (answer, error) {
		return clients[i%2].verdict("POST", "/v1/jobs", body, "Idempotency-Key", "click")
	})
	oneAndReplays(t, answers, "id")
	w.requireOneOfEach(one, main, "click")

	doubled := &doubler{to: clients, t: t}
	proxy := httptest.NewServer(doubled)
	defer proxy.Close()
	through := one.at(proxy.URL)
	volley(t, clicks/2, func(int) (answer, error) {
		return through.verdict("POST", "/v1/jobs", body, "Idempotency-Key", "doubled")
	})
	require.Len(t, doubled.answers, clicks)
	oneAndReplays(t, doubled.answers, "id")
	w.requireOneOfEach(one, main, "doubled")
	require.Zero(t, w.number("SELECT count(*) FROM ledger.rejections"))
	w.verify()
}

// requireOneOfEach: one job, one attempt, one call.
func (w *world) requireOneOfEach(c *client, s *stub, key string) {
	w.t.Helper()
	id := c.jobID(key)
	c.finished(id, "succeeded")
	require.Equal(w.t, 1, s.count(id), "wire calls")
	require.Equal(w.t, 1, w.number("SELECT count(*) FROM ledger.jobs WHERE idempotency_key = $1", key))
	require.Equal(w.t, 1, w.number("SELECT count(*) FROM ledger.attempts WHERE job_id = $1", id))
}

// A doubler is a proxy that sends each request twice, at once, to the servers in
// turn, and passes the first answer on.
type doubler struct {
	t    testing.TB
	to   []*client
	turn atomic.Int64

	mu      sync.Mutex
	answers []answer
}

func (d *doubler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		d.t.Error(err)
		return
	}
	first := make(chan answer, 2)
	for range 2 {
		c := d.to[d.turn.Add(1)%int64(len(d.to))]
		go func() {
			a, err := c.verdict(r.Method, r.URL.Path, string(bytes.Clone(text)), "Idempotency-Key", r.Header.Get("Idempotency-Key"))
			if err != nil {
				d.t.Error(err)
			}
			d.mu.Lock()
			d.answers = append(d.answers, a)
			d.mu.Unlock()
			first <- a
		}()
	}
	a := <-first
	defer func() { <-first }() // before the server may be closed
	for name, values := range a.header {
		rw.Header()[name] = values
	}
	rw.WriteHeader(a.status)
	_, _ = rw.Write(a.raw)
}

func TestDoubleClickOnTheFallbackButton(t *testing.T) {
	t.Parallel()
	main, spare := newStub(t, "main"), newStub(t, "spare")
	w, c := startWorld(t, oneKind("", main, spare))
	w.attach(main, spare)
	id := c.create("order", pay(`{"main":"400","spare":"stall"}`))
	c.finished(id, "failed")

	const force = `{"provider":"spare","force":true}`
	c.press(id, "again", `{"provider":"spare"}`).is(http.StatusConflict, "provider-not-verified")
	answers := volley(t, clicks/4, func(int) (answer, error) {
		return c.verdict("POST", jobPath(id)+"/attempts", force, "Idempotency-Key", "button")
	})
	oneAndReplays(t, answers, "number")
	require.Equal(t, "2", answers[0].text("number"))
	require.Equal(t, jobPath(id)+"/attempts/2", answers[0].header.Get("Location"))
	c.press(id, "button", `{"provider":"main"}`).is(http.StatusConflict, "idempotency-conflict")
	spare.arrived(id, 1)
	busy := c.press(id, "another click", force).is(http.StatusConflict, "attempt-in-flight")
	require.Equal(t, "2", busy.text("attempt"))
	spare.release(id)
	c.finished(id, "succeeded")
	c.press(id, "button", force).replayed()
	c.press(id, "yet another", force).is(http.StatusConflict, "job-finished")
	require.Equal(t, 1, main.count(id))
	require.Equal(t, 1, spare.count(id))

	// Many people press it, each with a key of their own.
	id = c.create("another order", pay(`{"main":"400","spare":"stall"}`))
	c.finished(id, "failed")
	started := 0
	for _, a := range volley(t, clicks/10, func(i int) (answer, error) {
		return c.verdict("POST", jobPath(id)+"/attempts", force, "Idempotency-Key", fmt.Sprint("person ", i))
	}) {
		if a.status == http.StatusConflict {
			require.Equal(t, "2", a.is(http.StatusConflict, "attempt-in-flight").text("attempt"))
			continue
		}
		require.Equal(t, "2", a.created().text("number"))
		started++
	}
	require.Equal(t, 1, started)
	spare.release(id)
	c.finished(id, "succeeded")
	require.Equal(t, 1, spare.count(id))
	w.verify()
}
