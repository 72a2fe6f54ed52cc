package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"

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
