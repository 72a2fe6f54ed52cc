package config

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTokensLookup(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	text := fmt.Sprintf("# who may call\n- {sha256: %x, owner: acme, role: producer}\n- sha256: %X\n  owner: é b\n  role: operator\n",
		sha256.Sum256([]byte("alpha")), sha256.Sum256([]byte("beta")))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	tokens, err := LoadTokens(path)
	require.NoError(t, err)
	require.Equal(t, 2, tokens.Len())

	for _, c := range []struct {
		bearer, owner, role string
		ok                  bool
	}{
		{"alpha", "acme", RoleProducer, true},
		{"beta", "é b", RoleOperator, true},
		{"", "", "", false},
		{"alpha ", "", "", false},
		{"ALPHA", "", "", false},
		{fmt.Sprintf("%x", sha256.Sum256([]byte("alpha"))), "", "", false},
		{strings.Repeat("x", 1<<16), "", "", false},
	} {
		owner, role, ok := tokens.Lookup(c.bearer)
		require.Equal(t, c.ok, ok, c.bearer)
		require.Equal(t, c.owner, owner, c.bearer)
		require.Equal(t, c.role, role, c.bearer)
	}
}

func TestTokensAllDigits(t *testing.T) {
	t.Parallel()
	for _, digits := range []string{
		strings.Repeat("1", 64), strings.Repeat("0", 63) + "1",
		strings.Repeat("1", 30) + "e" + strings.Repeat("2", 33), // a float to YAML
		"0b" + strings.Repeat("1", 62),
	} {
		tokens, err := decodeTokens("t.yaml", []byte("- {sha256: "+digits+", owner: a, role: producer}\n"))
		require.NoError(t, err, digits)
		require.Equal(t, digits, fmt.Sprintf("%x", tokens.entries[0].digest))
	}
}

func TestTokensZeroValue(t *testing.T) {
	t.Parallel()
	for _, tokens := range []*Tokens{nil, {}} {
		_, _, ok := tokens.Lookup("anything")
		require.False(t, ok)
		require.Zero(t, tokens.Len())
	}
}

func TestTokensMissing(t *testing.T) {
	t.Parallel()
	_, err := LoadTokens(filepath.Join(t.TempDir(), "none.yaml"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestTokensTooMany(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range maxTokens + 1 {
		fmt.Fprintf(&text, "- {sha256: %064x, owner: a, role: producer}\n", i)
	}
	_, err := decodeTokens("t.yaml", []byte(text.String()))
	require.ErrorContains(t, err, "found 1001 tokens, expected 1 to 1000")
}
