package logging

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// ComponentKeys are the attributes that say, by [slog.Logger.With], to which
// component a logger belongs.
var ComponentKeys = []string{"role", "component"}

// Throttle returns a handler that passes at most one warning a second for each
// component to h, and says in the next one, as "suppressed", how many it left
// out. Other levels pass: information is rare by nature and errors are final.
// now is the clock; nil means time.Now.
func Throttle(h slog.Handler, now func() time.Time) slog.Handler {
	if now == nil {
		now = time.Now
	}
	return &throttled{Handler: h, gates: &gates{now: now, open: map[string]*gate{}}}
}

type throttled struct {
	slog.Handler
	component string
	gates     *gates
}

// gates are shared by all loggers that come from one handler.
type gates struct {
	now  func() time.Time
	mu   sync.Mutex
	open map[string]*gate
}

type gate struct {
	next       time.Time
	suppressed int64
}

// period is how long a component is silent after a warning.
const period = time.Second

func (t *throttled) Handle(ctx context.Context, r slog.Record) error {
	if r.Level != slog.LevelWarn {
		return t.Handler.Handle(ctx, r)
	}
	passes, suppressed := t.gates.pass(t.component)
	if !passes {
		return nil
	}
	if suppressed > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int64("suppressed", suppressed))
	}
	return t.Handler.Handle(ctx, r)
}

func (g *gates) pass(component string) (passes bool, suppressed int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	one := g.open[component]
	if one == nil {
		one = &gate{}
		g.open[component] = one
	}
	if now.Before(one.next) && one.next.Sub(now) <= period { // a clock that was set back must not silence anybody
		one.suppressed++
		return false, 0
	}
	suppressed, one.suppressed, one.next = one.suppressed, 0, now.Add(period)
	return true, suppressed
}

func (t *throttled) WithAttrs(attrs []slog.Attr) slog.Handler {
	clone := *t
	clone.Handler = t.Handler.WithAttrs(attrs)
	for _, a := range attrs {
		for _, key := range ComponentKeys {
			if a.Key == key {
				clone.component = a.Value.String()
			}
		}
	}
	return &clone
}

func (t *throttled) WithGroup(name string) slog.Handler {
	clone := *t
	clone.Handler = t.Handler.WithGroup(name)
	return &clone
}
