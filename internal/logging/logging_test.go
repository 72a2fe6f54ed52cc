package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewFormats(t *testing.T) {
	t.Parallel()
	var text, object bytes.Buffer
	log, err := New(&text, "info", FormatText)
	require.NoError(t, err)
	log.Debug("hidden")
	log.Info("shown", "job", "j1")
	require.Regexp(t, `^time=\S+Z level=INFO msg=shown job=j1\n$`, text.String())

	log, err = New(&object, "debug", FormatJSON)
	require.NoError(t, err)
	log.WithGroup("g").Debug("shown", "time", "not a line's time")
	var line map[string]any
	require.NoError(t, json.Unmarshal(object.Bytes(), &line))
	require.Equal(t, "shown", line["msg"])
	require.True(t, strings.HasSuffix(line["time"].(string), "Z"), "UTC: %v", line["time"])
}

func TestNewLevels(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	} {
		log, err := New(io.Discard, level, FormatText)
		require.NoError(t, err)
		require.True(t, log.Enabled(context.Background(), want))
		require.False(t, log.Enabled(context.Background(), want-1))
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	_, err := New(io.Discard, "loud", FormatText)
	require.EqualError(t, err, `log level: found "loud", expected debug, info, warn or error`)
	_, err = New(io.Discard, "info", "xml")
	require.EqualError(t, err, `log format: found "xml", expected text or json`)
}

// fakeClock is a clock that moves only when told.
type fakeClock struct{ now time.Time }

func (c *fakeClock) Now() time.Time { return c.now }

func newLimitedForTest(t *testing.T) (*Limited, *fakeClock, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	clock := &fakeClock{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	return NewLimited(log, clock.Now), clock, &out
}

func TestLimitedOneLineASecond(t *testing.T) {
	t.Parallel()
	limited, clock, out := newLimitedForTest(t)
	ctx := context.Background()
	for range 50 { // five seconds at ten lines a second
		limited.Warn(ctx, "nats", "cannot connect", "err", "refused")
		clock.now = clock.now.Add(100 * time.Millisecond)
	}
	require.Equal(t, int64(9), limited.Suppressed("nats"))
	require.True(t, limited.Error(ctx, "nats", "still away"))
	require.Zero(t, limited.Suppressed("nats"))

	const again = "level=WARN msg=\"cannot connect\" component=nats suppressed=9 err=refused\n"
	require.Equal(t, "level=WARN msg=\"cannot connect\" component=nats err=refused\n"+
		strings.Repeat(again, 4)+
		"level=ERROR msg=\"still away\" component=nats suppressed=9\n", out.String())
}

func TestLimitedComponentsAreApart(t *testing.T) {
	t.Parallel()
	limited, _, out := newLimitedForTest(t)
	ctx := context.Background()
	require.True(t, limited.Warn(ctx, "nats", "away"))
	require.True(t, limited.Warn(ctx, "database", "away"))
	require.False(t, limited.Warn(ctx, "nats", "away"))
	require.Equal(t, 2, strings.Count(out.String(), "\n"))
}

func TestLimitedBelowTheLevelUsesNothing(t *testing.T) {
	t.Parallel()
	limited, _, out := newLimitedForTest(t)
	ctx := context.Background()
	require.False(t, limited.Log(ctx, slog.LevelDebug, "nats", "detail"))
	require.True(t, limited.Warn(ctx, "nats", "away"))
	require.NotContains(t, out.String(), "suppressed")
}

func TestLimitedSurvivesAClockSetBack(t *testing.T) {
	t.Parallel()
	limited, clock, _ := newLimitedForTest(t)
	require.True(t, limited.Warn(context.Background(), "nats", "away"))
	clock.now = clock.now.Add(-time.Hour)
	require.True(t, limited.Warn(context.Background(), "nats", "away"))
}

func TestLimitedBoundsItsComponents(t *testing.T) {
	t.Parallel()
	limited, _, out := newLimitedForTest(t)
	for i := range 3 * maxComponents {
		limited.Warn(context.Background(), fmt.Sprint("c", i), "away")
	}
	require.LessOrEqual(t, len(limited.components), maxComponents+1)
	require.Equal(t, maxComponents+1, strings.Count(out.String(), "\n"))
}

func TestLimitedConcurrently(t *testing.T) {
	t.Parallel()
	limited, _, out := newLimitedForTest(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				limited.Warn(context.Background(), "nats", "away")
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Equal(t, int64(799), limited.Suppressed("nats"))
}
