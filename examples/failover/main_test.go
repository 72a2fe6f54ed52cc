package main

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table to expected.txt")

// TestTheExample runs all of it.
func TestTheExample(t *testing.T) {
	table, err := run(t.Context(), "")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("expected.txt", []byte(table), 0o600))
		return
	}
	require.Equal(t, expected, table)
}
