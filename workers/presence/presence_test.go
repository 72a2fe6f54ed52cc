package presence

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// ample bounds what usually happens at once.
const ample = 30 * time.Second

// quick is the timing of tests: ten times as fast.
func quick() timing {
	t := defaultTiming()
	t.beat, t.gap, t.shortest, t.blind = 100*time.Millisecond, 400*time.Millisecond, 600*time.Millisecond, 2*time.Second
	t.tick, t.recheck, t.retry = 20*time.Millisecond, 50*time.Millisecond, 300*time.Millisecond
	return t
}

// A bench is a bucket, and tables and a fold that the test governs.
type bench struct {
	t      *testing.T
	js     jetstream.JetStream
	stream string

	mu    sync.Mutex
	table []Held // what runs
	said  []*ledger.Resolution
	asked int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	js, stream, _ := testenv.Stream(t)
	b := &bench{t: t, js: js, stream: stream}
	require.NoError(t, Create(t.Context(), js, stream, 1))
	require.NoError(t, Create(t.Context(), js, stream, 1), "a second time")
	t.Cleanup(b.deleteBucket)
	return b
}

func (b *bench) deleteBucket() {
	ctx, cancel := context.WithTimeout(context.Background(), ample)
	defer cancel()
	err := b.js.DeleteKeyValue(ctx, Bucket(b.stream))
	if err != nil && !missing(err) {
		b.t.Errorf("delete the bucket: %v", err)
	}
}

// holds makes a worker hold a running attempt.
func (b *bench) holds(worker, key string, heartbeat time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table = append(b.table, Held{Job: ledger.JobID("acme", key), Attempt: 1, Worker: worker,
		RequestedAt: time.Unix(int64(len(b.table)), 0), Heartbeat: heartbeat})
}

// HeldBy implements Reader, in pages of one.
func (b *bench) HeldBy(_ context.Context, workers []string, after ledger.Cursor) ([]Held, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if after.IsZero() {
		b.asked++
	}
	if b.asked%3 == 0 {
		return nil, fmt.Errorf("the tables are away")
	}
	for _, h := range b.table {
		if slices.Contains(workers, h.Worker) && h.RequestedAt.After(after.At) {
			return []Held{h}, nil
		}
	}
	return nil, nil
}

// Decide implements Ledger.
func (b *bench) Decide(_ context.Context, m ledger.Message) (ledger.Answer, error) {
	e := ledger.Decode(1, time.Now(), m.Subject, m.Data)
	r, ok := e.Body.(*ledger.Resolution)
	if !ok {
		b.t.Errorf("the ledger does not accept what the watcher said: %+v: %s", e.Fault, m.Data)
		return ledger.Answer{}, fmt.Errorf("no resolution")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, r)
	b.table = slices.DeleteFunc(b.table, func(h Held) bool { return h.Job == r.Job })
	return ledger.Answer{Decision: ledger.Accepted}, nil
}

// lost returns the workers that were said to be lost, sorted.
func (b *bench) lost() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for _, r := range b.said {
		names = append(names, r.Worker)
	}
	slices.Sort(names)
	return names
}

func (b *bench) awaitLost(names ...string) {
	b.t.Helper()
	testenv.Eventually(b.t, ample, func() (bool, string) {
		lost := b.lost()
		return len(lost) >= len(names), fmt.Sprintf("lost are %v, expected %v", lost, names)
	})
	require.Equal(b.t, names, b.lost())
}

// beacon announces a process until the test ends or stop is called.
func (b *bench) beacon(js jetstream.JetStream, name string) (_ *Beacon, stop func()) {
	b.t.Helper()
	beacon, err := NewBeacon(BeaconOptions{JetStream: js, Stream: b.stream, Name: name, Providers: []string{"main"}})
	require.NoError(b.t, err)
	beacon.timing = quick()
	return beacon, b.run(beacon.Run)
}

// run runs something until the test ends or stop is called, which waits.
func (b *bench) run(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	b.t.Cleanup(stop)
	return stop
}

func (b *bench) watcher(js jetstream.JetStream, name string, change ...func(*timing)) *Watcher {
	b.t.Helper()
	beacon, _ := b.beacon(js, name)
	w, err := NewWatcher(WatcherOptions{
		JetStream: js, Stream: b.stream, Beacon: beacon, Reader: b, Ledger: b, Actor: "reconciler/" + name,
		Log: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	})
	require.NoError(b.t, err)
	w.timing = quick()
	for _, f := range change {
		f(&w.timing)
	}
	w.sight = newSight(w.timing.gap)
	b.run(w.Run)
	return w
}

func (b *bench) awaitKnown(w *Watcher, names ...string) {
	b.t.Helper()
	testenv.Eventually(b.t, ample, func() (bool, string) {
		for _, name := range names {
			if _, ok := w.sight.revision(name); !ok {
				return false, name + " is not known"
			}
		}
		return w.sight.sees(time.Now()), "the watcher does not hear itself"
	})
}

func TestSilentWorkersAreLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.watcher(b.js, "watcher/1")
	_, kill := b.beacon(b.js, "dies/1")
	_, killSlow := b.beacon(b.js, "dies/2")
	b.beacon(b.js, "lives/1")
	leaver, leave := b.beacon(b.js, "leaves/1")
	b.awaitKnown(w, "dies/1", "dies/2", "lives/1", "leaves/1")
	for _, name := range []string{"dies/1", "lives/1", "leaves/1", "foreign"} {
		b.holds(name, "first of "+name, time.Second)
		b.holds(name, "second of "+name, time.Second)
	}
	b.holds("dies/2", "patient", time.Hour)
	b.holds("dies/2", "hasty", time.Millisecond) // below the shortest that means anything

	leave()
	require.NoError(t, leaver.Leave(t.Context()))
	died := time.Now()
	kill()
	killSlow()
	b.awaitLost("dies/1", "dies/1", "dies/2")
	require.Less(t, time.Since(died), ample)
	for _, r := range b.said {
		require.Equal(t, ledger.OutcomeUnknown, r.As)
		require.Equal(t, "reconciler/watcher/1", r.Actor)
		require.True(t, strings.HasPrefix(r.Reason, "worker_lost: "), r.Reason)
	}

	b.holds("dies/1", "a claim that the tables learned of late", time.Second)
	b.awaitLost("dies/1", "dies/1", "dies/1", "dies/2")
}

// Between the judgement and its saying a worker may be heard of.
func TestALastLookBeforeALossIsSaid(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	beacon, err := NewBeacon(BeaconOptions{JetStream: b.js, Stream: b.stream, Name: "watcher/1"})
	require.NoError(t, err)
	w, err := NewWatcher(WatcherOptions{JetStream: b.js, Stream: b.stream, Beacon: beacon, Reader: b, Ledger: b, Actor: "reconciler/1"})
	require.NoError(t, err)
	now := time.Now()
	w.now = func() time.Time { return now }
	pass := func(d time.Duration) { // hearing itself
		for end := now.Add(d); now.Before(end); now = now.Add(w.timing.beat) {
			w.sight.heardOwn(now, now)
		}
		w.sight.heardOwn(now, now)
	}
	b.holds("worker/1", "order", 10*time.Second)
	held := b.table[0]
	w.sight.heard(held.Worker, 1, now)
	pass(20 * time.Second)
	w.sight.heard(held.Worker, 2, now) // and judged by what was before
	w.sayLost(t.Context(), held)
	require.Empty(t, b.lost())
	pass(20 * time.Second)
	w.sayLost(t.Context(), held)
	require.Equal(t, []string{"worker/1"}, b.lost())
}

// Those who were silent while the watcher was cut off are judged only by what
// comes after; and the watcher finds its way back.
func TestOwnOutageCountsForNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	proxy := testenv.NewProxy(t, testenv.NATSURL(t))
	js, err := jetstream.New(testenv.Connect(t, proxy.URL(testenv.NATSURL(t))))
	require.NoError(t, err)
	w := b.watcher(js, "watcher/1")
	// The worker shares the way: neither can be heard, and then both come back.
	b.beacon(js, "lives/1")
	_, kill := b.beacon(b.js, "dies/1")
	b.awaitKnown(w, "lives/1", "dies/1")
	b.holds("lives/1", "a", 700*time.Millisecond)
	b.holds("dies/1", "b", 700*time.Millisecond)
	for range 3 {
		proxy.Cut()
		testenv.Eventually(t, ample, func() (bool, string) { return !w.sight.sees(time.Now()), "the watcher still sees" })
		outage := time.NewTimer(time.Second)
		<-outage.C // the time is the subject
		require.Empty(t, b.lost())
		proxy.Restore()
		b.awaitKnown(w, "lives/1")
	}
	require.Empty(t, b.lost())
	kill()
	b.awaitLost("dies/1")
}

// Somebody takes the bucket away and makes it anew.
func TestBucketIsLostAndFound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deleteBucket()
	var log syncBuffer
	beacon, err := NewBeacon(BeaconOptions{JetStream: b.js, Stream: b.stream, Name: "lives/1", Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	beacon.timing = quick()
	b.run(beacon.Run)
	ctx, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	beacon.Announced(ctx)
	require.NoError(t, ctx.Err())
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	require.Contains(t, log.String(), "there is no bucket")

	require.NoError(t, Create(ctx, b.js, b.stream, 1))
	w := b.watcher(b.js, "watcher/1")
	b.awaitKnown(w, "lives/1")
	b.deleteBucket()
	testenv.Eventually(t, ample, func() (bool, string) { return !w.sight.sees(time.Now()), "the watcher still sees" })
	require.NoError(t, Create(ctx, b.js, b.stream, 1))
	b.holds("lives/1", "a", time.Second)
	b.awaitKnown(w, "lives/1")
	require.Empty(t, b.lost())
}

func TestLostWorkersAreForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	kv, err := b.js.KeyValue(t.Context(), Bucket(b.stream))
	require.NoError(t, err)
	w := b.watcher(b.js, "watcher/1", func(t *timing) { t.forget = 0 })
	_, kill := b.beacon(b.js, "dies/1")
	b.awaitKnown(w, "dies/1")
	kill()
	testenv.Eventually(t, ample, func() (bool, string) {
		_, err := kv.Get(t.Context(), "dies/1")
		_, known := w.sight.revision("dies/1")
		return err != nil && !known, fmt.Sprintf("its key is still there: %v, known: %v", err == nil, known)
	})
	_, err = kv.Get(t.Context(), "watcher/1")
	require.NoError(t, err)
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"host/12/ab", "a", "A_=-/9"} {
		require.NoError(t, CheckName(name))
	}
	for _, name := range []string{"", "a.b", "a b", "a*", ">", "é", strings.Repeat("a", 257)} {
		require.Error(t, CheckName(name), name)
	}
}

// syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
