// Package logging makes the process's structured logger and keeps a component
// that cannot reach its dependency from flooding the log.
package logging

import (
	"fmt"
	"io"
	"log/slog"
)

// Format is how log lines are written.
type Format string

// The values of [Format].
const (
	FormatText Format = "text" // key=value
	FormatJSON Format = "json" // one object on each line
)

// New returns a logger that writes lines of at least the given level (debug,
// info, warn or error) to w. Times are in UTC. An unknown level or format is an
// error that lists the known ones. The logger is safe for concurrent use, and
// calls w.Write once for each line.
func New(w io.Writer, level string, format Format) (*slog.Logger, error) {
	lowest, err := parseLevel(level)
	if err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: lowest, ReplaceAttr: utcTime}
	switch format {
	case FormatText:
		return slog.New(slog.NewTextHandler(w, options)), nil
	case FormatJSON:
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log format: found %q, expected text or json", string(format))
}

func parseLevel(level string) (slog.Level, error) {
	switch level {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("log level: found %q, expected debug, info, warn or error", level)
}

// utcTime puts the line's own time into UTC, as all times of the ledger are.
func utcTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	}
	return a
}
