package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"

	"jobledger/internal/config"
	"jobledger/internal/metrics"
	"jobledger/ledger"
	"jobledger/workers"
	"jobledger/workers/contract"
)

func (a *app) openWorkers(context.Context) error {
	l, err := a.link(roleWorker)
	if err != nil {
		return err
	}
	if err := a.openSpool(); err != nil {
		return err
	}
	if err := a.openPresence(); err != nil {
		return err
	}
	a.workers = map[string]*workers.Worker{}
	var list []*workers.Worker
	for _, name := range slices.Sorted(maps.Keys(a.providers)) {
		if _, own := a.providers[name].Spec.(config.Own); own {
			continue // its workers are somebody else's processes
		}
		w, err := a.newWorker(l, a.providers[name])
		if err != nil {
			return fmt.Errorf("provider %s: %w", name, err)
		}
		a.workers[name] = w
		list = append(list, w)
	}
	if len(list) == 0 {
		a.log.Warn("the configuration has no providers that this process can work for, so no attempts are worked on", "role", roleWorker)
	}
	run := a.working(func(ctx context.Context) error { return runWorkers(ctx, list) })
	a.components = append(a.components, component{name: roleWorker, grace: a.grace + workerMargin, run: run})
	return nil
}

// runWorkers runs all workers; if one fails the others stop too.
func runWorkers(ctx context.Context, list []*workers.Worker) error {
	g, groupCtx := errgroup.WithContext(ctx)
	for _, w := range list {
		g.Go(func() error { return w.Run(groupCtx) })
	}
	g.Go(func() error { // without workers, too, the role lasts until it is stopped
		<-groupCtx.Done()
		return nil
	})
	return g.Wait()
}

func (a *app) newWorker(l *link, p config.Provider, change ...func(*workers.Options)) (*workers.Worker, error) {
	impl, perAttempt, err := implementation(p, a.contracts)
	if err != nil {
		return nil, err
	}
	meaning, err := providerMeaning(p)
	if err != nil {
		return nil, err
	}
	digest, err := ledger.ProviderDigest(p.Type(), meaning)
	if err != nil {
		return nil, fmt.Errorf("its definition: %w", err)
	}
	o := workers.Options{
		ProviderDigest: digest.String(),
		Provider:       p.Name, Impl: impl, Concurrency: p.Concurrency,
		Ledger: l.client, JetStream: l.js, Stream: a.ledger.Stream, SubjectPrefix: a.ledger.Prefix,
		Name: workerName(), KeyPerAttempt: perAttempt, Grace: a.grace, Spool: a.spool.of(p.Name), Contracts: a.contracts,
		Log: a.log.With("role", roleWorker), Ended: a.metrics.Ended(p.Name), Tracer: a.tracing,
	}
	for _, f := range change {
		f(&o)
	}
	w, err := workers.New(o)
	if err == nil {
		a.metrics.AddPool(metrics.Pool{Provider: p.Name, Concurrency: p.Concurrency, Calls: w.Calls})
	}
	return w, err
}

// implementation makes what a configured provider calls, and says whether its
// idempotency keys are per attempt. The kinds' contracts say what models are asked.
func implementation(p config.Provider, contracts map[string]*contract.Contract) (impl workers.Provider, perAttempt bool, err error) {
	switch spec := p.Spec.(type) {
	case config.HTTP:
		headers, err := headersFromEnvironment(spec.HeadersEnv)
		if err != nil {
			return nil, false, err
		}
		impl, err = workers.NewHTTP(workers.HTTPOptions{URL: spec.URL, Headers: headers, KnownFailures: spec.KnownFailures})
		return impl, spec.IdempotencyKey == config.KeyPerAttempt, err
	case config.Exec:
		impl, err = workers.NewExec(workers.ExecOptions{Command: spec.Command, Dir: spec.Dir, EnvPass: spec.EnvPass})
		return impl, false, err
	case config.Model:
		impl, err = modelProvider(spec, contracts)
		return impl, spec.IdempotencyKey == config.KeyPerAttempt, err
	}
	return nil, false, fmt.Errorf("its type is %q; expected http, exec, openai or anthropic", p.Type())
}

// headersFromEnvironment reads the headers' values from the variables that hold
// them. The values are secret and stand in no error.
func headersFromEnvironment(variables map[string]string) (map[string]string, error) {
	headers := map[string]string{}
	for header, variable := range variables {
		value, ok := os.LookupEnv(variable)
		if !ok {
			return nil, fmt.Errorf("the environment has no %s, which holds the header %s", variable, header)
		}
		headers[header] = value
	}
	return headers, nil
}
