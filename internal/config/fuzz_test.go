package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzLoad: no content panics, and what fails does so as a Fault that names the
// file. What is accepted keeps the promises of Config.
func FuzzLoad(f *testing.F) {
	full, err := os.ReadFile("testdata/full.yaml")
	require.NoError(f, err)
	f.Add(full)
	transcripts, err := filepath.Glob("testdata/faults/*.txt")
	require.NoError(f, err)
	for _, path := range transcripts {
		text, err := os.ReadFile(path)
		require.NoError(f, err)
		for _, part := range strings.Split(string(text), "\nload\n") {
			input, _, _ := strings.Cut(part, "\n----")
			f.Add([]byte(input))
		}
	}
	folder := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(folder, "jobledger.yaml")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		c, err := Load(path, true)
		if err != nil {
			requireFault(t, err, path)
		} else {
			requireSound(t, c)
		}
		if _, err := LoadTokens(path); err != nil {
			requireFault(t, err, path)
		}
	})
}

func requireFault(t *testing.T, err error, path string) {
	t.Helper()
	var fault *Fault
	require.True(t, errors.As(err, &fault), "%v", err)
	require.Equal(t, path, fault.File)
	require.NotEmpty(t, fault.Found)
	require.NotEmpty(t, fault.Expected)
}

func requireSound(t *testing.T, c *Config) {
	t.Helper()
	for name, k := range c.Kinds {
		require.Regexp(t, namePattern, name)
		require.NotEmpty(t, k.Providers)
		for _, p := range k.Providers {
			require.Contains(t, c.Providers, p)
		}
		require.Positive(t, k.AttemptTimeout)
		require.Positive(t, k.MaxAttempts)
		require.GreaterOrEqual(t, k.Backoff.Max, k.Backoff.Initial)
		require.GreaterOrEqual(t, k.Backoff.FactorMilli, int64(minFactorMilli))
		require.Equal(t, k.Mode == ModeRace, k.HedgeAfter > 0)
	}
	for name, p := range c.Providers {
		require.Regexp(t, namePattern, name)
		require.NotNil(t, p.Spec)
		require.Positive(t, p.Concurrency)
	}
}

// TestHostileShapes feeds what could exhaust the parser's stack or time: the
// a big file of each repeated piece must end, and as a Fault if not well.
func TestHostileShapes(t *testing.T) {
	t.Parallel()
	const size = maxFileBytes / 4 // the whole size says no more and takes half a minute under -race
	for _, shape := range []struct{ start, piece string }{
		{"", "["}, {"", "{"}, {"", "- "}, {"", "? "}, {"", "a: "}, {"", "!t "}, {"", "&a "}, {"", "*a "}, {"", "{a: "},
		{"", "[a: "}, {"", "\""}, {"", "'"}, {"", "#"}, {"", "%"}, {"", ": "}, {"", ","}, {"", "\t"}, {"", "<<: "}, {"", "\\"},
		{"", "\u2028"}, {"", "\"\\"}, {"", "[- "}, {"", "{? "}, {"", "- ? "}, {"", "a: - "}, {"", "- a: "}, {"", "a: b: "}, {"", "[],"},
		{"", "-\n"}, {"", "a\n"}, {"", "|\n"}, {"", "---\n"}, {"", "a:\n "}, {"", "a: |\n"}, {"", "a: 1\n"}, {"", "- {a: 1}\n"}, {"", "a: 1\r"},
		{"{", "a: 1,"}, {"[", "a,"}, {"[", "{},"}, {"[", "[],"}, {"[", "a: 1,"}, {"a: \"", "x "}, {"a: |\n", " x\n"}, {"a: >\n", "\n x"}, {"a:", " x\n"}, {"a:", " b"},
	} {
		t.Run(shape.start+shape.piece, func(t *testing.T) {
			t.Parallel()
			count := (size - len(shape.start)) / len(shape.piece)
			if strings.ContainsAny(shape.piece, "\r\n") {
				count = min(count, maxFileLines-2)
			}
			_, err := decode("f.yaml", []byte(shape.start+strings.Repeat(shape.piece, count)))
			if err != nil {
				requireFault(t, err, "f.yaml")
			}
		})
	}
}
