package publisher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"jobledger/ledger"
)

// Mode says how an Appender sends what is waiting.
type Mode int

const (
	// Grouped sends what is waiting as one atomic batch: one fsync for all of
	// it where the server syncs always. It is the default.
	Grouped Mode = iota
	// Single publishes each message at once and waits for its acknowledgement.
	// On servers that sync now and then it is as fast as Grouped when many
	// wait, and quicker to answer when few do. On servers that sync always it
	// is some thirty times slower: one fsync for each message.
	Single
)

// Options of an Appender. Stream and SubjectPrefix are required; zero members
// mean the defaults.
type Options struct {
	Stream        string // the stream's name; an acknowledgement from another is an error
	SubjectPrefix string // what every subject starts with, without the dot
	Mode          Mode

	// BatchMessages and BatchBytes bound a batch: 1,000 (the server takes no
	// more) and 2 MiB. A batch costs the server several fsyncs however much is
	// in it.
	BatchMessages int
	BatchBytes    int
	// Batches is how many may be on their way: 1, which makes them big. Two
	// were a tenth slower, four a quarter. The server allows 50 for a stream,
	// over all of its appenders.
	Batches int
	// Queue bounds what waits for a batch, in messages: 4096. Callers wait
	// until there is room.
	Queue int
	// InFlight bounds single publishes without an answer yet: 1024.
	InFlight int
	// AckWait is how long the first publish waits for its acknowledgement
	// before it is repeated: 3 s. Each repetition waits twice as long as the
	// one before, up to 10 s.
	AckWait time.Duration
	// Timeout ends an append whose context has no deadline: 30 s.
	Timeout time.Duration
	// FillAge is how old the knowledge of the stream's fill may be before it is
	// asked for again: 2 s. Requests are refused by what is known, which may be
	// five times as old, and by what this Appender has let through since.
	FillAge time.Duration
	// APIPrefix is the prefix of the JetStream API: "$JS.API".
	APIPrefix string
	// TraceParent returns the W3C traceparent of a context, "" for none; it
	// becomes a header of the entry. nil: none.
	TraceParent func(context.Context) string
	// Observer learns what becomes of appends and decisions; nil: nobody.
	Observer Observer
}

func (o Options) withDefaults() (Options, error) {
	if o.Stream == "" || o.SubjectPrefix == "" {
		return o, errors.New("publisher: Options.Stream and Options.SubjectPrefix are required")
	}
	const serverBatchLimit = 1000
	setDefault(&o.BatchMessages, serverBatchLimit)
	setDefault(&o.BatchBytes, 2<<20)
	setDefault(&o.Batches, 1)
	setDefault(&o.Queue, 4096)
	setDefault(&o.InFlight, 1024)
	setDefault(&o.AckWait, 3*time.Second)
	setDefault(&o.Timeout, 30*time.Second)
	setDefault(&o.FillAge, 2*time.Second)
	setDefault(&o.APIPrefix, "$JS.API")
	if o.Observer == nil {
		o.Observer = noObserver{}
	}
	if o.BatchMessages < 1 || o.BatchMessages > serverBatchLimit {
		return o, fmt.Errorf("publisher: Options.BatchMessages is %d; expected 1 to %d", o.BatchMessages, serverBatchLimit)
	}
	if o.BatchBytes < 1 || o.Batches < 1 || o.Queue < 1 || o.InFlight < 1 || o.AckWait <= 0 || o.Timeout <= 0 || o.FillAge <= 0 {
		return o, errors.New("publisher: Options has a negative bound")
	}
	return o, nil
}

func setDefault[T comparable](v *T, fallback T) {
	var zero T
	if *v == zero {
		*v = fallback
	}
}

const (
	maxAckWait   = 10 * time.Second
	firstBackoff = 25 * time.Millisecond
	maxBackoff   = time.Second
)

// An Ack says where an entry is stored.
type Ack struct {
	Seq uint64 // its sequence in the stream
	// Duplicate says that the same entry was stored before under the same
	// message id, and that Seq is the original's. The original may be this very
	// append's, if its acknowledgement was lost.
	Duplicate bool
	// ReplyTo is the original's Ledger-Reply, where its decision goes or went;
	// only of a duplicate, "" if it asked for none.
	ReplyTo string
}

// An Appender appends entries to the stream. Its methods may be called by any
// number of goroutines; concurrent appends are what makes it fast.
type Appender struct {
	nc   *nats.Conn
	opts Options

	acks    *acks
	link    *link
	recent  recentIDs
	room    *room
	queue   chan *call
	singles chan struct{} // a slot for each single publish in flight
	batches chan struct{} // a slot for each batch in flight

	mu     sync.Mutex
	closed bool
	active sync.WaitGroup // appends
	// stop ends what Close could not wait for.
	stop     context.Context
	stopNow  context.CancelCauseFunc
	workers  sync.WaitGroup
	stopOnce sync.Once
}

// NewAppender makes an Appender on a connection, which it does not close. The
// connection should reconnect for ever; its FlusherTimeout bounds how long a
// write into a stuck socket can take.
func NewAppender(nc *nats.Conn, o Options) (*Appender, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Appender{
		nc: nc, opts: o,
		queue:   make(chan *call, o.Queue),
		singles: make(chan struct{}, o.InFlight),
		batches: make(chan struct{}, o.Batches),
	}
	a.recent.seed = maphash.MakeSeed()
	a.stop, a.stopNow = context.WithCancelCause(context.Background())
	a.room = &room{nc: nc, api: o.APIPrefix, stream: o.Stream, maxAge: o.FillAge, stop: a.stop}
	if a.acks, err = newAcks(nc); err != nil {
		a.stopNow(err)
		return nil, fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	a.link = newLink(nc)
	a.workers.Go(func() { a.link.watch(a.connectionLost) })
	a.workers.Go(a.collect)
	return a, nil
}

// Append appends m and returns when it is stored, or when ctx ends. replyTo
// becomes the entry's Ledger-Reply, where its decision is published; "" asks
// for none.
//
// A publish that gets no answer is repeated under the same id until ctx ends.
// A message without an id is repeated as well and may then be stored twice:
// only entries that the fold takes twice without harm have none (claims,
// completions, due times, definitions and rules).
//
// If the server says that the id is known, the original is compared: the same
// subject and body make it this entry, and the Ack says Duplicate; otherwise m
// is appended again under a fresh id. Errors are *AppendError.
//
// A request for a new job is refused, with a *FullError as the cause, when the
// stream is RequestFillPercent full: what is under way must be able to end. It
// is refused, too, if the start that follows from it would not fit a message.
func (a *Appender) Append(ctx context.Context, m ledger.Message, replyTo string) (Ack, error) {
	began := time.Now()
	ack, err := a.append(ctx, m, replyTo)
	a.opts.Observer.Appended(m.Subject, ack, err, time.Since(began))
	return ack, err
}

func (a *Appender) append(ctx context.Context, m ledger.Message, replyTo string) (Ack, error) {
	if !a.enter() {
		return Ack{}, &AppendError{Subject: a.subject(m), ID: m.ID, Cause: ErrClosed}
	}
	defer a.active.Done()
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.opts.Timeout)
		defer cancel()
	}
	for first := true; ; first = false {
		c := a.newCall(ctx, m, replyTo)
		if first && isRequest(m) {
			if err := a.admit(ctx, c); err != nil {
				return Ack{}, c.failed(err)
			}
		}
		ack, err := a.deliver(ctx, c)
		if err != nil || !ack.Duplicate {
			return ack, err
		}
		first, err := a.original(ctx, ack.Seq)
		if err != nil {
			return Ack{}, &AppendError{Subject: c.subject, ID: m.ID, Tries: c.tries, Unconfirmed: true, Cause: err}
		}
		if first.is(c) {
			ack.ReplyTo = first.replyTo
			return ack, nil
		}
		m = Fresh(m)
	}
}

// admit returns why the stream should not take a request, nil if it should.
func (a *Appender) admit(ctx context.Context, c *call) error {
	limit := int64(ledger.MaxPayloadBytes)
	if server := a.nc.MaxPayload(); server > 0 {
		limit = min(limit, server)
	}
	if most := max(limit-ledger.StartReserveBytes, 0); int64(len(c.data)) > most {
		return &TooLargeError{Bytes: int64(len(c.data)), Limit: most, Reserve: ledger.StartReserveBytes}
	}
	return a.room.admit(ctx, c.size+int64(len(c.subject)), a.workers.Go)
}

// Fresh returns m with an id that nobody has used. It is for whoever learned
// that the entry which its message duplicates was refused.
func Fresh(m ledger.Message) ledger.Message {
	m.ID += "/" + rand.Text()
	return m
}

// Close lets running appends finish until ctx ends and then fails the rest:
// with ErrNotAppended what was not sent, with ErrUnconfirmed what was. New ones
// are refused at once. It may be called more than once; it returns when all is
// stopped, with ctx's error if it had to cut something short.
func (a *Appender) Close(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		a.active.Wait()
		close(idle)
	}()
	var err error
	select {
	case <-idle:
	case <-ctx.Done():
		err = fmt.Errorf("close the appender with appends under way: %w", context.Cause(ctx))
	}
	a.stopNow(ErrClosed)
	<-idle
	a.stopOnce.Do(func() {
		a.link.close()
		err = errors.Join(err, a.acks.close())
	})
	a.workers.Wait()
	return err
}

// connectionLost gives up waiting for answers that can no longer come, and
// everything if the connection was closed for good.
func (a *Appender) connectionLost(closed bool) {
	a.acks.loseAll()
	if closed {
		a.stopNow(nats.ErrConnectionClosed)
	}
}

// enter registers an append, unless the Appender is closed.
func (a *Appender) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	a.active.Add(1)
	return true
}

func (a *Appender) subject(m ledger.Message) string { return a.opts.SubjectPrefix + "." + m.Subject }

// deliver sends c until the server has stored or refused it, or ctx ends.
func (a *Appender) deliver(ctx context.Context, c *call) (Ack, error) {
	limit := a.nc.MaxPayload()
	if limit > 0 && c.size > limit {
		return Ack{}, c.failed(&TooLargeError{Bytes: c.size, Limit: limit})
	}
	wait, pause := a.opts.AckWait, firstBackoff
	grouped := a.opts.Mode == Grouped && c.size+batchHeaderBytes <= min(limit, int64(a.opts.BatchBytes)) && !a.recent.seen(c.id)
	for {
		var out outcome
		if grouped {
			out = a.enqueue(ctx, c)
		} else {
			out = a.publish(ctx, c, wait)
		}
		c.learn(out)
		if done, ack, err := a.judge(ctx, c, out); done {
			return ack, err
		}
		if out.rest && !a.rest(ctx, jitter(pause)) {
			return Ack{}, c.failed(a.cause(ctx, out.err))
		}
		if out.rest {
			pause = min(2*pause, maxBackoff)
		}
		if !grouped {
			wait = min(2*wait, maxAckWait)
		}
		// Whatever became of the batch, from here on c travels alone, so that
		// no other can be the reason why it is refused.
		grouped = false
	}
}

// judge reports whether a try has settled c.
func (a *Appender) judge(ctx context.Context, c *call, out outcome) (done bool, ack Ack, err error) {
	switch {
	case out.err == nil && out.ack.Stream != a.opts.Stream:
		return true, Ack{}, c.failed(fmt.Errorf("it is stored in the stream %s and not in %s: their subjects overlap",
			out.ack.Stream, a.opts.Stream))
	case out.err == nil:
		return true, Ack{Seq: out.ack.Seq, Duplicate: out.ack.Duplicate}, nil
	case !out.batch && refusedWith(out.err) != 0:
		// The server looks for the id before it looks for room: a full stream
		// does not hold an earlier try either.
		if refusedWith(out.err) == codeStoreFailed && c.id != "" {
			c.mayBeStored = false
		}
		return true, Ack{}, c.failed(out.err)
	case ctx.Err() != nil || a.stop.Err() != nil:
		return true, Ack{}, c.failed(a.cause(ctx, out.err))
	}
	return false, Ack{}, nil
}

// cause explains why c is given up: what ended it, and the last error.
func (a *Appender) cause(ctx context.Context, last error) error {
	err := context.Cause(ctx)
	if err == nil {
		err = context.Cause(a.stop)
	}
	if last == nil || errors.Is(last, err) {
		return err
	}
	return fmt.Errorf("%w (last: %w)", err, last)
}

// rest waits for d, and reports false if ctx ends or the Appender stops.
func (a *Appender) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-a.stop.Done():
	}
	return false
}

// jitter spreads d over half to one and a half of it.
func jitter(d time.Duration) time.Duration { return d/2 + mathrand.N(d) }
