package projector

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/schema"
)

// cockroachEnv names the cockroach program to run the store's tests on.
const cockroachEnv = "COCKROACH_BINARY"

// startCockroach starts a CockroachDB of the test's own, and returns the URL of
// a database with the ledger's schema there.
func startCockroach(t *testing.T) string {
	t.Helper()
	program := os.Getenv(cockroachEnv)
	if program == "" {
		t.Skipf("%s is not set: name a cockroach program in it to run these tests on CockroachDB", cockroachEnv)
	}
	address := func() string { return fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t)) }
	sql := address()
	cmd := exec.Command(program, "start-single-node", "--insecure", "--store="+t.TempDir(), "--listen-addr="+sql,
		"--http-addr="+address(), "--cache=64MiB", "--max-sql-memory=128MiB", "--logtostderr=ERROR")
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // its files go with the test
		_ = cmd.Wait()
	})
	url := func(database string) string { return "postgres://root@" + sql + "/" + database + "?sslmode=disable" }
	testenv.Eventually(t, time.Minute, func() (bool, string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, url("defaultdb"))
		if err != nil {
			return false, err.Error()
		}
		return conn.Close(ctx) == nil, "it closes badly"
	})
	conn, err := pgx.Connect(t.Context(), url("defaultdb"))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE DATABASE ledger_test")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, schema.Migrate(t.Context(), url("ledger_test"), slog.New(slog.DiscardHandler)))
	return url("ledger_test")
}
