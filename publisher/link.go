package publisher

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"
)

// link knows whether the connection is up. Nothing is published while it is
// down: the client library would keep it and send it later, when nobody waits
// for it any more, and "never sent" would not be true.
type link struct {
	nc     *nats.Conn
	status chan nats.Status

	mu sync.Mutex
	up chan struct{} // closed while the connection is up
}

func newLink(nc *nats.Conn) *link {
	l := &link{nc: nc, up: make(chan struct{})}
	l.status = nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	l.set(nc.IsConnected())
	return l
}

// watch calls lost whenever the connection goes down, saying whether for good,
// until close.
func (l *link) watch(lost func(closed bool)) {
	for status := range l.status {
		l.set(status == nats.CONNECTED)
		if status != nats.CONNECTED {
			lost(status == nats.CLOSED)
		}
	}
}

func (l *link) close() { l.nc.RemoveStatusListener(l.status) }

func (l *link) set(up bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.up:
		if !up {
			l.up = make(chan struct{})
		}
	default:
		if up {
			close(l.up)
		}
	}
}

// await waits until the connection is up; false: one of the contexts ended.
func (l *link) await(ctx, stop context.Context) bool {
	l.mu.Lock()
	up := l.up
	l.mu.Unlock()
	select {
	case <-up:
		return true
	default:
	}
	select {
	case <-up:
		return true
	case <-ctx.Done():
	case <-stop.Done():
	}
	return false
}
