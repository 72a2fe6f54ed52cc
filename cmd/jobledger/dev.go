package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"jobledger/internal/config"
	"jobledger/internal/dirlock"
	"jobledger/internal/natsserver"
	"jobledger/internal/pgserver"
	"jobledger/publisher"
	"jobledger/publisher/httpapi"
	"jobledger/workers/contract"
)

const (
	// devGrace is short: whoever presses Ctrl-C is waiting. What still runs
	// then becomes unknown.
	devGrace     = 5 * time.Second
	devStartWait = 2 * time.Minute // making a database cluster takes seconds
	devStopWait  = 30 * time.Second
	devDatabase  = "postgres"
	defaultNATS  = 4222
)

type devOptions struct {
	http     string
	metrics  string
	natsPort int
}

func (c *cli) devCommand() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process, for development",
		Long: "Run everything in one process: an embedded NATS server, PostgreSQL as a child process, the API, the\n" +
			"projector and the workers. The directory of --data keeps the ledger. Kinds and providers of the\n" +
			"configuration file are applied; without a file there is a kind echo, which answers with its input.\n" +
			"When ready, DIR/dev.json says where everything is served, and the other commands find it there.",
		Args: cobra.NoArgs,
		RunE: ran(func(ctx context.Context, _ []string) error { return c.dev(ctx, o) }),
	}
	f := cmd.Flags()
	f.StringVar(&o.http, "http", "", "`ADDR` of the API, host:port; port 0 picks a free one (default: the configuration's api.listen)")
	f.StringVar(&o.metrics, "metrics", "", metricsUsage)
	f.IntVar(&o.natsPort, "nats-port", defaultNATS, "port of the NATS server; 0 picks a free one")
	return cmd
}

// dev runs the dev stack until ctx ends.
func (c *cli) dev(ctx context.Context, o devOptions) error {
	cfg, err := c.devConfig()
	if err != nil {
		return err
	}
	if o.http != "" {
		cfg.API.Listen = o.http
	}
	if err := requireLoopback(cfg.API.Listen); err != nil {
		return err
	}
	contracts, err := cfg.Contracts()
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	s := &devStack{cli: c, cfg: cfg, contracts: contracts, dir: c.data, natsPort: o.natsPort, metricsAt: metricsAt(o.metrics, cfg.API.Metrics)}
	return errors.Join(s.run(ctx), s.stop())
}

// devConfig is the configuration file, or what replaces it where there is none.
func (c *cli) devConfig() (*config.Config, error) {
	if !c.configGiven {
		if _, err := os.Stat(c.configFile); errors.Is(err, os.ErrNotExist) {
			self, err := os.Executable()
			if err != nil {
				return nil, fmt.Errorf("find this program, which is to be the echo provider: %w", err)
			}
			return config.Dev([]string{self, execEchoName}), nil
		}
	}
	return c.loadConfig()
}

// A devStack is the servers of a dev stack and the app that runs on them.
type devStack struct {
	*cli
	cfg       *config.Config
	contracts map[string]*contract.Contract
	dir       string
	natsPort  int

	metricsAt metricsAddress

	lock     *dirlock.Lock
	nats     *natsserver.Server
	postgres *pgserver.Server
	app      *app
}

func (s *devStack) run(ctx context.Context) error {
	err := s.start(ctx)
	if ctx.Err() != nil {
		s.log.Info("stopped while starting")
		return nil
	}
	if err != nil {
		return err
	}
	return s.app.run(ctx,
		component{name: "NATS server", grace: time.Second, run: untilDone(s.nats.Done())},
		component{name: "PostgreSQL", grace: time.Second, run: untilDone(s.postgres.Done())},
		component{name: "start", grace: decisionWait, run: s.becomeReady},
	)
}

// start starts the servers, makes the ledger if there is none, and connects.
func (s *devStack) start(ctx context.Context) error {
	if err := s.startServers(ctx); err != nil {
		return err
	}
	meta, err := ensureLedger(ctx, s.target(), s.cfg, initOptions{replicas: 1, shards: 1}, s.log)
	if err != nil {
		return err
	}
	s.app = &app{
		log: s.log, nats: s.target().nats, database: s.target().database, ledger: meta,
		roles: allRoles, providers: s.cfg.Providers, contracts: s.contracts,
		spoolDir: cmp.Or(s.cfg.Workers.Spool, filepath.Join(s.dir, "spool")), listen: s.cfg.API.Listen, auth: httpapi.DevAuth(), grace: devGrace,
		metricsAt: s.metricsAt,
	}
	return s.app.open(ctx)
}

// startServers starts the servers under the lock of the directory.
func (s *devStack) startServers(ctx context.Context) error {
	dir, err := filepath.Abs(s.dir)
	if err != nil {
		return err
	}
	s.dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if s.lock, err = dirlock.Acquire(dir); err != nil {
		return heldBy(err)
	}
	if err := removeDevFile(dir); err != nil { // a killed one may have left it
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, devStartWait)
	defer cancel()
	s.postgres, err = pgserver.Start(ctx, pgserver.Options{
		Dir: filepath.Join(dir, "postgres"), Fsync: true, Log: s.log.With("component", "postgres"),
	})
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	s.nats, err = natsserver.Start(natsserver.Options{
		Dir: filepath.Join(dir, "nats"), Port: s.natsPort, SyncAlways: true, Log: s.log.With("component", "nats"),
	})
	if err != nil {
		return fmt.Errorf("start the NATS server: %w", err)
	}
	return nil
}

// heldBy says who uses the directory.
func heldBy(err error) error {
	var held *dirlock.HeldError
	if errors.As(err, &held) {
		return fmt.Errorf("another jobledger dev is using this directory: %w", err)
	}
	return err
}

func (s *devStack) target() target {
	return target{
		nats:     natsTarget{url: s.nats.URL(), via: []nats.Option{s.nats.InProcessConn()}},
		database: s.postgres.URL(devDatabase),
	}
}

// untilDone is a component that fails if done is closed before it is stopped.
func untilDone(done <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-done:
			return errEnded
		case <-ctx.Done():
			return nil
		}
	}
}

// becomeReady applies the configuration's definitions, says that the stack is
// ready, and lasts until it is stopped.
func (s *devStack) becomeReady(ctx context.Context) error {
	list, err := definitions(s.cfg, actor())
	if err != nil {
		return err
	}
	l, err := openLink(s.target().nats, s.app.ledger.Stream, s.app.ledger.Prefix, "jobledger dev", s.log)
	if err != nil {
		return err
	}
	applied, err := applyDefinitions(ctx, l.client, list)
	for errors.Is(err, publisher.ErrNoDecision) && ctx.Err() == nil {
		s.log.Info("the tables are catching up with the stream")
		applied, err = applyDefinitions(ctx, l.client, list)
	}
	if errors.Is(err, publisher.ErrFull) { // whoever is to make room needs what runs here
		// As a component of its own, lest another's warning silences it.
		s.log.With("component", "start").Warn("the stream is full, so that the configuration's definitions could not be appended; those that the ledger has hold. Give the stream more room and start again", "error", err)
		err = nil
	}
	if err = errors.Join(err, l.close()); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for _, a := range applied {
		s.log.Debug("defined", "what", a.What, "name", a.Name, "decision", a.Decision)
		if a.Decision.Rejects() {
			return fmt.Errorf("the %s %s was not accepted: %s (%s): %s", a.What, a.Name, a.Decision, a.Reason, a.Detail)
		}
	}
	where := devFile{
		HTTP: "http://" + s.app.listener.Addr().String(), NATS: s.nats.URL(), Database: s.postgres.URL(devDatabase), PID: os.Getpid(),
		Metrics: s.app.metricsURL(),
	}
	if err := where.write(s.dir); err != nil {
		return err
	}
	s.announce(s.stderr, where)
	<-ctx.Done()
	return removeDevFile(s.dir)
}

func (s *devStack) announce(w io.Writer, where devFile) {
	fmt.Fprintf(w, "The job ledger is ready; Ctrl-C stops it.\n  API   %s\n  NATS  %s\n  data  %s\n", where.HTTP, where.NATS, s.dir)
	if where.Metrics != "" {
		fmt.Fprintf(w, "  metrics %s\n", where.Metrics)
	}
	if s.cfg.Kinds[echoKind].Name != "" {
		fmt.Fprintf(w, "Try: jobledger submit --owner me --key first --kind %s --input '{\"hello\":\"world\"}' --wait\n", echoKind)
	}
}

// stop ends what startServers and run have started, in the order in which
// nothing misses what it needs.
func (s *devStack) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), devStopWait)
	defer cancel()
	var errs []error
	if s.app != nil {
		errs = append(errs, s.app.close())
	}
	if s.nats != nil {
		errs = append(errs, s.nats.Stop(ctx))
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop(ctx))
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Release())
	}
	return errors.Join(errs...)
}
