package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// oneKind is a configuration with one kind, pay, on one stub.
func oneKind(s *stub, members ...string) string {
	return "kinds:\n  pay: {" + strings.Join(append([]string{"providers: [" + s.name + "]"}, members...), ", ") + "}\nproviders:\n" + s.provider()
}

// pay is a request for the kind, with orders for the stub.
func pay(do string) string { return `{"kind":"pay","input":{"do":` + do + `}}` }

func TestOneJobFromEndToEnd(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w, c := startWorld(t, oneKind(main))
	w.attach(main)
	id := c.create("order-17", pay(`"answer"`))
	a := c.finished(id, "succeeded")
	require.JSONEq(t, `{"by":"main","attempt":1}`, a.text("result"))
	require.Equal(t, "main-1", a.text("attempts.0.provider_ref"))
	require.Equal(t, 1, main.count(id))
	c.submit("order-17", pay(`"answer"`)).replayed()
	c.submit("order-17", pay(`"close"`)).is(http.StatusConflict, "idempotency-conflict")
	w.verify()
}
