package e2e_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNothingIsDeniedWhileTheTablesAreBehind(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind("", main)})
	w.attach(main)
	projector := w.serve("projector")
	w.apply()
	c := w.serve("api").client("acme")
	other := c.jobID("never submitted")
	c.do("GET", jobPath(other), "").is(http.StatusNotFound, "not-found")

	old := c.create("before", pay(`"answer"`))
	projector.freeze()
	before := w.requests()
	post := func() answer { return c.do("POST", "/v1/jobs", pay(`"answer"`), "Idempotency-Key", "order") }
	pending := post().is(http.StatusAccepted)
	id := c.jobID("order")
	require.Equal(t, id, pending.text("id"))
	require.Equal(t, id, pending.header.Get("Ledger-Job-Id"))
	seq, err := strconv.ParseUint(pending.text("seq"), 10, 64)
	require.NoError(t, err)
	require.Equal(t, seq, w.streamEnd())
	require.NotEmpty(t, pending.header.Get("Retry-After"))
	for _, job := range []string{id, other} {
		a := c.do("GET", jobPath(job), "").is(http.StatusServiceUnavailable, "read-model-behind")
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
	c.job(old) // what is known can be said
	again := post().is(http.StatusAccepted)
	require.Equal(t, pending.text("seq"), again.text("seq"))
	require.Equal(t, before+1, w.requests(), "the same POST is stored once")

	projector.thaw()
	a := c.submit("order", pay(`"answer"`)).replayed()
	require.Equal(t, id, a.text("id"))
	c.job(id)
	c.do("GET", jobPath(other), "").is(http.StatusNotFound, "not-found")
	require.Equal(t, 1, w.number("SELECT count(*) FROM ledger.jobs WHERE id = $1", id))
	w.verify()
}
