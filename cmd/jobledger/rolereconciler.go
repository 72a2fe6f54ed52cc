package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"jobledger/internal/config"
	"jobledger/ledger"
	"jobledger/projector"
	"jobledger/workers"
	"jobledger/workers/presence"
	"jobledger/workers/reconcile"
)

// openReconciler makes what finds out about unknown attempts, and what makes
// attempts unknown whose workers are gone.
func (a *app) openReconciler(ctx context.Context) error {
	if err := a.openPresence(); err != nil {
		return err
	}
	l, err := a.link(roleReconciler)
	if err != nil {
		return err
	}
	s, err := a.stream(ctx, l)
	if err != nil {
		return err
	}
	pool, err := a.pool(ctx, reconcilerConnections)
	if err != nil {
		return err
	}
	queries, log := projector.NewQueries(pool), a.log.With("role", roleReconciler)
	watcher, err := presence.NewWatcher(presence.WatcherOptions{
		JetStream: l.js, Stream: a.ledger.Stream, Beacon: a.beacon, Reader: heldReader{queries}, Ledger: l.client,
		Actor: roleReconciler + "/" + workerName(), Log: log, Lost: a.metrics.WorkerLost,
	})
	if err != nil {
		return err
	}
	providers, replayers, err := a.reconciled(l, queries)
	if err != nil {
		return err
	}
	reconciler, err := reconcile.New(reconcile.Options{
		Name: workerName(), Providers: providers, Reader: queries, Ledger: l.client, Now: streamClock(s), Judge: a.judge(queries), Log: log,
		Observe: func(provider string, what reconcile.Outcome) { a.metrics.Reconciled(provider, string(what)) },
	})
	if err != nil {
		return err
	}
	run := a.working(func(ctx context.Context) error { return runReconciler(ctx, reconciler, watcher, replayers) })
	a.components = append(a.components, component{name: roleReconciler, grace: a.grace + workerMargin, run: run})
	return nil
}

func runReconciler(ctx context.Context, r *reconcile.Reconciler, w *presence.Watcher, replayers []*workers.Worker) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return runWorkers(ctx, replayers) })
	g.Go(func() error {
		r.Run(ctx)
		return nil
	})
	g.Go(func() error {
		w.Run(ctx)
		return nil
	})
	return g.Wait()
}

// reconciled returns the providers that say how the truth can be had, and the
// workers that are to replay what this process has no worker for.
func (a *app) reconciled(l *link, queries *projector.Queries) (map[string]reconcile.Provider, []*workers.Worker, error) {
	providers := map[string]reconcile.Provider{}
	var replayers []*workers.Worker
	for _, name := range slices.Sorted(maps.Keys(a.providers)) {
		spec, ok := a.providers[name].Spec.(config.HTTP)
		if !ok || spec.Reconcile == (config.Reconcile{}) {
			continue
		}
		p, err := reconciledProvider(spec)
		if err != nil {
			return nil, nil, fmt.Errorf("provider %s: %w", name, err)
		}
		p.InFlight = min(a.providers[name].Concurrency, reconcile.DefaultInFlight)
		if spec.Reconcile.Replay {
			// The calls that a process makes at a time are counted together.
			w := a.workers[name]
			if w == nil {
				if w, err = a.newWorker(l, a.providers[name], replayOnly); err != nil {
					return nil, nil, fmt.Errorf("provider %s: %w", name, err)
				}
				replayers = append(replayers, w)
			}
			p.Replay = sameRequest{worker: w, queries: queries, spec: spec}
		}
		providers[name] = p
	}
	return providers, replayers, nil
}

// judge holds a result that a look-up found against the contract under which the
// attempt's job was accepted.
func (a *app) judge(queries *projector.Queries) func(context.Context, *ledger.Attempt, []byte) (string, error) {
	return func(ctx context.Context, at *ledger.Attempt, result []byte) (string, error) {
		j, err := queries.Job(ctx, at.Job)
		if err != nil {
			return "", err
		}
		if j == nil {
			return "", fmt.Errorf("the tables have no job %s", at.Job)
		}
		kind, err := queries.KindAt(ctx, j.Kind, j.KindSeq)
		if err != nil || kind == nil || kind.Contract == "" {
			return "", err
		}
		own := a.contracts[j.Kind]
		if own == nil || own.Digest() != kind.Contract {
			return "", fmt.Errorf("the job was accepted under the contract %s of kind %s, and this process has another one, or none", kind.Contract, j.Kind)
		}
		faults := own.CheckResult(j.Input, result)
		lines := make([]string, len(faults))
		for i, f := range faults {
			lines[i] = f.String()
		}
		return strings.Join(lines, "; "), nil
	}
}

// sameRequest replays only what would be the same request to the same place. A
// provider's definition may have changed since: whoever stands behind another
// URL has never seen the idempotency key.
type sameRequest struct {
	worker  *workers.Worker
	queries *projector.Queries
	spec    config.HTTP
}

func (r sameRequest) Replay(ctx context.Context, a *ledger.Attempt) (ledger.Answer, error) {
	then, err := r.queries.ProviderAt(ctx, a.Provider, a.StartSeq)
	if err != nil {
		return ledger.Answer{}, err
	}
	if then == nil {
		return ledger.Answer{}, fmt.Errorf("%w: the provider was not defined when the attempt started", reconcile.ErrNotTheSame)
	}
	var was httpMeaning
	if err := json.Unmarshal(then.Definition, &was); err != nil || then.Type != "http" || was.URL != r.spec.URL || was.IdempotencyKey != r.spec.IdempotencyKey {
		return ledger.Answer{}, fmt.Errorf("%w: url or idempotency_key of the provider are others than when the attempt started, at entry %d", reconcile.ErrNotTheSame, a.StartSeq)
	}
	return r.worker.Replay(ctx, a)
}

// replayOnly makes a worker take no starts. What it cannot record when it must
// exit stays unknown: the spool is that of the worker role.
func replayOnly(o *workers.Options) { o.ReplayOnly, o.Spool = true, nil }

// reconciledProvider is a provider but for its replays.
func reconciledProvider(spec config.HTTP) (reconcile.Provider, error) {
	r := spec.Reconcile
	p := reconcile.Provider{NotFoundFailed: r.NotFound == config.NotFoundFailed, Initial: r.Backoff.Initial, Max: r.Backoff.Max}
	if r.Lookup == "" {
		return p, nil
	}
	headers, err := headersFromEnvironment(spec.HeadersEnv)
	if err != nil {
		return p, err
	}
	lookup, err := reconcile.NewHTTPLookup(reconcile.LookupOptions{URL: r.Lookup, Timeout: r.LookupTimeout, Headers: headers})
	if err != nil {
		return p, err
	}
	p.Lookup = lookup
	return p, nil
}

// streamClock reads the clock of the server that stamps the stream's entries.
func streamClock(s jetstream.Stream) func(context.Context) (time.Time, error) {
	return func(ctx context.Context) (time.Time, error) {
		info, err := s.Info(ctx)
		if err != nil {
			return time.Time{}, fmt.Errorf("ask the stream for the time: %w", err)
		}
		return info.TimeStamp, nil
	}
}

// heldReader is what a presence watcher reads, from the tables.
type heldReader struct{ queries *projector.Queries }

func (r heldReader) HeldBy(ctx context.Context, names []string, after ledger.Cursor) ([]presence.Held, error) {
	rows, err := r.queries.AttemptsHeldBy(ctx, names, after)
	if err != nil {
		return nil, err
	}
	held := make([]presence.Held, len(rows))
	for i, a := range rows {
		held[i] = presence.Held{Job: a.Job, Attempt: a.Number, Worker: a.Worker, RequestedAt: a.RequestedAt, Heartbeat: a.HeartbeatTimeout}
	}
	return held, nil
}
