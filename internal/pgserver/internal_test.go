package pgserver

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLineLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := &lineLog{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))}
	for _, part := range []string{"LOG:  in", " parts\n\n", "WARNING:  hm\nPANIC:  no", "t ended"} {
		n, err := l.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	l.flush()
	require.Equal(t, strings.Join([]string{
		`level=DEBUG msg="LOG:  in parts"`,
		`level=WARN msg="WARNING:  hm"`,
		`level=ERROR msg="PANIC:  not ended"`, "",
	}, "\n"), out.String())
	require.Equal(t, "LOG:  in parts | WARNING:  hm | PANIC:  not ended", l.tail())
}

func TestLineLogIsBounded(t *testing.T) {
	t.Parallel()
	l := &lineLog{log: slog.New(slog.DiscardHandler)}
	require.Equal(t, "(none)", l.tail())
	for range 10 * tailLines {
		_, err := l.Write([]byte(strings.Repeat("x", 2*maxLineBytes) + "\n"))
		require.NoError(t, err)
	}
	require.Len(t, l.last, tailLines)
	require.Equal(t, maxLineBytes, len(l.last[0]))
}

func TestBinEnvIsTakenAtItsWord(t *testing.T) {
	bin := t.TempDir()
	t.Setenv(BinEnv, bin)
	_, err := findBinaries("")
	require.ErrorIs(t, err, ErrNotInstalled)
	require.ErrorContains(t, err, BinEnv)

	for _, program := range []string{"initdb", "postgres"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, program), nil, 0o700))
	}
	found, err := findBinaries("15")
	require.NoError(t, err)
	require.Equal(t, bin, found)
}

func TestNewestVersionFirst(t *testing.T) {
	t.Parallel()
	require.Greater(t, versionNumber("/usr/lib/postgresql/15/bin"), versionNumber("/usr/lib/postgresql/9.6/bin"))
	installed, err := debianInstallations()
	require.NoError(t, err)
	if len(installed) == 0 {
		t.Skip("no PostgreSQL below " + filepath.Dir(debianPattern))
	}
	found, err := findBinaries("")
	require.NoError(t, err)
	require.Equal(t, installed[0], found)
	_, err = findBinaries("8")
	require.ErrorContains(t, err, "install postgresql-8")
}
