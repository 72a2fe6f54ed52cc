package main

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/stream"
)

// TestDevLives follows one data directory through the life of a dev stack: what
// was accepted survives a kill, nothing of a killed or stopped stack is left
// running, and two of them never share the directory.
func TestDevLives(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	dev, err := startDev(dir) // without a configuration: the echo provider
	require.NoError(t, err)
	t.Cleanup(func() { _ = dev.signal(syscall.SIGKILL) })
	info, err := os.Stat(filepath.Join(dir, devFileName))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "the database's URL holds a password")

	_, stderr, code := result(t, "dev", "--data", dir, "--http", "127.0.0.1:0", "--nats-port", "0")
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr, "in use by process "+strconv.Itoa(dev.cmd.Process.Pid))

	job := []string{"--data", dir, "--owner", "acme", "--key", "order-17"}
	stdout, stderr, code := result(t, append(job, "submit", "--kind", "echo", "--input", `{"n":1}`, "--wait", "-o", "json")...)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stdout, `"result":{"n":1}`)

	postmaster := postmasterPID(t, dir)
	require.NoError(t, dev.signal(syscall.SIGKILL))
	awaitGone(t, "PostgreSQL", postmaster)
	require.FileExists(t, filepath.Join(dir, devFileName), "a killed stack cannot clean up")
	_, _, code = result(t, append(job, "job", "get")...)
	require.Equal(t, exitUnreachable, code, "the leftover file is not taken for a running stack")

	dev, err = startDev(dir)
	require.NoError(t, err)
	stdout, stderr, code = result(t, append(job, "job", "get", "-o", "json")...)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stdout, `"state":"succeeded"`)
	res, err := http.Get(dev.where.HTTP + "/readyz")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	limitDevStream(t, dev, 1)

	postmaster = postmasterPID(t, dir)
	require.NoError(t, dev.signal(syscall.SIGTERM))
	require.NoError(t, dev.err, dev.log)
	require.ErrorIs(t, syscall.Kill(postmaster, 0), syscall.ESRCH, "PostgreSQL outlived a clean stop")
	require.NoFileExists(t, filepath.Join(dir, devFileName))
	require.NotContains(t, dev.log.String(), "level=ERROR")

	dev, err = startDev(dir) // how else could somebody give it more room?
	require.NoError(t, err)
	require.Contains(t, dev.log.String(), "the stream is full")
	limitDevStream(t, dev, -1)
	_, stderr, code = result(t, append(slices.Replace(job, 5, 6, "order-18"), "submit", "--kind", "echo", "--input", `{"n":1}`, "--wait")...)
	require.Equal(t, exitOK, code, stderr)
	require.NoError(t, dev.signal(syscall.SIGTERM))
	require.NoError(t, dev.err, dev.log)
}

// limitDevStream gives the stream another max_bytes.
func limitDevStream(t *testing.T, dev *devProcess, maxBytes int64) {
	t.Helper()
	nc, err := nats.Connect(dev.where.NATS)
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.UpdateStream(t.Context(), stream.Config("LEDGER", "ledger", 1, maxBytes))
	require.NoError(t, err)
}

// postmasterPID is the first line of PostgreSQL's own pid file.
func postmasterPID(t *testing.T, dir string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	require.NoError(t, err)
	line, _, _ := strings.Cut(string(data), "\n")
	pid, err := strconv.Atoi(line)
	require.NoError(t, err)
	return pid
}
