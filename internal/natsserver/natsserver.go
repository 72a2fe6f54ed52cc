// Package natsserver runs a NATS server with JetStream inside this process,
// for the development stack and for tests.
package natsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const (
	// MaxPayloadBytes is the largest message, headers included, that the
	// server takes. It is NATS' own default, said aloud because the ledger
	// derives its limits from it.
	MaxPayloadBytes = 1 << 20

	// DefaultMaxStoreBytes bounds JetStream's files when Options does not.
	// The server's own default is a share of the free disk, which makes a
	// stream's creation fail or not depending on the machine's mood.
	DefaultMaxStoreBytes = 64 << 30

	// DefaultReadyTimeout is how long Start waits. Opening a big store means
	// reading through its files.
	DefaultReadyTimeout = time.Minute

	readyPoll = 50 * time.Millisecond
	host      = "127.0.0.1"
)

// Options of a server. Dir is the only required member.
type Options struct {
	// Dir holds JetStream's files. The caller holds a lock on it (see package
	// dirlock): the server takes none.
	Dir string
	// Port for clients on 127.0.0.1; 0 picks a free one.
	Port int
	// MonitorPort serves NATS' HTTP monitoring on 127.0.0.1; 0: none, -1: any free one.
	MonitorPort int
	// SyncAlways makes an acknowledgement mean "on disk" (one fsync for each
	// write). False leaves the server's default, a sync every two minutes.
	SyncAlways bool
	// MaxStoreBytes bounds JetStream's files; 0: DefaultMaxStoreBytes.
	MaxStoreBytes int64
	// MaxPayload is the largest message, headers included; 0: MaxPayloadBytes.
	// A ledger's projector refuses a server that takes less.
	MaxPayload int32
	// ConfigFile is a NATS configuration to start from, for accounts and
	// permissions; the other members override what it says. "": none.
	ConfigFile string
	// Name of the server in its INFO and logs; "": "jobledger".
	Name string
	// Log gets the server's lines, notices at debug, the rest at warn and
	// error; nil: nowhere.
	Log *slog.Logger
	// ReadyTimeout bounds Start; 0: DefaultReadyTimeout.
	ReadyTimeout time.Duration
}

// Server is a running server.
type Server struct {
	server *server.Server
	port   int

	stopOnce sync.Once
	stopped  chan struct{}
}

// Start starts a server and returns when it accepts connections, with
// JetStream open. On an error nothing is left running.
func Start(o Options) (*Server, error) {
	opts, err := o.serverOptions()
	if err != nil {
		return nil, err
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("configure the NATS server: %w", err)
	}
	log := &logger{log: o.Log, fatal: make(chan string, 1)}
	if log.log == nil {
		log.log = slog.New(slog.DiscardHandler)
	}
	ns.SetLoggerV2(log, false, false, false)

	s := &Server{server: ns, stopped: make(chan struct{})}
	started := make(chan struct{})
	go func() {
		defer close(started)
		ns.Start()
	}()
	if err := s.awaitReady(o.ReadyTimeout, log.fatal); err != nil {
		s.shutdown()
		<-started
		<-s.stopped
		return nil, fmt.Errorf("start the NATS server on %s:%d with its store in %s: %w", host, o.Port, o.Dir, err)
	}
	<-started
	s.port = ns.Addr().(*net.TCPAddr).Port
	return s, nil
}

func (o Options) serverOptions() (*server.Options, error) {
	if o.Dir == "" {
		return nil, errors.New("natsserver: Options.Dir is empty: name the directory for JetStream's files")
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the NATS server's directory: %w", err)
	}
	opts := &server.Options{}
	if o.ConfigFile != "" {
		var err error
		if opts, err = server.ProcessConfigFile(o.ConfigFile); err != nil {
			return nil, fmt.Errorf("read the NATS configuration %s: %w", o.ConfigFile, err)
		}
	}
	opts.ServerName = orDefault(o.Name, "jobledger")
	opts.Host = host
	opts.Port = orDefault(o.Port, server.RANDOM_PORT)
	opts.HTTPHost = host
	opts.HTTPPort = o.MonitorPort
	opts.NoSigs = true // the program's own handler stops the server
	opts.MaxPayload = orDefault(o.MaxPayload, MaxPayloadBytes)
	opts.JetStream = true
	opts.DisableJetStreamBanner = true
	opts.StoreDir = o.Dir
	opts.SyncAlways = o.SyncAlways
	opts.JetStreamMaxStore = orDefault(o.MaxStoreBytes, DefaultMaxStoreBytes)
	return opts, nil
}

// awaitReady polls, since the server has no signal for readiness, but gives
// up at once when the server logged why it will never be ready.
func (s *Server) awaitReady(timeout time.Duration, fatal <-chan string) error {
	timeout = orDefault(timeout, DefaultReadyTimeout)
	deadline := time.Now().Add(timeout)
	for !s.server.ReadyForConnections(readyPoll) {
		select {
		case reason := <-fatal:
			return errors.New(reason)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s", timeout)
		}
	}
	if !s.server.JetStreamEnabled() {
		return errors.New("JetStream is not enabled")
	}
	return nil
}

// URL is the address for clients, such as nats://127.0.0.1:4222.
func (s *Server) URL() string { return s.server.ClientURL() }

// Port is the port for clients on 127.0.0.1, useful after asking for any.
func (s *Server) Port() int { return s.port }

// MonitorURL is the address of the monitoring endpoint, "" if there is none.
func (s *Server) MonitorURL() string {
	addr := s.server.MonitorAddr()
	if addr == nil {
		return ""
	}
	return "http://" + addr.String()
}

// InProcessConn makes nats.Connect reach this server without a socket.
func (s *Server) InProcessConn() nats.Option { return nats.InProcessServer(s.server) }

// Stop shuts the server down: clients are disconnected, JetStream's files are
// flushed and closed. It returns when that is done or ctx ends, is idempotent,
// and may be called by several goroutines.
func (s *Server) Stop(ctx context.Context) error {
	s.shutdown()
	select {
	case <-s.stopped:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the NATS server: %w", context.Cause(ctx))
	}
}

// Done is closed when the server has stopped.
func (s *Server) Done() <-chan struct{} { return s.stopped }

func (s *Server) shutdown() {
	s.stopOnce.Do(func() {
		go func() {
			defer close(s.stopped)
			s.server.Shutdown()
			s.server.WaitForShutdown()
		}()
	})
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
