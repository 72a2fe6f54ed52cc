package publisher

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"jobledger/ledger"
)

// Headers of entries.
const (
	ReplyHeader = ledger.ReplyHeader
	TraceHeader = "traceparent"

	idHeader            = nats.MsgIdHdr
	batchIDHeader       = "Nats-Batch-Id"
	batchSequenceHeader = "Nats-Batch-Sequence"
	batchCommitHeader   = "Nats-Batch-Commit"
	// batchHeaderBytes is at least what the headers of a batch add to a message.
	batchHeaderBytes = 128
)

// A call is one message on its way into the stream. The goroutine that appends
// owns it; state says whether the collector has taken it.
type call struct {
	subject string // in full
	id      string
	replyTo string
	trace   string
	data    []byte
	size    int64 // bytes of headers and body

	tries       int
	mayBeStored bool // a try had no answer that says otherwise
	unavailable bool // the last try met no stream

	state atomic.Int32
	done  chan outcome // one for each try; room for one
}

const (
	queued int32 = iota
	taken
	abandoned
)

// outcome is what became of one try.
type outcome struct {
	ack pubAck
	err error // nil: stored
	// sent says that the server may have seen it, stored that it may have
	// stored it although err is set.
	sent, stored bool
	batch        bool // it travelled with others
	rest         bool // pause before the next try
}

var (
	errNoAnswer = errors.New("the server did not answer in time")
	errLost     = errors.New("the connection was lost before the server answered")
	errNoStream = errors.New("no stream takes its subject (no responders)")
	errOffline  = errors.New("there is no connection to the server")
	errNotSent  = errors.New("it was not sent")
)

func (a *Appender) newCall(ctx context.Context, m ledger.Message, replyTo string) *call {
	c := &call{subject: a.subject(m), id: m.ID, replyTo: replyTo, data: m.Data, done: make(chan outcome, 1)}
	if a.opts.TraceParent != nil {
		c.trace = a.opts.TraceParent(ctx)
	}
	c.size = int64(len(c.data) + headerBytes(idHeader, c.id, ReplyHeader, c.replyTo, TraceHeader, c.trace))
	return c
}

// headerBytes returns the size of a block of headers: pairs of a name and a
// value, of which the empty ones are left out.
func headerBytes(pairs ...string) int {
	const frame, separators = len("NATS/1.0\r\n\r\n"), len(": \r\n")
	n := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			n += len(pairs[i]) + len(pairs[i+1]) + separators
		}
	}
	if n > 0 {
		n += frame
	}
	return n
}

// message makes what is published, with room for more headers.
func (c *call) message(reply string) *nats.Msg {
	msg := &nats.Msg{Subject: c.subject, Reply: reply, Data: c.data, Header: make(nats.Header, 6)}
	set := func(name, value string) {
		if value != "" {
			msg.Header[name] = []string{value}
		}
	}
	set(idHeader, c.id)
	set(ReplyHeader, c.replyTo)
	set(TraceHeader, c.trace)
	return msg
}

// learn adds what a try has shown.
func (c *call) learn(out outcome) {
	if out.sent {
		c.tries++
	}
	c.mayBeStored = c.mayBeStored || out.err != nil && out.stored
	c.unavailable = errors.Is(out.err, errNoStream) || errors.Is(out.err, errOffline)
}

func (c *call) failed(cause error) error {
	return &AppendError{
		Subject: c.subject, ID: c.id, Tries: c.tries,
		Unconfirmed: c.mayBeStored, Unavailable: c.unavailable, Cause: cause,
	}
}

// recentIDs remembers ids that this process has sent lately. A message that the
// server may know would be the reason why its whole batch is refused, so it
// travels alone. Forgetting one, or taking one for another, costs only time.
type recentIDs struct {
	seed  maphash.Seed
	mu    sync.Mutex
	young map[uint64]struct{}
	old   map[uint64]struct{}
}

// recentGeneration bounds each of the two generations of recentIDs.
const recentGeneration = 1 << 16

// seen reports whether id was seen lately, and remembers it.
func (r *recentIDs) seen(id string) bool {
	if id == "" {
		return false
	}
	h := maphash.String(r.seed, id)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.young[h]; ok {
		return true
	}
	_, ok := r.old[h]
	if r.young == nil || len(r.young) >= recentGeneration {
		r.old, r.young = r.young, make(map[uint64]struct{}, 1024)
	}
	r.young[h] = struct{}{}
	return ok
}
