package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"jobledger/ledger"
	"jobledger/projector"
	"jobledger/publisher/httpapi"
)

// readyTimeout bounds the check behind /readyz.
const readyTimeout = 2 * time.Second

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
	log := a.log.With("role", roleAPI)
	api, err := httpapi.New(httpapi.Options{
		Decider: l.client, Reader: projector.NewQueries(pool), Auth: a.auth,
		StreamEnd: streamEnd(s), Ready: a.ready(l, s, pool),
		Outcomes: &outcomes{nc: l.nc, prefix: a.ledger.Prefix, log: log},
		Log:      log, Version: version(),
	})
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	if a.listener, err = listen.Listen(ctx, "tcp", a.listen); err != nil {
		api.Close()
		return fmt.Errorf("listen for the API: %w", err)
	}
	run := func(ctx context.Context) error {
		defer api.Close()
		log.Info("serving the API", "url", "http://"+a.listener.Addr().String())
		return api.Serve(ctx, a.listener, httpapi.DefaultGrace)
	}
	a.components = append(a.components, component{name: roleAPI, grace: apiGrace, run: run})
	return nil
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
		ctx, cancel := context.WithTimeout(ctx, readyTimeout)
		defer cancel()
		if status := l.nc.Status(); status != nats.CONNECTED {
			return fmt.Errorf("NATS: the connection is %s", status)
		}
		if _, err := s.Info(ctx); err != nil {
			return fmt.Errorf("stream %s: %w", a.ledger.Stream, err)
		}
		if err := pool.Ping(ctx); err != nil {
			return fmt.Errorf("database: %w", err)
		}
		p := a.projector.Load()
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

// outcomes tells waiting requests of jobs that settle or become unknown.
type outcomes struct {
	nc     *nats.Conn
	prefix string
	log    *slog.Logger
}

// Watch implements httpapi.Outcomes.
func (o *outcomes) Watch(job uuid.UUID) (<-chan struct{}, func()) {
	news := make(chan struct{}, 1)
	sub, err := o.nc.Subscribe(o.prefix+"."+ledger.OutcomeSubject(job.String()), func(*nats.Msg) {
		select {
		case news <- struct{}{}:
		default: // it is told already
		}
	})
	if err != nil {
		o.log.Debug("a job's outcome cannot be watched; waiting polls instead", "job", job, "error", err)
		return nil, func() {}
	}
	return news, func() {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			o.log.Debug("a watch could not be ended", "job", job, "error", err)
		}
	}
}
