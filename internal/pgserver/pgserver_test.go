package pgserver_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"jobledger/internal/pgserver"
)

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// start starts a server that ends with the test at the latest.
func start(t *testing.T, o pgserver.Options) *pgserver.Server {
	t.Helper()
	if o.Settings == nil {
		o.Settings = map[string]string{"shared_buffers": "16MB", "max_connections": "20"}
	}
	server, err := pgserver.Start(testContext(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop(testContext(t)) }) // the test checks the error where it counts
	return server
}

func connect(t *testing.T, server *pgserver.Server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), server.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(testContext(t)) }) // its server may have been killed
	return conn
}

func exec(t *testing.T, server *pgserver.Server, statement string) {
	t.Helper()
	_, err := connect(t, server).Exec(testContext(t), statement)
	require.NoError(t, err)
}

func query(t *testing.T, server *pgserver.Server, statement string) string {
	t.Helper()
	var answer string
	require.NoError(t, connect(t, server).QueryRow(testContext(t), statement).Scan(&answer))
	return answer
}

// requireEnded waits until the process is gone.
func requireEnded(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH },
		20*time.Second, 5*time.Millisecond, "process %d still runs", pid)
}

func TestDataSurviveARestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "by", "Start")
	server := start(t, pgserver.Options{Dir: dir, Fsync: true})
	exec(t, server, "CREATE TABLE kept AS SELECT 'kept'::text AS value")
	pid := server.PID()
	require.NoError(t, server.Stop(testContext(t)))
	require.NoError(t, server.Stop(testContext(t)), "stopping twice is harmless")
	requireEnded(t, pid)
	<-server.Done()

	again := start(t, pgserver.Options{Dir: dir, Port: server.Port(), Fsync: true})
	require.Equal(t, server.URL("x"), again.URL("x"), "port and password stay")
	require.Equal(t, "kept", query(t, again, "SELECT value FROM kept"))
	require.NoError(t, again.Stop(testContext(t)))
}

func TestSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := start(t, pgserver.Options{Dir: dir, Settings: map[string]string{"shared_buffers": "20MB"}})
	for name, expected := range map[string]string{
		"shared_buffers":     "20MB", // the caller's word is the last
		"fsync":              "off",
		"synchronous_commit": "on",
		"jit":                "off",
		"lc_collate":         "C",
		"server_encoding":    "UTF8",
		"TimeZone":           "UTC",
		"listen_addresses":   "127.0.0.1",
	} {
		if name == "lc_collate" { // no setting any more since PostgreSQL 16
			require.Equal(t, expected, query(t, server, "SELECT datcollate::text FROM pg_database WHERE datname = 'postgres'"))
			continue
		}
		require.Equal(t, expected, query(t, server, "SELECT current_setting('"+name+"')"), name)
	}

	info, err := os.Stat(filepath.Join(dir, "password"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	wrong, err := url.Parse(server.URL("postgres"))
	require.NoError(t, err)
	wrong.User = url.UserPassword(wrong.User.Username(), "guess")
	_, err = pgx.Connect(testContext(t), wrong.String())
	require.ErrorContains(t, err, "password authentication failed")
}

// TestClosedParent: a server that runs as another user than this process must
// reach a directory that only this process may enter.
func TestClosedParent(t *testing.T) {
	t.Parallel()
	parent, err := os.MkdirTemp("", "closed-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(parent)) })
	info, err := os.Stat(parent)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	dir := filepath.Join(parent, "pg")
	server := start(t, pgserver.Options{Dir: dir})
	exec(t, server, "CREATE TABLE t AS SELECT 1 AS n")
	require.NoError(t, server.Stop(testContext(t)))
	again := start(t, pgserver.Options{Dir: dir})
	require.Equal(t, "1", query(t, again, "SELECT n::text FROM t"))
	require.NoError(t, again.Stop(testContext(t)))
}

func TestKilledPostmaster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := start(t, pgserver.Options{Dir: dir})
	exec(t, server, "CREATE TABLE kept AS SELECT 'kept'::text AS value")
	conn := connect(t, server)
	asleep := make(chan error, 1)
	go func() {
		_, err := conn.Exec(testContext(t), "SELECT pg_sleep(60)")
		asleep <- err
	}()
	require.NoError(t, syscall.Kill(server.PID(), syscall.SIGKILL))
	<-server.Done()
	require.Error(t, server.Stop(testContext(t)), "stopping tells that it had not ended well")

	again := start(t, pgserver.Options{Dir: dir}) // with the old backends perhaps still there
	require.Equal(t, "kept", query(t, again, "SELECT value FROM kept"))
	require.Error(t, <-asleep)
	require.NoError(t, again.Stop(testContext(t)))
}

func TestStopInAHurry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := start(t, pgserver.Options{Dir: dir})
	exec(t, server, "CREATE TABLE kept AS SELECT 'kept'::text AS value")
	require.NoError(t, syscall.Kill(server.PID(), syscall.SIGSTOP))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, server.Stop(ctx), context.Canceled)
	requireEnded(t, server.PID())

	again := start(t, pgserver.Options{Dir: dir})
	require.Equal(t, "kept", query(t, again, "SELECT value FROM kept"))
	require.NoError(t, again.Stop(testContext(t)))
}

func TestPidFileThatNamesAnotherProgram(t *testing.T) {
	t.Parallel()
	other := start(t, pgserver.Options{Dir: t.TempDir()})
	dir := t.TempDir()
	require.NoError(t, start(t, pgserver.Options{Dir: dir}).Stop(testContext(t)))
	pidFile := filepath.Join(dir, "data", "postmaster.pid")
	require.NoError(t, os.WriteFile(pidFile, []byte(strconv.Itoa(other.PID())+"\n"), 0o600))

	again := start(t, pgserver.Options{Dir: dir})
	require.Equal(t, "1", query(t, again, "SELECT '1'"))
	require.NoError(t, again.Stop(testContext(t)))
	require.Equal(t, "1", query(t, other, "SELECT '1'"), "the other one is left alone")
}

func TestInterruptedInitdbIsDoneOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data.init", "base"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data.init", "PG_VERSION"), []byte("15\n"), 0o600))
	server := start(t, pgserver.Options{Dir: dir})
	require.Equal(t, "1", query(t, server, "SELECT '1'"))
	require.NoDirExists(t, filepath.Join(dir, "data.init"))
	require.NoFileExists(t, filepath.Join(dir, "password.init"))
	require.NoError(t, server.Stop(testContext(t)))
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	_, err := pgserver.Start(testContext(t), pgserver.Options{})
	require.ErrorContains(t, err, "Options.Dir is empty")

	dir := t.TempDir()
	server := start(t, pgserver.Options{Dir: dir})
	_, err = pgserver.Start(testContext(t), pgserver.Options{Dir: t.TempDir(), Port: server.Port()})
	require.ErrorContains(t, err, "Address already in use")
	require.NoError(t, server.Stop(testContext(t)))

	_, err = pgserver.Start(testContext(t), pgserver.Options{Dir: dir, Settings: map[string]string{"no_such": "1"}})
	require.ErrorContains(t, err, "no_such")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = pgserver.Start(ctx, pgserver.Options{Dir: t.TempDir()})
	require.ErrorIs(t, err, context.Canceled)

	require.NoError(t, os.Remove(filepath.Join(dir, "password")))
	_, err = pgserver.Start(testContext(t), pgserver.Options{Dir: dir})
	require.ErrorContains(t, err, "password is missing")

	full := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(full, "data", "mine"), 0o700))
	_, err = pgserver.Start(testContext(t), pgserver.Options{Dir: full})
	require.ErrorContains(t, err, "holds no PostgreSQL cluster")
}
