package model

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
	"jobledger/workers"
)

// TestDocsHaveTheTable: docs/providers.md says of every ending what the code says.
func TestDocsHaveTheTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/providers.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "|---|---|---|---|---|\n")
	found, _, whole := strings.Cut(rest, "<!-- end of the table -->")
	require.True(t, whole, "docs/providers.md has no table")
	var expected strings.Builder
	for _, m := range table {
		outcome, failure := workers.Classify(&workers.CallError{Known: m.known, Class: "x", Reach: m.reach})
		attempt, reach := string(outcome), string(m.reach)
		if outcome == ledger.OutcomeFailed && failure.Executed {
			attempt += ", executed"
		}
		if reach == "" {
			reach = "–"
		}
		fmt.Fprintf(&expected, "| %s | %s | %s | `%s` | %s |\n", m.seen, m.known, attempt,
			strings.ReplaceAll(m.class, " ", "`, `"), reach)
	}
	require.Equal(t, expected.String(), found)
}

// TestTheTableIsComplete: an ambiguous ending reaches nowhere, everything else says
// how far it does, and classes are names.
func TestTheTableIsComplete(t *testing.T) {
	t.Parallel()
	for s, m := range table {
		require.NotEmpty(t, m.seen, s)
		require.Equal(t, m.known == workers.Ambiguous, m.reach == "", m.seen)
		for class := range strings.FieldsSeq(m.class) {
			require.True(t, ledger.ValidName(strings.ReplaceAll(class, "N", "500")), class)
		}
	}
}
