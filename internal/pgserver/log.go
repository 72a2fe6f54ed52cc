package pgserver

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

const (
	// maxLineBytes bounds a line of the server's log; the rest is cut off.
	maxLineBytes = 8 << 10
	// tailLines are kept to explain a failure.
	tailLines = 12
)

// lineLog passes what the server prints to slog, line by line.
type lineLog struct {
	log *slog.Logger

	mu      sync.Mutex
	partial []byte
	last    []string
}

// Write never fails: a full log must not stop the server.
func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		room := maxLineBytes - len(l.partial)
		l.partial = append(l.partial, line[:min(room, len(line))]...)
		if ended {
			l.emit()
		}
		rest = after
	}
	return len(p), nil
}

func (l *lineLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emit()
}

func (l *lineLog) emit() {
	line := strings.TrimSpace(string(l.partial))
	l.partial = l.partial[:0]
	if line == "" {
		return
	}
	if len(l.last) == tailLines {
		l.last = l.last[:copy(l.last, l.last[1:])]
	}
	l.last = append(l.last, line)
	l.log.Log(context.Background(), level(line), line)
}

// tail returns the last lines in one.
func (l *lineLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == 0 {
		return "(none)"
	}
	return strings.Join(l.last, " | ")
}

// level reads the severity that starts a line. Errors of clients (ERROR and
// FATAL) are told to those clients; here they are details.
func level(line string) slog.Level {
	severity, _, _ := strings.Cut(line, ":")
	switch severity {
	case "PANIC":
		return slog.LevelError
	case "WARNING":
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}
