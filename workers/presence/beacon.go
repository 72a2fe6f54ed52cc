package presence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"jobledger/workers/internal/wait"
)

// A Beacon announces this process in the bucket for as long as it runs. Without
// a bucket it says so once and goes on looking for one.
type Beacon struct {
	o      BeaconOptions
	log    *slog.Logger
	timing timing

	kv      jetstream.KeyValue // nil: not opened
	trouble bool               // the last beat failed, which the log says once

	first     chan struct{} // closed after the first beat, or the finding that none can be sent
	firstOnce sync.Once

	mu   sync.Mutex
	sent [sentKept]sentBeat
	last uint64 // the number of the latest beat; 0: none
}

// sentKept is of how many beats it is remembered when they were sent: more than
// can be on their way, since one is sent when the one before was answered or
// given up.
const sentKept = 16

type sentBeat struct {
	number uint64
	at     time.Time
}

// BeaconOptions configure a [Beacon]. JetStream, Stream and Name are required.
type BeaconOptions struct {
	JetStream jetstream.JetStream
	Stream    string // the ledger's stream
	// Name is the process's own: unique, also among those that came before it
	// on the same machine, and what its claims call the worker. See CheckName.
	Name string
	// Providers is whom it works for. It is for people and may be nil.
	Providers []string
	Log       *slog.Logger // nil: nowhere
}

// NewBeacon returns a beacon that does nothing until Run. The error says which
// option is wrong.
func NewBeacon(o BeaconOptions) (*Beacon, error) {
	switch {
	case o.JetStream == nil:
		return nil, errors.New("presence: BeaconOptions.JetStream is nil")
	case o.Stream == "":
		return nil, errors.New("presence: BeaconOptions.Stream is empty; the name of the ledger's stream is expected")
	}
	if err := CheckName(o.Name); err != nil {
		return nil, fmt.Errorf("presence: BeaconOptions.Name is %w", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Beacon{o: o, log: o.Log, timing: defaultTiming(), first: make(chan struct{})}, nil
}

// A beat is the value of a key. Only the one who put it looks at it; foreign
// workers may put whatever they like.
type beat struct {
	V         int      `json:"v"`
	Beat      uint64   `json:"beat"` // from 1
	Providers []string `json:"providers,omitempty"`
}

// Run announces the process until ctx ends. It does not take back the last
// announcement: Leave does.
func (b *Beacon) Run(ctx context.Context) {
	pause := b.timing.beat
	for {
		err := b.send(ctx)
		if ctx.Err() != nil {
			return
		}
		if missing(err) { // or a server has just started, and knows of no bucket yet
			pause = min(2*pause, b.timing.retry)
		} else {
			pause = b.timing.beat
		}
		b.tell(err)
		b.firstOnce.Do(func() { close(b.first) })
		if !wait.Sleep(ctx, pause*3/4+rand.N(pause/4+1)) {
			return
		}
	}
}

// Announced waits until the first beat has been tried, for no longer than ctx
// allows: whoever is about to claim something should be known before.
func (b *Beacon) Announced(ctx context.Context) {
	select {
	case <-b.first:
	case <-ctx.Done():
	}
}

// Leave takes the announcement back. It is for a process that has left nothing
// open: one that has must stay known, so that its silence is noticed. Run must
// have returned.
func (b *Beacon) Leave(ctx context.Context) error {
	if b.kv == nil {
		return nil
	}
	if err := b.kv.Delete(ctx, b.o.Name); err != nil {
		return fmt.Errorf("presence: take back the key %s: %w", b.o.Name, err)
	}
	return nil
}

func (b *Beacon) send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.timing.put)
	defer cancel()
	if b.kv == nil {
		kv, err := b.o.JetStream.KeyValue(ctx, Bucket(b.o.Stream))
		if err != nil {
			return err
		}
		b.kv = kv
	}
	value, err := json.Marshal(beat{V: 1, Beat: b.next(), Providers: b.o.Providers})
	if err != nil {
		return err
	}
	if _, err = b.kv.Put(ctx, b.o.Name, value); errors.Is(err, jetstream.ErrNoStreamResponse) {
		b.kv = nil // whether the bucket is gone shows when it is opened
	}
	return err
}

// tell logs when the beats begin to fail, and when they succeed again.
func (b *Beacon) tell(err error) {
	switch failed := err != nil; {
	case failed == b.trouble:
		return
	case missing(err):
		b.log.Warn("there is no bucket for the workers' presence: if this process dies, its attempts become unknown at their deadlines only; "+
			"jobledger init and jobledger dev make the bucket", "bucket", Bucket(b.o.Stream))
	case failed:
		b.log.Warn("this process could not announce itself; it goes on trying", "error", err)
	default:
		b.log.Info("this process announces itself again", "name", b.o.Name)
	}
	b.trouble = err != nil
}

// next numbers a beat and notes that it is being sent.
func (b *Beacon) next() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last++
	b.sent[b.last%sentKept] = sentBeat{b.last, time.Now()}
	return b.last
}

// sentAt returns when a beat was sent, if it is one of the latest.
func (b *Beacon) sentAt(value []byte) (time.Time, bool) {
	var v beat
	if json.Unmarshal(value, &v) != nil {
		return time.Time{}, false // not one of this beacon's
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sent[v.Beat%sentKept]
	return s.at, v.Beat > 0 && s.number == v.Beat
}
