package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"jobledger/ledger"
)

// Bounds of the reader.
const (
	chunkEntries = 1000
	chunkBytes   = 4 << 20
	// pullMessages and pullBytes bound what the server sends ahead.
	pullMessages = 4 * chunkEntries
	pullBytes    = 16 << 20
	// chunkAhead is how many chunks wait for a shard.
	chunkAhead = 2
	// fetchTimeout bounds one request to the stream.
	fetchTimeout = 5 * time.Second
	// readerExpiry is when the server forgets a reader that went away.
	readerExpiry = 30 * time.Second
	// silenceLook is after how long without an entry the reader looks whether
	// there is one.
	silenceLook = 3 * time.Second
	// maxReplySubject bounds the subject of a reply, in bytes.
	maxReplySubject = 256
	// maxTrace bounds a trace context, in bytes. Version 0 has 55.
	maxTrace = 128
)

// An item is an entry on its way to a shard.
type item struct {
	entry *ledger.Entry
	reply string // where its decision is to be published, "" for nowhere
	trace string // W3C trace context of whoever appended it, "" for none
	// started, in a start that was in the stream before the session began, is
	// the attempt that it starts.
	started attemptKey
}

// A chunk is what the reader hands to a shard: its entries among those up to
// pos. Entries of other shards are left out, but pos has passed them.
type chunk struct {
	items []item
	bytes int
	pos   Position
}

// A reader reads the stream in order from a position, checks that no entry is
// missing, computes the chain, decodes, and hands the entries to their shards.
type reader struct {
	stream jetstream.Stream
	prefix string // of the ledger's subjects, with the dot
	inbox  string // what a reply's subject must start with, with the dot
	log    *slog.Logger
	pos    Position
	shards []chan chunk
	// after is where each shard has come: it gets only what follows. until, if
	// not nil, is where each ends: the chunk that reaches it is its last.
	after, until []uint64
	// startsUntil is up to where the shards want to see starts too.
	startsUntil uint64
	// marks are stored checkpoints: the chain must agree at each.
	marks []Position
}

// newReader returns a reader that goes on from the checkpoints of all shards.
// inbox is what the subject of a reply must start with, without the dot.
func newReader(stream jetstream.Stream, prefix, inbox string, log *slog.Logger, points []Checkpoint, ahead int) *reader {
	r := &reader{
		stream: stream, prefix: prefix + ".", inbox: inbox + ".", log: log, pos: points[0].Pos,
		shards: make([]chan chunk, len(points)), after: make([]uint64, len(points)), marks: make([]Position, len(points)),
	}
	for i, c := range points {
		if c.Pos.Seq < r.pos.Seq {
			r.pos = c.Pos
		}
		r.shards[i], r.after[i], r.marks[i] = make(chan chunk, ahead), c.Pos.Seq, c.Pos
	}
	return r
}

// run reads until ctx ends or the stream turns out to be wrong. A lost
// connection or consumer is not an error: the reader makes a new consumer and
// checks that the stream is still the same.
func (r *reader) run(ctx context.Context) error {
	wait := 50 * time.Millisecond
	for {
		from := r.pos.Seq
		err := r.session(ctx)
		var wrong *StreamError
		if ctx.Err() != nil || errors.As(err, &wrong) {
			return err
		}
		if r.pos.Seq > from {
			wait = 50 * time.Millisecond
		}
		r.log.Warn("reading the stream was interrupted", "after", r.pos.Seq, "error", err, "retry_in", wait)
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// session checks the stream, makes a consumer and reads until that breaks.
func (r *reader) session(ctx context.Context) error {
	if err := checkPosition(ctx, r.stream, r.pos); err != nil {
		return err
	}
	cons, err := r.consumer(ctx)
	if err != nil {
		return err
	}
	in, err := consume(ctx, cons)
	if err != nil {
		return err
	}
	defer r.release(cons, in)
	for {
		// What was accepted before something broke has moved the position: it
		// goes to the shards in any case.
		list, err := r.collect(ctx, in)
		if routeErr := r.route(ctx, list); routeErr != nil {
			return routeErr
		}
		if err != nil {
			return err
		}
	}
}

// An inflow is what a consumer delivers, bounded by count and by bytes.
type inflow struct {
	sub    jetstream.ConsumeContext
	msgs   chan jetstream.Msg
	broken chan error
	room   *semaphore.Weighted // bytes
	cancel context.CancelFunc  // frees a delivery that waits for room
	silent bool                // at the last look entries waited, and none has come since
}

func consume(ctx context.Context, cons jetstream.Consumer) (*inflow, error) {
	ctx, cancel := context.WithCancel(ctx)
	in := &inflow{
		msgs: make(chan jetstream.Msg, chunkEntries), broken: make(chan error, 1),
		room: semaphore.NewWeighted(pullBytes), cancel: cancel,
	}
	deliver := func(m jetstream.Msg) {
		if in.room.Acquire(ctx, size(m)) != nil {
			return
		}
		select {
		case in.msgs <- m:
		case <-ctx.Done():
		}
	}
	failed := func(_ jetstream.ConsumeContext, err error) {
		select {
		case in.broken <- err:
		default:
		}
	}
	var err error
	in.sub, err = cons.Consume(deliver, jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes),
		jetstream.PullHeartbeat(2*time.Second), jetstream.PullExpiry(20*time.Second), jetstream.ConsumeErrHandler(failed))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("consume the stream: %w", err)
	}
	return in, nil
}

func size(m jetstream.Msg) int64 { return min(int64(len(m.Data())+len(m.Subject())), pullBytes) }

// consumer makes a consumer that starts after the position.
func (r *reader) consumer(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	cons, err := r.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		AckPolicy:         jetstream.AckNonePolicy,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       r.pos.Seq + 1,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: readerExpiry,
		Description:       "projector's reader",
	})
	if err != nil {
		return nil, fmt.Errorf("make a consumer from sequence %d: %w", r.pos.Seq+1, err)
	}
	return cons, nil
}

// release ends a consumer. The server would forget it by itself after a while.
func (r *reader) release(cons jetstream.Consumer, in *inflow) {
	in.cancel()
	in.sub.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := r.stream.DeleteConsumer(ctx, cons.CachedInfo().Name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		r.log.Debug("the reader's consumer was not deleted; the server will forget it", "error", err)
	}
}

// raw is a message that passed the checks of order.
type raw struct {
	seq     uint64
	at      time.Time
	subject string
	msg     jetstream.Msg
	pos     Position
}

// collect waits for a message and takes what else is there, up to a chunk. With
// an error it returns what it had accepted before.
func (r *reader) collect(ctx context.Context, in *inflow) (list []raw, err error) {
	bytes := int64(0)
	add := func(m jetstream.Msg) error {
		in.room.Release(size(m))
		next, err := r.accept(m)
		if err == nil {
			list = append(list, next)
			bytes += size(m)
		}
		return err
	}
	look := time.NewTimer(silenceLook)
	defer look.Stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case m := <-in.msgs:
		in.silent = false
		err = add(m)
	case err = <-in.broken:
	case <-look.C:
		return nil, r.suspect(ctx, in)
	}
	for err == nil && len(list) < chunkEntries && bytes < chunkBytes {
		select {
		case m := <-in.msgs:
			err = add(m)
		default:
			return list, nil
		}
	}
	return list, err
}

// suspect looks whether entries wait although none comes. The client library
// stops watching for heartbeats while it reconnects, and does not always begin
// again: its consumer is then silent for ever, without an error.
func (r *reader) suspect(ctx context.Context, in *inflow) error {
	state, err := streamState(ctx, r.stream, 0)
	if err != nil {
		return err
	}
	waiting := state.LastSeq > r.pos.Seq
	if waiting && in.silent {
		return fmt.Errorf("nothing came for %s, although the stream has entries up to %d", 2*silenceLook, state.LastSeq)
	}
	in.silent = waiting
	return nil
}

// accept checks that a message is the very next one and moves the position.
func (r *reader) accept(m jetstream.Msg) (raw, error) {
	meta, err := m.Metadata()
	if err != nil {
		return raw{}, fmt.Errorf("a message of the stream without its metadata: %w", err)
	}
	seq := meta.Sequence.Stream
	if seq != r.pos.Seq+1 {
		if seq > r.pos.Seq+1 && meta.Sequence.Consumer == 1 {
			return raw{}, gap(r.pos.Seq, seq)
		}
		return raw{}, fmt.Errorf("sequence %d came after %d; reading again from there", seq, r.pos.Seq)
	}
	subject, ok := strings.CutPrefix(m.Subject(), r.prefix)
	if !ok {
		return raw{}, &StreamError{Seq: seq, Problem: fmt.Sprintf("its subject %s does not start with %s", m.Subject(), r.prefix),
			Advice: "check nats.stream and nats.subject_prefix"}
	}
	next := r.pos.next(seq, meta.Timestamp, m.Subject(), m.Data())
	if err := r.checkMarks(next); err != nil {
		return raw{}, err
	}
	r.pos = next
	return raw{seq, meta.Timestamp, subject, m, next}, nil
}

// adviceOther is what to do about a stream that is not, or no longer, the one
// that the tables were folded from.
const adviceOther = "restore the stream that the tables were folded from; if it is lost, jobledger rebuild --accept-stream folds this one" +
	" instead, after what docs/runbook.md says must be done before"

func gap(after, found uint64) error {
	return &StreamError{Seq: after + 1, Problem: fmt.Sprintf("the entries from here to %d are gone", found-1),
		Advice: "restore the stream from a backup that has what is missing, as docs/runbook.md says; nothing can be folded beyond a gap"}
}

// checkMarks compares the chain where a shard's checkpoint stands.
func (r *reader) checkMarks(pos Position) error {
	for _, m := range r.marks {
		if m.Seq == pos.Seq && m.Chain != pos.Chain {
			return wrongChain(m.Seq)
		}
	}
	return nil
}

func wrongChain(seq uint64) error {
	return &StreamError{Seq: seq, Problem: "the stored hash chain belongs to other entries: the stream was replaced or changed," +
		" or restored from an older backup and appended to since", Advice: adviceOther}
}

// route decodes messages and hands them to the shards.
func (r *reader) route(ctx context.Context, list []raw) error {
	if len(list) == 0 {
		return nil
	}
	chunks := make([]chunk, len(r.shards))
	for i := range list {
		m := &list[i]
		it := item{entry: ledger.Decode(m.seq, m.at, m.subject, m.msg.Data())}
		if h := m.msg.Headers(); len(h) > 0 {
			it.reply, it.trace = r.replySubject(h), traceOf(h)
		}
		first, last := shardsOf(it.entry, len(r.shards))
		if it.entry.Kind == ledger.AttemptStart && it.entry.Fault == nil && m.seq <= r.startsUntil {
			if start, err := ledger.ParseStart(it.entry.Token, m.msg.Data()); err == nil {
				it.started = attemptKey{start.Job, start.Attempt}
				first = jobShard(start.Job, len(r.shards))
				last = first
			}
		}
		for s := first; s <= last; s++ {
			if m.seq > r.after[s] {
				chunks[s].items = append(chunks[s].items, it)
				chunks[s].bytes += len(m.msg.Data())
			}
		}
	}
	end := list[len(list)-1].pos
	for s := range chunks {
		if end.Seq <= r.after[s] || r.until != nil && list[0].seq > r.until[s] {
			continue
		}
		chunks[s].pos = end
		select {
		case r.shards[s] <- chunks[s]:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// TraceHeader is the header of the W3C trace context, in entries as in HTTP.
const TraceHeader = "traceparent"

// traceOf returns the trace context of a message. It is carried along and not
// looked at, so only its length is checked.
func traceOf(h nats.Header) string {
	if v := h.Get(TraceHeader); len(v) <= maxTrace {
		return v
	}
	return ""
}

// replySubject returns the subject of a message's reply header if decisions may
// be published there: a literal subject under the inbox prefix. Without this a
// producer could make the projector publish anywhere.
func (r *reader) replySubject(h nats.Header) string {
	s := h.Get(ledger.ReplyHeader)
	if len(s) > maxReplySubject || !strings.HasPrefix(s, r.inbox) || strings.ContainsAny(s, "*> \t\r\n") ||
		strings.Contains(s, "..") || strings.HasSuffix(s, ".") {
		return ""
	}
	return s
}

// shardsOf returns the first and the last shard that an entry goes to: one for
// what concerns a job, all for definitions, none for attempt starts.
func shardsOf(e *ledger.Entry, shards int) (first, last int) {
	switch {
	case e.Fault != nil:
		home := homeShard(e.Seq, shards)
		return home, home
	case e.Kind == ledger.AttemptStart:
		return 0, -1
	case e.Job != [16]byte{}:
		s := jobShard(e.Job, shards)
		return s, s
	}
	return 0, shards - 1
}

// jobShard returns the shard of a job. Ids are digests: any bytes spread evenly.
func jobShard(id [16]byte, shards int) int {
	return int(uint32(id[0])<<24|uint32(id[1])<<16|uint32(id[2])<<8|uint32(id[3])) % shards
}

// homeShard returns the shard that answers for an entry without a job.
func homeShard(seq uint64, shards int) int { return int(seq % uint64(shards)) }
