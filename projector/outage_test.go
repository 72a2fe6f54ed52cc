package projector

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

// load appends n requests as fast as it can and calls disturb now and then. It
// returns the last sequence.
func (w *world) load(n int, disturb func(i int)) uint64 {
	w.t.Helper()
	js, err := jetstream.New(w.nc, jetstream.WithPublishAsyncMaxPending(n+1))
	require.NoError(w.t, err)
	for i := range n {
		key := fmt.Sprintf("job %d", i)
		_, err := js.PublishAsync(w.prefix+".job.request", request(key).Message().Data)
		require.NoError(w.t, err)
		if disturb != nil && i%(n/5) == n/10 {
			disturb(i)
		}
	}
	<-js.PublishAsyncComplete()
	return w.last()
}

// onOtherConnection makes a projector reach the stream by a connection through
// a proxy.
func (w *world) onOtherConnection(proxy *testenv.Proxy) func(*Options) {
	w.t.Helper()
	nc := testenv.Connect(w.t, proxy.URL(testenv.NATSURL(w.t)))
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	stream, err := js.Stream(w.ctx(), w.name)
	require.NoError(w.t, err)
	return func(o *Options) { o.Conn, o.Stream = nc, stream }
}

func TestNATSAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.append(echoKind())
	proxy := testenv.NewProxy(t, testenv.NATSURL(t))
	p, cancel, done := w.run(w.onOtherConnection(proxy), appendTo(silent{}))
	last := w.load(6000, func(int) { proxy.Drop() })
	w.caughtUp(last)
	proxy.Cut()
	last = w.append(request("while it is away"))
	proxy.Restore()
	w.caughtUp(last)
	require.True(t, p.Status().Active)
	cancel()
	require.NoError(t, receive(t, done, "the projector's end"))
	w.verify()
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.append(echoKind())
	proxy := testenv.NewProxy(t, w.url)
	pool := w.openPool(proxy.URL(w.url))
	p, cancel, done := w.run(appendTo(silent{}), func(o *Options) { o.Pool = pool })
	last := w.load(3000, func(int) { proxy.Drop() })
	proxy.Cut()
	testenv.Eventually(t, 20*time.Second, func() (bool, string) {
		return !p.Status().Active && p.Status().Err != nil, fmt.Sprintf("%+v", p.Status())
	})
	last = max(last, w.append(request("while it is away")))
	proxy.Restore()
	w.caughtUp(last)
	testenv.Eventually(t, 20*time.Second, func() (bool, string) { return p.Status().Active, fmt.Sprintf("%+v", p.Status()) })
	cancel()
	require.NoError(t, receive(t, done, "the projector's end"))
	w.verify()
}

// TestAmbiguousCommits loses COMMITs before the server gets them, and the
// answers of others after it did them: nothing is lost and nothing is twice.
func TestAmbiguousCommits(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]fate{"applied": answerLost, "not applied": requestLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			w.append(echoKind())
			var commits, losses atomic.Int64
			wire := &wire{}
			wire.onCommit(func() fate {
				if commits.Add(1)%3 != 0 || losses.Load() >= 3 {
					return passes
				}
				losses.Add(1)
				return lost
			})
			pool := w.openPool(w.url, wire.through)
			stop := w.project(func(o *Options) { o.Pool = pool })
			for i := range 5 {
				for n := range 1 + rand.IntN(40) {
					w.append(request(fmt.Sprintf("%d-%d", i, n)))
				}
				w.caughtUp(w.last())
			}
			require.NotZero(t, losses.Load())
			w.settled(w.last())
			w.caughtUp(w.last())
			stop()
			w.verify()
			for name, n := range w.starts() {
				require.Equal(t, 1, n, name)
			}
		})
	}
}

// TestLostMessages: messages that a broken connection swallowed are read again,
// and those that came before them in the same chunk are not forgotten.
func TestLostMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.append(echoKind())
	last := w.load(300, nil)
	g := newGate()
	g.lost = map[uint64]bool{40: true, 41: true, 150: true, last: true}
	g.open(last + 1)
	stop := w.project(appendTo(silent{}), func(o *Options) { o.Stream = gatedStream{w.stream, g} })
	w.caughtUp(w.append(request("the last")))
	stop()
	require.Empty(t, g.lost)
	w.verify()
}
