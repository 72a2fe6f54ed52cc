package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"jobledger/workers/presence"
)

const (
	// announceWait is how long the first work waits for the first beat.
	announceWait  = 2 * time.Second
	leaveWait     = 3 * time.Second
	presenceGrace = leaveWait + 2*time.Second
)

// openPresence makes this process announce itself, once for all of its roles.
// It comes before those who claim attempts, so that it is stopped after them.
func (a *app) openPresence() error {
	if a.beacon != nil {
		return nil
	}
	// A connection of its own: beats must not wait behind starts and results.
	nc, err := a.nats.dial("jobledger presence", a.log)
	if err != nil {
		return err
	}
	a.links = append(a.links, &link{nc: nc})
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("open JetStream: %w", err)
	}
	a.beacon, err = presence.NewBeacon(presence.BeaconOptions{
		JetStream: js, Stream: a.ledger.Stream, Name: workerName(),
		Providers: slices.Sorted(maps.Keys(a.providers)), Log: a.log.With("component", "presence"),
	})
	if err != nil {
		return err
	}
	a.components = append(a.components, component{name: "presence", grace: presenceGrace, run: a.announce})
	return nil
}

// announce announces the process until ctx ends. The announcement is taken back
// if nothing is left open; else its silence is to be noticed.
func (a *app) announce(ctx context.Context) error {
	a.beacon.Run(ctx)
	if a.unfinished.Load() > 0 || a.spool.holdsAny() {
		a.log.Warn("attempts may be left open, so this process stays known as a worker that is gone", "name", workerName())
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWait)
	defer cancel()
	if err := a.beacon.Leave(ctx); err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
		a.log.Info("this process stays known as a worker that is gone", "error", err)
	}
	return nil
}

// working wraps what may leave attempts open: it begins once the process has
// announced itself, and has left nothing open if run returns without an error.
func (a *app) working(run func(context.Context) error) func(context.Context) error {
	a.unfinished.Add(1)
	return func(ctx context.Context) error {
		a.announced(ctx)
		err := run(ctx)
		if err == nil {
			a.unfinished.Add(-1)
		}
		return err
	}
}

func (a *app) announced(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, announceWait)
	defer cancel()
	a.beacon.Announced(ctx)
}
