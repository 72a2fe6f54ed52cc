// Package pgserver runs a PostgreSQL server as a child process, for the
// development stack and for tests.
//
// The server listens on 127.0.0.1 only and takes one user with a random
// password. It ends with this process, even if this process is killed. If this
// process runs as root, which PostgreSQL refuses to do, the child runs as an
// unprivileged user. Linux only.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	user = "jobledger"
	host = "127.0.0.1"

	// startTimeout bounds one start, which may include a crash recovery.
	startTimeout = 2 * time.Minute
	// fastStopTimeout is how long a fast shutdown (with its checkpoint) may
	// take before an immediate one is asked for, and immediateStopTimeout how
	// long that one may take before the kernel ends it.
	fastStopTimeout      = 30 * time.Second
	immediateStopTimeout = 5 * time.Second

	pollInterval = 10 * time.Millisecond

	// freePortTries bounds the race for a free port: between our asking for
	// one and PostgreSQL's binding it, another process can take it.
	freePortTries = 5
	// leftoverTimeout bounds the wait for what a killed predecessor left.
	leftoverTimeout = 20 * time.Second
)

// Options of a server. Dir is the only required member.
type Options struct {
	// Dir holds the cluster (in "data") and its password (in "password"). It
	// is made on the first start. The caller holds a lock on it (package
	// dirlock): whatever else still runs in it is taken for the leftover of a
	// killed owner, and ended.
	Dir string
	// Port on 127.0.0.1; 0 picks a free one.
	Port int
	// Log gets the server's lines at debug, its warnings at warn; nil: nowhere.
	Log *slog.Logger
	// Fsync makes commits survive a crash of the machine. Without it, which
	// suits tests, they survive only the death of processes.
	Fsync bool
	// Settings are server parameters that override this package's choices.
	Settings map[string]string
}

// Server is a running server.
type Server struct {
	port     int
	password string
	child    *child
	stopOnce sync.Once
}

// Start starts a server on o.Dir, making the cluster if there is none, and
// returns when it accepts connections. ctx bounds the start, not the server's
// life: only Stop, or the end of this process, ends that. On an error nothing
// is left running.
func Start(ctx context.Context, o Options) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c, err := openCluster(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("prepare PostgreSQL in %s: %w", o.Dir, err)
	}
	s, err := c.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL in %s: %w", o.Dir, err)
	}
	return s, nil
}

// start tries again where a second try can help: when a port that was free is
// not any more, and while what a killed predecessor left is still ending.
func (c *cluster) start(ctx context.Context) (*Server, error) {
	leftover, err := c.endLeftovers(ctx)
	if err != nil {
		return nil, err
	}
	patience := time.Now().Add(leftoverTimeout)
	for try := 1; ; try++ {
		s, err := c.startOnce(ctx)
		if err == nil {
			return s, nil
		}
		again := (c.Port == 0 && try < freePortTries) || (leftover && time.Now().Before(patience))
		if !again || ctx.Err() != nil || !errors.Is(err, errEarlyExit) {
			return nil, err
		}
		if err := sleep(ctx, 10*pollInterval); err != nil {
			return nil, err
		}
	}
}

func (c *cluster) startOnce(ctx context.Context) (*Server, error) {
	port := c.Port
	if port == 0 {
		var err error
		if port, err = freePort(); err != nil {
			return nil, err
		}
	}
	started, err := spawn(c.command("postgres", c.serverArgs(port)...), c.Log)
	if err != nil {
		return nil, err
	}
	s := &Server{port: port, password: c.password, child: started}
	if err := c.awaitReady(ctx, s); err != nil {
		started.kill()
		return nil, err
	}
	return s, nil
}

// URL is the connection string for a database, such as "postgres", which
// always exists, with the password in it.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(user, s.password),
		Host:     net.JoinHostPort(host, strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Port is the port on 127.0.0.1, useful after asking for any.
func (s *Server) Port() int { return s.port }

// PID is the process id of the postmaster. It means nothing after Done.
func (s *Server) PID() int { return s.child.pid }

// Done is closed when the server has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.child.done }

// Stop shuts the server down and returns when it has ended. It first asks for
// a fast shutdown, which rolls transactions back and writes a checkpoint;
// then, when ctx ends or after 30 s, for an immediate one, from which the next
// start recovers; and in the end it kills. It is idempotent and may be called
// by several goroutines. The error says that the shutdown was not clean.
func (s *Server) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fastStopTimeout)
	defer cancel()
	s.stopOnce.Do(func() { s.child.signal(syscall.SIGINT) })
	select {
	case <-s.Done():
		return s.child.stopError()
	case <-ctx.Done():
	}
	s.child.kill()
	return fmt.Errorf("stop PostgreSQL: not ended by a fast shutdown, so it was cut short: %w", context.Cause(ctx))
}

// freePort asks the kernel for a port that nobody listens on.
func freePort() (int, error) {
	listener, err := net.Listen("tcp4", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func exists(parts ...string) bool {
	_, err := os.Stat(filepath.Join(parts...))
	return err == nil
}
