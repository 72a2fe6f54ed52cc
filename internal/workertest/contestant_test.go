package workertest

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"jobledger/internal/testenv"
	"jobledger/publisher"
	"jobledger/workers"
)

// A contestant is a worker that the suite is run on: a command, with what its
// environment has besides that of every contestant.
type contestant func(t *testing.T) (command []string, environment []string)

// ownEnv holds the command of a worker that somebody has written.
const ownEnv = "JOBLEDGER_WORKER"

// goWorkerEnv makes a test binary be a worker instead of running tests.
const goWorkerEnv = "JOBLEDGER_WORKERTEST_GO"

func TestGoWorker(t *testing.T)   { t.Parallel(); conform(t, goWorker) }
func TestNodeWorker(t *testing.T) { t.Parallel(); conform(t, nodeWorker) }
func TestOwnWorker(t *testing.T) {
	t.Parallel()
	if os.Getenv(ownEnv) == "" {
		t.Skipf("%s is not set; it names the command of a worker to test", ownEnv)
	}
	conform(t, func(*testing.T) ([]string, []string) { return []string{"sh", "-c", "exec " + os.Getenv(ownEnv)}, nil })
}

// goWorker is the worker of package workers with the provider for HTTP, in a
// process of its own.
func goWorker(t *testing.T) ([]string, []string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatalf("find the test binary: %v", err)
	}
	return []string{program}, []string{goWorkerEnv + "=1"}
}

// beGoWorker is the other side. It returns the exit status.
func beGoWorker() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runGoWorker(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	return 0
}

func runGoWorker(ctx context.Context) error {
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.PingInterval(5*time.Second), nats.MaxPingsOutstanding(2))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	stream, prefix := os.Getenv("LEDGER_STREAM"), os.Getenv("LEDGER_PREFIX")
	appender, err := publisher.NewAppender(nc, publisher.Options{Stream: stream, SubjectPrefix: prefix})
	if err != nil {
		return err
	}
	client, err := publisher.NewClient(nc, appender, 0)
	if err != nil {
		return err
	}
	impl, err := workers.NewHTTP(workers.HTTPOptions{URL: os.Getenv("WORK_URL")})
	if err != nil {
		return err
	}
	concurrency, err := strconv.Atoi(os.Getenv("LEDGER_CONCURRENCY"))
	if err != nil {
		return err
	}
	grace, err := strconv.Atoi(os.Getenv("LEDGER_GRACE_MS"))
	if err != nil {
		return err
	}
	w, err := workers.New(workers.Options{
		Provider: os.Getenv("LEDGER_PROVIDER"), Impl: impl, Concurrency: concurrency,
		Ledger: client, JetStream: js, Stream: stream, SubjectPrefix: prefix, Name: "the Go worker",
		Grace: time.Duration(grace) * time.Millisecond, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// nodeWorker is the example in another language.
func nodeWorker(t *testing.T) ([]string, []string) {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%v; scripts/setup.sh installs Node.js where CI is set", err)
			}
			t.Skipf("SKIPPED: the worker in examples/worker-node was not tested: %v", err)
		}
	}
	dir, err := nodeFolder()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"node", filepath.Join(dir, "worker.js")}, nil
}

// npmTimeout bounds fetching the example's packages.
const npmTimeout = 3 * time.Minute

// nodeFolder holds a copy of the example with the packages of its lock file. It
// is a copy because two runs of the tests may install at the same time.
var nodeFolder = sync.OnceValues(func() (string, error) {
	dir, err := testenv.Folder("worker-node")
	if err != nil {
		return "", err
	}
	example := filepath.Join("..", "..", "examples", "worker-node")
	for _, pattern := range []string{"*.js", "package*.json"} {
		if err := copyFiles(dir, example, pattern); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), npmTimeout)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund")
	install.Dir = dir
	if output, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install the packages of examples/worker-node by npm ci: %w\n%s", err, output)
	}
	return dir, nil
})

func copyFiles(to, from, pattern string) error {
	names, err := fs.Glob(os.DirFS(from), pattern)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("there is no %s in %s", pattern, from)
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
