package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/internal/testenv/ledgerenv"
	"jobledger/ledger"
)

// world makes a ledger on the server, whose parts speak as the template's users.
func (v *walled) world(yaml string) *world {
	v.t.Helper()
	w := &world{t: v.t, dir: v.t.TempDir(), nats: v.url, database: ledgerenv.Database(v.t), stream: "LEDGER", prefix: "ledger"}
	var err error
	w.js, err = jetstream.New(v.connect("admin"))
	require.NoError(v.t, err)
	w.writeConfig(setup{yaml: yaml})
	w.run(append(v.flags("admin"), "init")...).is(v.t, 0)
	w.openPool()
	v.t.Cleanup(w.stopAll)
	return w
}

// serveWorker serves a provider alone, as its own user.
func (v *walled) serveWorker(w *world, s *stub) {
	v.t.Helper()
	file := filepath.Join(w.dir, s.name+".yaml")
	text := fmt.Sprintf("nats: {url: %q}\napi: {metrics: \"\"}\nproviders:\n%s", w.nats, s.provider())
	require.NoError(v.t, os.WriteFile(file, []byte(text), 0o600))
	w.serve("worker", v.asUser("worker-"+s.name), func(p *process) { p.args = append(p.args, "--config", file) })
}

// decided publishes a request as the producer shop, and returns the decision.
func (v *walled) decided(nc *nats.Conn, key, do string) ledger.Answer {
	v.t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(v.t, err)
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	require.NoError(v.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = js.PublishMsg(ctx, &nats.Msg{
		Subject: "ledger.job.request.shop", Data: []byte(order("acme", key, do)), Header: nats.Header{ledger.ReplyHeader: {inbox}},
	})
	require.NoError(v.t, err)
	msg, err := sub.NextMsg(patience)
	require.NoError(v.t, err)
	answer, err := ledger.ParseAnswer(msg.Data)
	require.NoError(v.t, err)
	return answer
}

// TestPermissionsSuffice: every part of a ledger does its work as its own user
// of the template, and none asks for anything that it may not do.
func TestPermissionsSuffice(t *testing.T) {
	t.Parallel()
	v := startWalled(t)
	primary, fallback := newStub(t, "primary"), newStub(t, "fallback")
	w := v.world(oneKind("failover: never", primary, fallback))
	w.attach(primary, fallback)
	w.serve("projector", v.asUser("projector"))
	operator := func(args ...string) output { t.Helper(); return w.run(append(v.flags("operator"), args...)...) }
	operator("kind", "apply", w.config).is(t, 0)
	v.serveWorker(w, primary)
	v.serveWorker(w, fallback)
	w.serve("reconciler", v.asUser("reconciler"))
	c := w.serve("api", v.asUser("api")).client("acme")

	// A producer publishes, and hears the decision and the end.
	shop := v.connect("shop")
	ends, err := shop.SubscribeSync("ledger.outcome.*")
	require.NoError(t, err)
	require.NoError(t, shop.Flush())
	require.Equal(t, ledger.Accepted, v.decided(shop, "published", "answer").Decision)
	_, err = ends.NextMsg(patience)
	require.NoError(t, err)
	c.finished(c.jobID("published"), "succeeded")

	// It calls the services, finds them, and is stopped at resolving.
	s := &services{w: w, nc: shop, subjects: map[string]string{}}
	for _, name := range []string{"job.submit", "job.get", "job.cancel", "attempt.start", "attempt.resolve"} {
		s.subjects[strings.ReplaceAll(name, ".", "-")] = "ledger.api." + name
	}
	require.Len(t, s.infos(), 1)
	s.call("job-submit", named("called", `"kind":"pay","input":{"do":{"primary":"stall","*":"answer"}}`)).is(http.StatusCreated)
	id := c.jobID("called")
	primary.arrived(id, 1)
	_, err = shop.Request("ledger.api.attempt.resolve", []byte(named("called", `"attempt":1,"as":"cancelled","reason":"r"`)), time.Second)
	require.ErrorIs(t, err, nats.ErrTimeout, "the server drops it")

	// An operator settles it, the provider's work is stopped, and the operator
	// has the other provider do it, which the producer may not force.
	operator("attempt", "resolve", id, "1", "--as", "cancelled", "--reason", "it hangs").is(t, 0)
	start := fmt.Sprintf(`{"owner":"acme","job":%q,"key":"click","provider":"fallback"}`, id)
	s.call("attempt-start", start).is(http.StatusConflict, "provider-not-verified")
	operator("attempt", "start", id, "--provider", "fallback", "--force").is(t, 0)
	require.JSONEq(t, `{"by":"fallback","attempt":2}`, c.finished(id, "succeeded").text("result"))

	// Over HTTP, and by the command line.
	stalled := c.create("http", pay(`"stall"`))
	primary.arrived(stalled, 1)
	operator("job", "cancel", stalled).is(t, 0)
	primary.releaseAll()
	operator("submit", "--owner", "acme", "--key", "cli", "--kind", "pay", "--input", `{"do":"answer"}`, "--wait").is(t, 0)
	w.caughtUp()
	operator("verify").is(t, 0)
	// Those that work on attempts have announced themselves.
	testenv.Eventually(t, patience, func() (bool, string) {
		bucket, err := w.js.Stream(w.ctx(), "KV_LEDGER_workers")
		require.NoError(t, err)
		n := bucket.CachedInfo().State.NumSubjects
		return n >= 3, fmt.Sprintf("%d processes are announced, expected 3", n)
	})
	for _, p := range w.processes {
		require.NotContains(t, strings.ToLower(p.log.String()), "permissions violation", "serve --roles %s", p.roles)
	}

	// A worker cannot speak for another provider, nor can the producer resolve.
	for user, subject := range map[string]string{"worker-primary": "ledger.attempt.complete.fallback", "shop": "ledger.attempt.resolve"} {
		js, err := jetstream.New(v.connect(user))
		require.NoError(t, err)
		before := w.streamEnd()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err = js.Publish(ctx, subject, []byte(`{}`))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, "the server drops it")
		require.Equal(t, before, w.streamEnd())
	}
}
