package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestJSONOutput: with -o json every command prints one JSON value, an object,
// on one line of its own, and nothing else on standard output.
func TestJSONOutput(t *testing.T) {
	t.Parallel()
	dev := shared.get(t)
	dir := t.TempDir()
	lines := filepath.Join(dir, "lines.jsonl")
	require.NoError(t, os.WriteFile(lines, []byte(`{"owner":"json","key":"two","kind":"echo","input":{}}`), 0o600))
	kinds := filepath.Join(dir, "kinds.yaml")
	require.NoError(t, os.WriteFile(kinds, []byte("providers: {json: {type: exec, command: [cat]}}\n"), 0o600))
	one := []string{"--owner", "json", "--key", "one"}
	for _, args := range [][]string{
		append([]string{"submit", "--kind", "hold", "--input", `{"<":"&"}`}, one...),
		{"submit", "--file", lines},
		append([]string{"job", "get"}, one...),
		{"job", "list", "--owner", "json"},
		{"attempt", "list"},
		{"attempt", "resolve", "--provider", "json", "--started-before", "1h", "--as", "failed", "--reason", "x"},
		append([]string{"job", "cancel"}, one...),
		{"kind", "apply", kinds},
		{"kind", "list"},
		{"provider", "list"},
		{"provider", "pause", "json"},
		{"provider", "resume", "json"},
		{"rejections", "list"},
		{"migrate"},
		{"verify"},
		{"version"},
	} {
		stdout, stderr, code := result(t, append(args, "-o", "json", "--data", dev.dir)...)
		require.Zero(t, code, "%v: %s", args, stderr)
		var object map[string]any
		require.NoError(t, json.Unmarshal([]byte(stdout), &object), "%v: %s", args, stdout)
		require.Equal(t, 1, bytes.Count([]byte(stdout), []byte("\n")), "%v: %s", args, stdout)
		require.NotEmpty(t, object, "%v", args)
	}
	stdout, _, code := result(t, append([]string{"job", "wait", "-o", "json", "--data", dev.dir}, one...)...)
	require.Equal(t, exitCancelled, code)
	require.True(t, json.Valid([]byte(stdout)))
}
