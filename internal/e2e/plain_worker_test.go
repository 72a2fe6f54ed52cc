package e2e_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// A provider of type worker has workers of somebody's own. The role worker
// leaves its attempts alone.
func TestAProviderWithWorkersOfItsOwn(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w, c := startWorld(t, "kinds:\n  pay: {providers: [main]}\n  print: {providers: [own]}\n"+
		"providers:\n  own: {type: worker, version: \"1\"}\n"+main.provider())
	w.attach(main)
	id := c.create("order", `{"kind":"print","input":1}`)
	c.finished(c.create("another", pay(`"answer"`)), "succeeded") // the role works
	_, err := w.js.Consumer(w.ctx(), w.stream, "worker-own")
	require.ErrorIs(t, err, jetstream.ErrConsumerNotFound)
	require.Equal(t, "starting", c.job(id).text("attempts.0.state"))

	a := w.byHand("own").next()
	require.Equal(t, id, a.Job)
	w.is(a.succeed(), "accepted", "")
	c.finished(id, "succeeded")
	w.verify()
}
