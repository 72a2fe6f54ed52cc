package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// lineInterval is the shortest time between two lines of one component.
	lineInterval = time.Second
	// maxComponents bounds the memory of a Limited. What comes beyond it shares
	// one allowance.
	maxComponents = 1024
	// overflowComponent is the allowance that components beyond the bound share.
	overflowComponent = ""
)

// Limited passes at most one line a second for each component and counts what it
// holds back: while a dependency is away, its loops may report every failure and
// the log stays readable. The next line of the component that passes says in
// "suppressed" how many were held back before it.
//
// Use it for what repeats. A change that happens once (the dependency is back)
// belongs on the plain logger, which nothing holds back.
//
// It is safe for concurrent use. Use [NewLimited]; the zero value panics.
type Limited struct {
	log *slog.Logger
	now func() time.Time

	mu         sync.Mutex
	components map[string]*allowance
}

type allowance struct {
	last       time.Time // when a line last passed
	suppressed int64     // lines held back since then
}

// NewLimited returns a Limited that writes to log. now is the clock; nil means
// time.Now.
func NewLimited(log *slog.Logger, now func() time.Time) *Limited {
	if now == nil {
		now = time.Now
	}
	return &Limited{log: log, now: now, components: map[string]*allowance{}}
}

// Log writes the line, with component as an attribute, unless one of the same
// component passed less than a second ago. It reports whether the line passed. A
// line below the logger's level neither passes nor counts.
func (l *Limited) Log(ctx context.Context, level slog.Level, component, msg string, args ...any) bool {
	if !l.log.Enabled(ctx, level) {
		return false
	}
	suppressed, ok := l.take(component)
	if !ok {
		return false
	}
	line := l.log.With("component", component)
	if suppressed > 0 {
		line = line.With("suppressed", suppressed)
	}
	line.Log(ctx, level, msg, args...)
	return true
}

// Warn is Log at level warn.
func (l *Limited) Warn(ctx context.Context, component, msg string, args ...any) bool {
	return l.Log(ctx, slog.LevelWarn, component, msg, args...)
}

// Error is Log at level error.
func (l *Limited) Error(ctx context.Context, component, msg string, args ...any) bool {
	return l.Log(ctx, slog.LevelError, component, msg, args...)
}

// Suppressed returns how many lines of the component were held back since its
// last line, for the line that says that the trouble is over.
func (l *Limited) Suppressed(component string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.components[component]; a != nil {
		return a.suppressed
	}
	return 0
}

// take uses up the component's allowance, if there is one, and returns the number
// of lines held back before.
func (l *Limited) take(component string) (suppressed int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.allowance(component)
	now := l.now()
	elapsed := now.Sub(a.last)
	// A clock that was set back must not silence a component: time.Now is
	// monotonic, but the clock is the caller's.
	if !a.last.IsZero() && elapsed >= 0 && elapsed < lineInterval {
		a.suppressed++
		return 0, false
	}
	suppressed = a.suppressed
	a.last, a.suppressed = now, 0
	return suppressed, true
}

func (l *Limited) allowance(component string) *allowance {
	if a := l.components[component]; a != nil {
		return a
	}
	if len(l.components) >= maxComponents {
		component = overflowComponent
		if a := l.components[component]; a != nil {
			return a
		}
	}
	a := &allowance{}
	l.components[component] = a
	return a
}
