package workers

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func newHTTP(t *testing.T, o HTTPOptions) *HTTP {
	t.Helper()
	h, err := NewHTTP(o)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

func testCall() Call {
	id := uuid.MustParse("932e6392-de75-5f3a-ac8f-94870d967406")
	return Call{JobID: id, Attempt: 2, Kind: "echo", Input: []byte(`{"a":1}`), IdempotencyKey: id.String()}
}

func callContext(t *testing.T, timeout time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}
