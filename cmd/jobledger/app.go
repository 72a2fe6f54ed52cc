package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"jobledger/internal/config"
	"jobledger/internal/metrics"
	"jobledger/internal/stream"
	"jobledger/internal/tracing"
	"jobledger/projector"
	"jobledger/publisher/httpapi"
	"jobledger/workers"
	"jobledger/workers/contract"
	"jobledger/workers/presence"
)

// The roles that a process can have.
const (
	roleAPI       = "api"
	roleProjector = "projector"
	roleWorker    = "worker"
	// roleReconciler finds out what became of unknown attempts, and whose
	// workers are gone.
	roleReconciler = "reconciler"
)

var allRoles = []string{roleAPI, roleProjector, roleWorker, roleReconciler}

// parseRoles checks a list of roles.
func parseRoles(list []string) ([]string, error) {
	if len(list) == 0 {
		return nil, fmt.Errorf("--roles is empty; expected some of %s", strings.Join(allRoles, ", "))
	}
	for _, role := range list {
		if !slices.Contains(allRoles, role) {
			return nil, fmt.Errorf("--roles names %q; expected some of %s", role, strings.Join(allRoles, ", "))
		}
	}
	return list, nil
}

const (
	apiConnections       = 16
	projectorConnections = 8
	// reconcilerConnections are for one walk through the unknown attempts, one
	// question about lost workers, and the jobs of those that are replayed.
	reconcilerConnections = 4
	openTimeout           = 15 * time.Second

	apiGrace       = httpapi.DefaultGrace + 5*time.Second
	projectorGrace = 15 * time.Second
	// workerMargin is what workers may take to record the ends of their calls
	// once the calls' own grace is over.
	workerMargin = 20 * time.Second
)

// An app is the roles of one process, wired together. The exported components
// know nothing of each other; what they need of each other is given to them
// here. Set the first group of members, then open, run and close it.
type app struct {
	log       *slog.Logger
	nats      natsTarget
	database  string         // URL
	ledger    projector.Meta // which ledger; Shards is not looked at
	roles     []string
	providers map[string]config.Provider    // what the worker and reconciler roles serve
	contracts map[string]*contract.Contract // of the kinds, by name
	spoolDir  string                        // of the worker role; "": none
	listen    string                        // host:port of the API
	metricsAt metricsAddress
	auth      httpapi.Authenticator
	// grace is how long running calls of workers may go on when the process
	// has to stop.
	grace time.Duration

	links    []*link
	pools    []*pgxpool.Pool
	spool    *spool       // nil without spoolDir
	listener net.Listener // of the API

	metrics         *metrics.Metrics
	tracing         *tracing.Tracing
	metricsListener net.Listener // nil: the metrics are served nowhere
	ledgerObserved  bool

	beacon  *presence.Beacon           // nil without a role that works on attempts
	workers map[string]*workers.Worker // of the worker role, by provider
	// unfinished counts the components that may have left attempts open.
	unfinished atomic.Int32

	components []component
	projector  atomic.Pointer[projector.Projector] // nil without the role
}

// open connects everything, and checks that the stream and the tables are those
// of the ledger. On an error nothing stays open.
func (a *app) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := a.openObservation(ctx); err != nil {
		return errors.Join(err, a.close())
	}
	// The order is that of the start; stopping goes backwards.
	for _, role := range []struct {
		name string
		open func(context.Context) error
	}{
		{roleProjector, a.openProjector}, {roleWorker, a.openWorkers}, {roleReconciler, a.openReconciler}, {roleAPI, a.openAPI},
	} {
		if !slices.Contains(a.roles, role.name) {
			continue
		}
		if err := role.open(ctx); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", role.name, err), a.close())
		}
	}
	return nil
}

// run runs the roles until ctx ends or one of them fails.
func (a *app) run(ctx context.Context, more ...component) error {
	return runGroup(ctx, a.log, append(more, a.components...))
}

// close gives up what open took. It is safe to call after a failed open.
func (a *app) close() error {
	var errs []error
	if a.listener != nil {
		if err := a.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, l := range slices.Backward(a.links) {
		errs = append(errs, l.close())
	}
	for _, p := range a.pools {
		p.Close()
	}
	errs = append(errs, a.spool.close(), a.closeObservation())
	a.links, a.pools, a.spool = nil, nil, nil
	return errors.Join(errs...)
}

func (a *app) link(name string) (*link, error) {
	l, err := openLink(a.nats, a.ledger.Stream, a.ledger.Prefix, "jobledger "+name, a.log, a.observed)
	if err == nil {
		a.links = append(a.links, l)
		a.observeLink(name, l)
	}
	return l, err
}

func (a *app) pool(ctx context.Context, size int) (*pgxpool.Pool, error) {
	p, err := projector.NewPool(ctx, a.database, size)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	a.pools = append(a.pools, p)
	return p, nil
}

// stream opens the ledger's stream on l, and insists that it is one.
func (a *app) stream(ctx context.Context, l *link) (jetstream.Stream, error) {
	return stream.Open(ctx, l.js, a.ledger.Stream, a.ledger.Prefix)
}

// workerName names this process in claims and in the bucket of the workers'
// presence. It is random in part: in a container that was restarted the process
// number is the same again, and the attempts of the one that died must not be
// taken for this one's.
var workerName = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown-host"
	}
	host = notInName.ReplaceAllString(host[:min(len(host), 128)], "-")
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), strings.ToLower(rand.Text()[:10]))
})

// notInName are the characters that the name of a process must not have.
var notInName = regexp.MustCompile(`[^A-Za-z0-9_-]`)
