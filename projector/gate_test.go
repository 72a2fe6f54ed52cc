package projector

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// gatedStream is a stream whose entries reach a projector only up to where a
// test says, so that a test decides where batches end; and some not at all.
type gatedStream struct {
	jetstream.Stream
	gate *gate
}

// A gate holds what lies after its limit.
type gate struct {
	mu    sync.Mutex
	limit uint64
	lost  map[uint64]bool // dropped once, as by a broken connection
	moved chan struct{}   // closed when the limit moves
}

func newGate() *gate { return &gate{moved: make(chan struct{})} }

func (g *gate) open(limit uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = limit
	close(g.moved)
	g.moved = make(chan struct{})
}

// pass waits until seq may pass. It does not if it gets lost, or if the
// consumer is closed.
func (g *gate) pass(seq uint64, closed <-chan struct{}) bool {
	for {
		g.mu.Lock()
		limit, lost, moved := g.limit, g.lost[seq], g.moved
		if seq <= limit {
			delete(g.lost, seq)
		}
		g.mu.Unlock()
		if seq <= limit {
			return !lost
		}
		select {
		case <-moved:
		case <-closed:
			return false
		}
	}
}

func (s gatedStream) CreateConsumer(ctx context.Context, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	c, err := s.Stream.CreateConsumer(ctx, cfg)
	return gatedConsumer{c, s.gate}, err
}

type gatedConsumer struct {
	jetstream.Consumer
	gate *gate
}

func (c gatedConsumer) Consume(handle jetstream.MessageHandler, opts ...jetstream.PullConsumeOpt) (jetstream.ConsumeContext, error) {
	stopped := make(chan struct{})
	sub, err := c.Consumer.Consume(func(m jetstream.Msg) {
		if meta, err := m.Metadata(); err == nil && c.gate.pass(meta.Sequence.Stream, stopped) {
			handle(m)
		}
	}, opts...)
	return gatedConsume{sub, sync.OnceFunc(func() { close(stopped) })}, err
}

type gatedConsume struct {
	jetstream.ConsumeContext
	stop func()
}

func (c gatedConsume) Stop() {
	c.stop()
	c.ConsumeContext.Stop()
}
