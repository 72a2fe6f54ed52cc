package testenv_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/pgserver"
	"jobledger/internal/testenv"
)

func TestNATSProcessIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := testenv.StartNATS(t, natsserver.Options{SyncAlways: true})
	url := server.URL()
	js, _, prefix := testenv.StreamOn(t, testenv.Connect(t, url))
	_, err := js.Publish(ctx, prefix+".job.request", []byte("1"))
	require.NoError(t, err)

	server.Kill()
	testenv.Eventually(t, 10*time.Second, func() (bool, string) {
		return !js.Conn().IsConnected(), "the client has not noticed the kill"
	})
	server.Restart()
	require.Equal(t, url, server.URL())
	testenv.Eventually(t, 10*time.Second, func() (bool, string) {
		ack, err := js.Publish(ctx, prefix+".job.request", []byte("2"), jetstream.WithRetryAttempts(0))
		return err == nil && ack.Sequence == 2, fmt.Sprint("publish: ", ack, err)
	})

	server.Restart() // in an orderly way, too
	server.Freeze()
	_, err = nats.Connect(url, nats.Timeout(100*time.Millisecond))
	require.Error(t, err)
	server.Thaw()
	testenv.Connect(t, url)
	testenv.Eventually(t, 10*time.Second, func() (bool, string) {
		return js.Conn().IsConnected(), "the client has not reconnected"
	})
}

func TestPostgresIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	server := testenv.StartPostgres(t, pgserver.Options{})
	url := server.Database(t)
	conn, err := pgx.Connect(testContext(t), url)
	require.NoError(t, err)
	server.Kill()
	testenv.Eventually(t, 10*time.Second, func() (bool, string) {
		return conn.Ping(testContext(t)) != nil, "the session outlives the kill"
	})
	server.Stop() // nothing to stop
	server.Restart()
	again, err := pgx.Connect(testContext(t), url)
	require.NoError(t, err)
	require.NoError(t, again.Close(testContext(t)))

	server.Restart()
	server.Freeze()
	impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = pgx.Connect(impatient, url)
	require.Error(t, err)
}

// echo answers every byte with itself, on an address of its own.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp4", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return conn
}

func requireEcho(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := conn.Write([]byte(text))
	require.NoError(t, err)
	requireRead(t, conn, text)
}

func requireRead(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	_, err := io.ReadFull(conn, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

// requireSilence: nothing comes for a moment, which is what the proxy is for.
func requireSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
}

func TestProxyCuts(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, echo(t))
	conn := dial(t, proxy.Addr())
	requireEcho(t, conn, "hello")

	proxy.Drop()
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	conn = dial(t, proxy.Addr())
	requireEcho(t, conn, "again")

	proxy.Cut()
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	_, err = net.Dial("tcp4", proxy.Addr())
	require.ErrorContains(t, err, "connection refused")

	proxy.Restore()
	requireEcho(t, dial(t, proxy.Addr()), "restored")
}

func TestProxyHolds(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, echo(t))
	conn := dial(t, proxy.Addr())
	requireEcho(t, conn, "x")
	proxy.Hold()
	_, err := conn.Write([]byte("held"))
	require.NoError(t, err)
	requireSilence(t, conn)
	proxy.Restore()
	requireRead(t, conn, "held")
}

func TestProxyLosesAnswersOnly(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	proxy := testenv.NewProxy(t, url)
	behind, err := pgx.Connect(testContext(t), proxy.URL(url))
	require.NoError(t, err)
	_, err = behind.Exec(testContext(t), "CREATE TABLE t (n BIGINT)")
	require.NoError(t, err)

	proxy.HoldAnswers()
	done := make(chan error, 1)
	go func() {
		_, err := behind.Exec(testContext(t), "INSERT INTO t VALUES (1)")
		done <- err
	}()
	direct, err := pgx.Connect(testContext(t), url)
	require.NoError(t, err)
	defer direct.Close(testContext(t))
	testenv.Eventually(t, 20*time.Second, func() (bool, string) {
		var n int
		err := direct.QueryRow(testContext(t), "SELECT count(*) FROM t").Scan(&n)
		return err == nil && n == 1, fmt.Sprint("rows: ", n, err)
	})
	proxy.Cut()
	require.Error(t, <-done, "it was done, but who asked does not learn of it")
}

// failing catches what a helper reports about a test.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	panic(f)
}

func TestEventuallyExplains(t *testing.T) {
	t.Parallel()
	f := &failing{TB: t}
	require.PanicsWithValue(t, f, func() {
		testenv.Eventually(f, time.Millisecond, func() (bool, string) { return false, "3 of 4 came" })
	})
	require.Equal(t, "not within 1ms: 3 of 4 came", f.message)
}

func TestPreparedDatabaseIsPreparedOnce(t *testing.T) {
	t.Parallel()
	kind := "of " + rand.Text() // -count=2 runs in one binary
	calls := 0
	prepare := func(ctx context.Context, url string) error {
		calls++
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "CREATE TABLE t (n BIGINT)")
		return err
	}
	for range 2 {
		conn, err := pgx.Connect(testContext(t), testenv.PreparedDatabase(t, kind, prepare))
		require.NoError(t, err)
		_, err = conn.Exec(testContext(t), "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		var rows int
		require.NoError(t, conn.QueryRow(testContext(t), "SELECT count(*) FROM t").Scan(&rows))
		require.Equal(t, 1, rows)
		require.NoError(t, conn.Close(testContext(t)))
	}
	if os.Getenv(testenv.DatabaseEnv) == "" {
		require.Equal(t, 1, calls)
	}
}

// panicEnv makes TestPanics panic, in a process of its own.
const panicEnv = "JOBLEDGER_TESTENV_TEST_PANIC"

func TestPanics(t *testing.T) {
	if os.Getenv(panicEnv) == "" {
		t.Skip("is run by TestAPanicLeavesNothing, in a process of its own")
	}
	testenv.Database(t)
	testenv.NATS(t)
	panic("as asked")
}

func TestAPanicLeavesNothing(t *testing.T) {
	t.Parallel()
	if os.Getenv(testenv.DatabaseEnv) != "" || os.Getenv(testenv.NATSEnv) != "" {
		t.Skip("the tests run on given servers: none of their own are left behind")
	}
	program, err := os.Executable()
	require.NoError(t, err)
	tmp := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run=^TestPanics$")
	cmd.Env = append(os.Environ(), panicEnv+"=1", "TMPDIR="+tmp)
	output, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), "panic: as asked")
	testenv.Eventually(t, 20*time.Second, func() (bool, string) {
		left, err := filepath.Glob(filepath.Join(tmp, "*"))
		return err == nil && len(left) == 0, "left: " + strings.Join(left, " ")
	})
}
