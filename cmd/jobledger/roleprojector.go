package main

import (
	"context"
	"time"

	"jobledger/internal/tracing"
	"jobledger/projector"
)

// stoppedReminder is how often the log says again that the projector has
// stopped for good.
const stoppedReminder = time.Minute

func (a *app) openProjector(ctx context.Context) error {
	l, err := a.link(roleProjector)
	if err != nil {
		return err
	}
	s, err := a.stream(ctx, l)
	if err != nil {
		return err
	}
	pool, err := a.pool(ctx, projectorConnections)
	if err != nil {
		return err
	}
	p, err := projector.New(projector.Options{
		Pool: pool, Conn: l.nc, Stream: s, Prefix: a.ledger.Prefix, Appender: l.client,
		Observer: a.metrics, WithTrace: tracing.Enter, Log: a.log.With("role", roleProjector),
	})
	if err != nil {
		return err
	}
	a.projector.Store(p)
	a.observeLedger(pool, s)
	a.metrics.SetProjector(func() string { return projectorState(p.Status()) })
	a.components = append(a.components, component{name: roleProjector, grace: projectorGrace, run: a.runProjector})
	return nil
}

// runProjector projects. If the stream does not fit the tables the projector
// stops, and the process stays: it answers that it is not ready, which a person
// must see to, and a restart would change nothing.
func (a *app) runProjector(ctx context.Context) error {
	err := a.projector.Load().Run(ctx)
	if err == nil {
		return nil
	}
	remind := time.NewTicker(stoppedReminder)
	defer remind.Stop()
	for {
		a.log.Error("the projector has stopped for good: the tables no longer follow the stream", "role", roleProjector, "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-remind.C:
		}
	}
}
