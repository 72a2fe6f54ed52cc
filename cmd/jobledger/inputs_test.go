package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
	"jobledger/publisher/httpapi"
	"jobledger/workers/contract"
)

// TestInputChecker: a contract counts while the ledger's kind names it; while it
// does not, or nobody can tell, inputs pass and the log says why, not each time.
func TestInputChecker(t *testing.T) {
	t.Parallel()
	own, err := contract.New(contract.Spec{Input: []byte(`{"type":"object","properties":{"text":{"type":"string"}}}`)})
	require.NoError(t, err)
	var log bytes.Buffer
	now, asked := time.Unix(1000, 0), 0
	kind, failure := ledger.KindRow{Kind: ledger.Kind{Name: "summarize", Contract: own.Digest()}}, error(nil)
	c := newInputChecker(func() map[string]*contract.Contract { return map[string]*contract.Contract{"summarize": own} },
		func(context.Context) ([]*ledger.KindRow, error) { asked++; return []*ledger.KindRow{&kind}, failure },
		slog.New(slog.NewTextHandler(&log, nil)))
	c.now = func() time.Time { return now }
	bad := func() []httpapi.Detail { return c.CheckInput(t.Context(), "summarize", []byte(`{"text":7}`)) }

	require.Equal(t, []httpapi.Detail{{Detail: "got number, want string", Pointer: "/text"}}, bad())
	require.Empty(t, c.CheckInput(t.Context(), "summarize", []byte(`{"text":"x"}`)))
	require.Empty(t, c.CheckInput(t.Context(), "other", []byte(`7`)))
	require.Equal(t, 1, asked, "the kinds are not read for each input")
	require.Empty(t, log.String())

	kind.Kind.Contract = "sha256:newer"
	require.NotEmpty(t, bad(), "what was read holds for a while")
	now = now.Add(kindsFor)
	for range 3 {
		require.Empty(t, bad())
	}
	require.Equal(t, 1, strings.Count(log.String(), "kind apply"), log.String())
	now = now.Add(kindsQuiet)
	require.Empty(t, bad())
	require.Equal(t, 2, strings.Count(log.String(), "kind apply"))

	kind.Kind.Contract, failure = own.Digest(), errors.New("away")
	now = now.Add(kindsFor)
	require.Empty(t, bad())
	require.Contains(t, log.String(), "away")
	failure = nil
	now = now.Add(kindsFor)
	require.NotEmpty(t, bad())
}
