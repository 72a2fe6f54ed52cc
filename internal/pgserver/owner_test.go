package pgserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"jobledger/internal/pgserver"
)

// ownerEnv makes the test binary be a process that owns a server, to be
// killed; its value is the server's directory.
const ownerEnv = "JOBLEDGER_PGSERVER_TEST_OWNER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerEnv); dir != "" {
		os.Exit(own(dir))
	}
	goleak.VerifyTestMain(m)
}

// own starts a server, prints its pid and URL, and stays until its input ends.
func own(dir string) int {
	server, err := pgserver.Start(context.Background(), pgserver.Options{Dir: dir, Fsync: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(server.PID(), server.URL("postgres"))
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := server.Stop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startOwner returns a running owner and the pid and URL of its server.
func startOwner(t *testing.T, dir string) (owner *osexec.Cmd, pid int, url string) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	owner = osexec.Command(program)
	owner.Env = append(os.Environ(), ownerEnv+"="+dir)
	owner.Stderr = os.Stderr
	input, err := owner.StdinPipe()
	require.NoError(t, err)
	output, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	t.Cleanup(func() {
		_ = input.Close()
		_ = owner.Wait() // killed by the test, as a rule
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &pid, &url)
	require.NoError(t, err)
	return owner, pid, url
}

// processesOf returns the postmaster and everything below it.
func processesOf(t *testing.T, postmaster int) []int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", postmaster, postmaster))
	require.NoError(t, err)
	pids := []int{postmaster}
	for field := range strings.FieldsSeq(string(text)) {
		var pid int
		_, err := fmt.Sscan(field, &pid)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func TestKilledOwnerLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	owner, pid, url := startOwner(t, dir)
	writeRow(t, url)
	family := processesOf(t, pid)
	require.Greater(t, len(family), 3)

	require.NoError(t, owner.Process.Kill())
	for _, pid := range family {
		requireEnded(t, pid)
	}
	requireRow(t, dir)
}

func TestEverythingKilledAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	owner, pid, url := startOwner(t, dir)
	writeRow(t, url)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.NoError(t, owner.Process.Kill())
	requireRow(t, dir) // at once, over whatever is still ending
}

// TestOrphanIsEnded: a postmaster that did survive its owner, here because
// it was frozen, is ended by the next start.
func TestOrphanIsEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	owner, pid, url := startOwner(t, dir)
	writeRow(t, url)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.NoError(t, owner.Process.Kill())
	requireRow(t, dir)
	requireEnded(t, pid)
}

func writeRow(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), url)
	require.NoError(t, err)
	_, err = conn.Exec(testContext(t), "CREATE TABLE kept AS SELECT 'kept'::text AS value")
	require.NoError(t, err)
	require.NoError(t, conn.Close(testContext(t)))
}

func requireRow(t *testing.T, dir string) {
	t.Helper()
	server := start(t, pgserver.Options{Dir: dir})
	require.Equal(t, "kept", query(t, server, "SELECT value FROM kept"))
	require.NoError(t, server.Stop(testContext(t)))
}
