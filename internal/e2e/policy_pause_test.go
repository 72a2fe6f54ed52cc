package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// While a provider is paused nothing starts on it by itself, and waiting costs
// nothing: no entry, no sequence. When it is resumed everything goes on.
func TestAPausedProvider(t *testing.T) {
	t.Parallel()
	const jobs = 20
	main, spare, clock := newStub(t, "main"), newStub(t, "spare"), newStub(t, "clock")
	w := newWorld(t, setup{shards: 2, yaml: `
kinds:
  pay:    {providers: [main, spare], backoff: {initial: 100ms, max: 100ms}}
  moves:  {providers: [main, spare]}
  timed:  {providers: [clock]}
providers:
` + main.provider() + spare.provider() + clock.provider(),
		tokens: tokenLine("of-acme", "acme", "producer") + tokenLine("of-root", "root", "operator"),
	})
	w.attach(main, spare, clock)
	p := w.serve("api,projector,worker")
	w.apply()
	c, root := p.client("acme"), p.client("")
	c.token, root.token = "of-acme", "of-root"
	w.prove("spare", "moves") // a kind that fails over does not wait
	running := c.create("running", pay(`"stall"`))
	main.arrived(running, 1)
	fails := c.create("fails", pay(`"stall:429"`))
	main.arrived(fails, 1)

	w.run("provider", "pause", "main", "--reason", "a test").is(t, 0)
	w.is(w.publish("provider.define", body{"name": "main", "paused": true}), "duplicate", "")
	w.is(w.publish("provider.define", body{"name": "nobody", "paused": true}), "refused", "unknown_provider")
	main.release(running)
	main.release(fails)
	c.finished(running, "succeeded") // what runs is left alone
	w.becomes(fails, "waiting provider-paused")
	var waiting []string
	for i := range jobs {
		waiting = append(waiting, c.create(fmt.Sprint(i), pay(`"answer"`)))
		require.Equal(t, "waiting provider-paused", c.state(waiting[i]))
	}
	delayed := c.create("delayed", `{"kind":"pay","input":{},"delay":"500ms"}`)
	w.becomes(delayed, "waiting provider-paused")
	c.press(waiting[0], "button", "").is(http.StatusConflict, "provider-paused")
	c.press(waiting[0], "button", `{"force":true}`).is(http.StatusForbidden, "forbidden")
	root.press(waiting[0], "button", `{"force":true}`).created()
	c.finished(waiting[0], "succeeded")

	moved := c.create("moved", `{"kind":"moves","input":{}}`)
	require.Equal(t, "spare failover", c.finished(moved, "succeeded").text("attempts.0.provider")+" "+c.job(moved).text("attempts.0.reason"))

	p.crash()
	w.caughtUp()
	dues := len(w.entries("clock.due"))
	for i := range 3 { // jobs with a time of their own show that the clock has looked
		c.finished(c.create(fmt.Sprint("timed ", i), `{"kind":"timed","input":{},"delay":"600ms"}`), "succeeded")
	}
	require.Len(t, w.entries("clock.due"), dues+3)
	require.Equal(t, jobs+1, w.number("SELECT count(*) FROM ledger.jobs WHERE state_reason = 'provider-paused'"))
	require.Equal(t, 3, main.count("")) // running, fails and the forced one

	root.do("POST", "/v1/providers/main/resume", "").is(http.StatusOK)
	for _, id := range append(waiting, delayed) {
		a := c.finished(id, "succeeded")
		require.Len(t, a.body["attempts"], 1)
		require.Equal(t, 1, main.count(id))
	}
	w.verify()
}
