package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"jobledger/internal/httpstatus"
	"jobledger/internal/metrics"
	"jobledger/internal/tracing"
	"jobledger/ledger"
	"jobledger/projector"
	"jobledger/publisher"
	"jobledger/publisher/httpapi"
)

const (
	metricsGrace = 5 * time.Second
	// tracesStop bounds how long a collector that is away holds up the end.
	tracesStop = 3 * time.Second
)

const metricsUsage = "`ADDR` of the metrics, host:port; port 0 picks a free one (default: the configuration's api.metrics)"

// A metricsAddress says where the metrics are served.
type metricsAddress struct {
	listen string // host:port; "": nowhere
	// insist makes an address that is taken an error. Otherwise a free port of
	// the same host takes its place: several processes of a ledger may share a
	// machine and a configuration.
	insist bool
}

// metricsAt is the address that the flag or else the configuration names.
func metricsAt(flag, configured string) metricsAddress {
	if flag != "" {
		return metricsAddress{listen: flag, insist: true}
	}
	return metricsAddress{listen: configured}
}

// listenTo opens the address.
func (m metricsAddress) listenTo(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", m.listen)
	if err == nil || m.insist || !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	host, _, splitErr := net.SplitHostPort(m.listen)
	if splitErr != nil {
		return nil, err
	}
	if l, err = config.Listen(ctx, "tcp", net.JoinHostPort(host, "0")); err == nil {
		log.Warn("the metrics' address is taken; give each process of this machine one of its own with --metrics",
			"api.metrics", m.listen, "instead", l.Addr().String())
	}
	return l, err
}

// openObservation makes what the roles are observed by. It comes before them.
func (a *app) openObservation(ctx context.Context) error {
	a.metrics = metrics.New(version())
	a.tracing = tracing.New(ctx, tracing.Options{
		Version: version(), Instance: workerName(), Getenv: os.Getenv, Log: a.log.With("component", "traces"),
	})
	if a.metricsAt.listen == "" {
		return nil
	}
	var err error
	if a.metricsListener, err = a.metricsAt.listenTo(ctx, a.log); err != nil {
		return fmt.Errorf("listen for the metrics: %w", err)
	}
	run := func(ctx context.Context) error {
		a.log.Info("serving metrics", "url", a.metricsURL())
		return a.metrics.Serve(ctx, a.metricsListener, a.log.With("component", "metrics"))
	}
	a.components = append(a.components, component{name: "metrics", grace: metricsGrace, run: run})
	return nil
}

// metricsURL is where the metrics are served, "" for nowhere.
func (a *app) metricsURL() string {
	if a.metricsListener == nil {
		return ""
	}
	return "http://" + a.metricsListener.Addr().String() + "/metrics"
}

// closeObservation gives up what openObservation took, and exports the last
// spans. That they cannot be exported is no failure of the process.
func (a *app) closeObservation() error {
	var err error
	if a.metricsListener != nil {
		if err = a.metricsListener.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
	}
	if a.tracing != nil {
		ctx, cancel := context.WithTimeout(context.Background(), tracesStop)
		defer cancel()
		if err := a.tracing.Close(ctx); err != nil {
			a.log.Warn("spans are lost", "error", err)
		}
	}
	return err
}

// observed makes the appender of a role's link counted and traced.
func (a *app) observed(o *publisher.Options) {
	o.Observer, o.TraceParent = a.metrics, a.tracing.Traceparent
}

// observeLink makes a role's connection part of the metrics.
func (a *app) observeLink(role string, l *link) {
	a.metrics.AddLink(metrics.Link{Role: role, Connected: l.nc.IsConnected, Waiting: l.client.Waiting, Dropped: l.client.Dropped})
}

// observeLedger makes figures of the tables and of the stream part of the
// metrics, once, whichever role has them first.
func (a *app) observeLedger(pool *pgxpool.Pool, s jetstream.Stream) {
	if a.ledgerObserved {
		return
	}
	a.ledgerObserved = true
	a.metrics.AddSource(metrics.Source{Tables: projector.NewQueries(pool).Gauges, Stream: s, Log: a.log.With("component", "metrics")})
}

// projectorState is what the metrics call a projector's status.
func projectorState(s projector.Status) string {
	var stream *projector.StreamError
	var fold *ledger.CorruptionError
	switch {
	case s.Active:
		return metrics.ProjectorActive
	case errors.Is(s.Err, projector.ErrOtherWriter):
		return metrics.ProjectorStandby
	case errors.As(s.Err, &stream) || errors.As(s.Err, &fold):
		return metrics.ProjectorStopped
	}
	return metrics.ProjectorRecovering
}

// aroundAPI counts and traces the API's requests, and logs them at debug level.
func (a *app) aroundAPI(log *slog.Logger) func(http.Handler) http.Handler {
	return func(api http.Handler) http.Handler { return a.metrics.Handler(a.tracing.Handler(logged(api, log))) }
}

// logged writes a line for each request: its route and not its path or query,
// in which owners and keys may stand.
func logged(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !log.Enabled(r.Context(), slog.LevelDebug) {
			next.ServeHTTP(w, r)
			return
		}
		began, answer := time.Now(), httpstatus.New(w)
		next.ServeHTTP(answer, r)
		log.Debug("a request was served", "request_id", w.Header().Get(httpapi.RequestIDHeader), "route", r.Pattern,
			"status", answer.Status(), "job", w.Header().Get(httpapi.JobHeader), "took", time.Since(began))
	})
}

// beginService counts and traces a request to a NATS service.
func (a *app) beginService(ctx context.Context, op httpapi.Operation, traceparent string) (context.Context, func(httpapi.Response)) {
	began := time.Now()
	ctx, end := a.tracing.BeginService(ctx, string(op), traceparent)
	return ctx, func(answer httpapi.Response) {
		job := ""
		for _, h := range answer.Headers {
			if h[0] == httpapi.JobHeader {
				job = h[1]
			}
		}
		end(answer.Status, job)
		a.metrics.Served(string(op), answer.Status, time.Since(began))
	}
}

// commandTrace makes the entries of a command part of the trace that the
// environment names.
func commandTrace(o *publisher.Options) {
	parent := tracing.Valid(os.Getenv("TRACEPARENT"))
	o.TraceParent = func(context.Context) string { return parent }
}
