package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// journal notes what components do, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func TestGroupStopsBackwards(t *testing.T) {
	t.Parallel()
	var j journal
	var running sync.WaitGroup
	part := func(name string) component {
		running.Add(1)
		return component{name: name, grace: time.Minute, run: func(ctx context.Context) error {
			running.Done()
			<-ctx.Done()
			j.note(name)
			return nil
		}}
	}
	parts := []component{part("a"), part("b"), part("c")}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		running.Wait()
		cancel()
	}()
	require.NoError(t, runGroup(ctx, slog.New(slog.DiscardHandler), parts))
	require.Equal(t, []string{"c", "b", "a"}, j.lines)
}

func TestGroupEndsWithItsFailures(t *testing.T) {
	t.Parallel()
	broken, late := errors.New("broken"), errors.New("late")
	err := runGroup(t.Context(), slog.New(slog.DiscardHandler), []component{
		{name: "idle", grace: time.Minute, run: func(ctx context.Context) error { <-ctx.Done(); return late }},
		{name: "bad", grace: time.Minute, run: func(context.Context) error { return broken }},
	})
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, err, late, "what goes wrong while stopping is told, too")
	require.ErrorContains(t, err, "bad: broken")

	err = runGroup(t.Context(), slog.New(slog.DiscardHandler), []component{
		{name: "short", grace: time.Minute, run: func(context.Context) error { return nil }},
	})
	require.ErrorIs(t, err, errEnded)
}

func TestGroupLeavesTheStuckBehind(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := runGroup(ctx, slog.New(slog.DiscardHandler), []component{
		{name: "stuck", grace: time.Millisecond, run: func(context.Context) error { <-release; return nil }},
	})
	require.ErrorContains(t, err, "stuck: did not stop within 1ms")
}
