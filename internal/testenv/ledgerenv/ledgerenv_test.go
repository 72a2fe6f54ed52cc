package ledgerenv_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/stream"
	"jobledger/internal/testenv"
	"jobledger/internal/testenv/ledgerenv"
	"jobledger/schema"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestNew(t *testing.T) {
	t.Parallel()
	one, other := ledgerenv.New(t), ledgerenv.New(t)
	require.NotEqual(t, one.DatabaseURL, other.DatabaseURL)
	for _, ledger := range []ledgerenv.Ledger{one, other} {
		require.NoError(t, schema.Check(t.Context(), ledger.DatabaseURL))
		_, err := stream.Open(t.Context(), ledger.JS, ledger.Stream, ledger.Prefix)
		require.NoError(t, err)
	}
}
