// Package testenv gives tests real servers: one PostgreSQL and one NATS server
// for a test binary, started at first use, with a database and a stream of its
// own for each test; and, for fault tests, servers and proxies of a test's own.
//
// A package that uses it hands its TestMain over:
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
package testenv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"jobledger/internal/natsserver"
	"jobledger/internal/pgserver"
)

const (
	// DatabaseEnv names a database server to use instead of starting one: the
	// URL of a database, in whose place databases may be created.
	DatabaseEnv = "JOBLEDGER_TEST_DATABASE"
	// NATSEnv names a NATS server with JetStream to use instead of starting one.
	NATSEnv = "JOBLEDGER_TEST_NATS"

	// setupTimeout bounds each preparing or cleaning step of a test.
	setupTimeout = time.Minute
)

// shared are the servers of this test binary.
var shared environment

type environment struct {
	used bool // Main runs, and will clean up

	dir      lazy[string]
	postgres lazy[*pgserver.Server]
	nats     lazy[*natsserver.Server]

	janitor *janitor

	mu       sync.Mutex
	cleanups []func(context.Context) error // run in reverse, before the servers stop
}

// Main runs a package's tests, stops and removes the shared servers, checks
// that no goroutine is left, and exits. A panic in a test, a timeout or
// a signal ends the process at once; PostgreSQL then ends with it, and a
// helper process removes the files.
func Main(m *testing.M) {
	if options := os.Getenv(natsProcessEnv); options != "" {
		os.Exit(beNATSProcess(options))
	}
	shared.used = true
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, "testenv: clean up:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "testenv: goroutines are left after the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// close stops what was started, whether or not a part of it fails.
func (e *environment) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	var errs []error
	for _, cleanup := range slices.Backward(e.cleanups) {
		errs = append(errs, cleanup(ctx))
	}
	if server := e.nats.started(); server != nil {
		errs = append(errs, server.Stop(ctx))
	}
	if server := e.postgres.started(); server != nil {
		errs = append(errs, server.Stop(ctx))
	}
	if dir := e.dir.started(); dir != "" {
		errs = append(errs, os.RemoveAll(dir), e.janitor.dismiss())
	}
	return errors.Join(errs...)
}

func (e *environment) cleanUpWith(cleanup func(context.Context) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cleanups = append(e.cleanups, cleanup)
}

// folder returns a folder for the shared server called name.
func (e *environment) folder(name string) (string, error) {
	if !e.used {
		return "", errors.New("testenv: the package has no TestMain that calls testenv.Main, which stops the servers: add one")
	}
	dir, err := e.dir.get(func() (string, error) {
		dir, err := os.MkdirTemp("", "jobledger-test-")
		if err != nil {
			return "", err
		}
		e.janitor, err = hireJanitor(dir)
		return dir, err
	})
	return filepath.Join(dir, name), err
}

func (e *environment) startPostgres() (*pgserver.Server, error) {
	return e.postgres.get(func() (*pgserver.Server, error) {
		dir, err := e.folder("postgres")
		if err != nil {
			return nil, err
		}
		return pgserver.Start(context.Background(), pgserver.Options{Dir: dir, Settings: testSettings()})
	})
}

func (e *environment) startNATS() (*natsserver.Server, error) {
	return e.nats.get(func() (*natsserver.Server, error) {
		dir, err := e.folder("nats")
		if err != nil {
			return nil, err
		}
		return natsserver.Start(natsserver.Options{Dir: dir})
	})
}

// testSettings keep a test's cluster small: packages are tested side by side.
func testSettings() map[string]string {
	return map[string]string{
		"shared_buffers":  "64MB",
		"max_connections": "200",
		"max_wal_size":    "512MB",
	}
}

// lazy makes a value once, and remembers an error as well.
type lazy[T any] struct {
	once  sync.Once
	value T
	err   error
}

func (l *lazy[T]) get(make func() (T, error)) (T, error) {
	l.once.Do(func() { l.value, l.err = make() })
	return l.value, l.err
}

// started returns the value if it was made, without making it.
func (l *lazy[T]) started() T {
	l.once.Do(func() {})
	return l.value
}

// unique returns a name that no other test uses: lower-case letters and
// digits, starting with a letter.
func unique() string { return "t" + strings.ToLower(rand.Text()[:12]) }

// setupContext bounds a step of t's set-up.
func setupContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	t.Cleanup(cancel)
	return ctx
}

// cleanupContext is for cleanups, when t's own context has ended already.
func cleanupContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), setupTimeout)
}

// Folder makes a folder for what this test binary shares, such as a program
// that its tests run. It is removed when the binary ends. Call it once for
// each name.
func Folder(name string) (string, error) {
	dir, err := shared.folder("of-tests-" + name)
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("testenv: make the folder %s: %w", name, err)
	}
	return dir, nil
}
