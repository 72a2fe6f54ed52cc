package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// A component is a part of the process that runs until its context ends.
type component struct {
	name string
	// grace is how long it may take to stop. What has not stopped then is left
	// behind, and the process ends with an error.
	grace time.Duration
	// run returns nil once ctx has ended; anything else ends the process.
	run func(ctx context.Context) error
}

// errEnded is what becomes of a component that ends without having been asked.
var errEnded = errors.New("ended though nobody had asked it to")

// runGroup starts the components in order and runs them until ctx ends or one
// of them fails. Then it stops them one after the other, the last one first,
// each for no longer than its grace. The error joins all that went wrong.
func runGroup(ctx context.Context, log *slog.Logger, components []component) error {
	failed := make(chan error, len(components))
	running := make([]*runningComponent, 0, len(components))
	for _, c := range components {
		running = append(running, c.start(ctx, failed))
	}
	var errs []error
	select {
	case <-ctx.Done():
		log.Info("stopping")
	case err := <-failed:
		errs = append(errs, err)
		log.Error("stopping, because a component failed", "error", err)
	}
	for _, r := range slices.Backward(running) {
		errs = append(errs, r.stop())
	}
	for {
		select {
		case err := <-failed:
			errs = append(errs, err)
		default:
			return errors.Join(errs...)
		}
	}
}

type runningComponent struct {
	component
	cancel context.CancelFunc
	done   chan struct{}
}

func (c component) start(ctx context.Context, failed chan<- error) *runningComponent {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &runningComponent{component: c, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		err := c.run(ctx)
		if err == nil && ctx.Err() == nil {
			err = errEnded
		}
		if err != nil {
			failed <- fmt.Errorf("%s: %w", c.name, err)
		}
	}()
	return r
}

func (r *runningComponent) stop() error {
	r.cancel()
	patience := time.NewTimer(r.grace)
	defer patience.Stop()
	select {
	case <-r.done:
		return nil
	case <-patience.C:
		return fmt.Errorf("%s: did not stop within %s", r.name, r.grace)
	}
}
