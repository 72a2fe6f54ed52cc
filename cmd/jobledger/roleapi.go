package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"jobledger/internal/metrics"
	"jobledger/projector"
	"jobledger/publisher"
	"jobledger/publisher/httpapi"
	"jobledger/publisher/natsapi"
	"jobledger/workers/contract"
)

func (a *app) openAPI(ctx context.Context) error {
	l, err := a.link(roleAPI)
	if err != nil {
		return err
	}
	s, err := a.stream(ctx, l)
	if err != nil {
		return err
	}
	pool, err := a.pool(ctx, apiConnections)
	if err != nil {
		return err
	}
	queries := projector.NewQueries(pool)
	log, outcomes := a.log.With("role", roleAPI), publisher.NewOutcomes(l.nc, a.ledger.Prefix)
	a.observeLedger(pool, s)
	a.metrics.SetWatches(outcomes.Watched)
	api, err := httpapi.New(httpapi.Options{
		Decider: l.client, Reader: queries, Auth: a.auth,
		StreamEnd: streamEnd(s), Ready: a.ready(l, s, pool),
		Inputs:   newInputChecker(func() map[string]*contract.Contract { return a.contracts }, queries.Kinds, log),
		Outcomes: outcomes, History: projector.NewHistories(pool, s, a.ledger.Prefix),
		Log: log, Version: version(), Around: a.aroundAPI(log),
	})
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	if a.listener, err = listen.Listen(ctx, "tcp", a.listen); err != nil {
		api.Close()
		return fmt.Errorf("listen for the API: %w", err)
	}
	services, err := natsapi.Start(natsapi.Options{
		Conn: l.nc, Caller: api, Stream: a.ledger.Stream, SubjectPrefix: a.ledger.Prefix, Version: version(), Log: log, Begin: a.beginService,
	})
	if err != nil {
		api.Close()
		return err
	}
	run := func(ctx context.Context) error {
		defer api.Close()
		log.Info("serving the API", "url", "http://"+a.listener.Addr().String(), "services", a.ledger.Prefix+".api.>")
		return serveBoth(ctx,
			func(ctx context.Context) error { return api.Serve(ctx, a.listener, httpapi.DefaultGrace) },
			func(ctx context.Context) error { return services.Run(ctx, natsapi.DefaultGrace) })
	}
	a.components = append(a.components, component{name: roleAPI, grace: apiGrace, run: run})
	return nil
}

// serveBoth serves through two doors; if one fails the other is closed, too.
func serveBoth(ctx context.Context, doors ...func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, serve := range doors {
		g.Go(func() error { return serve(ctx) })
	}
	return g.Wait()
}

func streamEnd(s jetstream.Stream) func(context.Context) (uint64, error) {
	return func(ctx context.Context) (uint64, error) {
		info, err := s.Info(ctx)
		if err != nil {
			return 0, fmt.Errorf("look at the stream's end: %w", err)
		}
		return info.State.LastSeq, nil
	}
}

// ready returns the check behind /readyz.
func (a *app) ready(l *link, s jetstream.Stream, pool *pgxpool.Pool) func(context.Context) error {
	return func(ctx context.Context) error {
		p := a.projector.Load()
		if p != nil && projectorState(p.Status()) == metrics.ProjectorStopped { // its error says what to do, which no other does
			return fmt.Errorf("projector: %w", p.Status().Err)
		}
		if status := l.nc.Status(); status != nats.CONNECTED {
			return fmt.Errorf("NATS: the connection is %s", status)
		}
		if _, err := s.Info(ctx); err != nil {
			return fmt.Errorf("stream %s: %w", a.ledger.Stream, err)
		}
		if err := pool.Ping(ctx); err != nil {
			return fmt.Errorf("database: %w", err)
		}
		if p == nil {
			return nil
		}
		// One that stands by is as ready as the one that it stands by for.
		if st := p.Status(); !st.Active && !errors.Is(st.Err, projector.ErrOtherWriter) {
			return fmt.Errorf("projector: %w", st.Err)
		}
		return nil
	}
}
