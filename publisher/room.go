package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"jobledger/ledger"
)

// RequestFillPercent is how full the stream may be for new requests. The rest
// is kept for what they lead to: starts, claims, completions, and what people
// say about them.
const RequestFillPercent = 90

const (
	// fillStale is how many times Options.FillAge what is known of the stream's
	// fill may be old and still decide, while it is asked for anew.
	fillStale = 5
	// fillWait bounds one question for it. Without an answer requests are let
	// through: whether there is room the server itself says.
	fillWait = time.Second
	// storedOverhead is what the server adds to a message on disk, in bytes, at
	// the least.
	storedOverhead = 30
)

// ErrFull: there is no room in the ledger's stream. It comes with
// ErrNotAppended where that is certain. The cause is a *FullError, or a
// *ServerError if it was the server that said it.
var ErrFull = errors.New("the ledger's stream is full")

// A FullError is a request that was refused because the room that is left is
// kept for what is under way.
type FullError struct {
	What         string // the stream LEDGER, or the account's storage
	Bytes, Limit int64  // what is stored, and what may be
}

func (e *FullError) Error() string {
	return fmt.Sprintf("%s: %s holds %d of at most %d bytes (%d %%), and from %d %% on new requests are refused, so that what is under way can end; an operator must give it more room",
		ErrFull, e.What, e.Bytes, e.Limit, percent(e.Bytes, e.Limit), RequestFillPercent)
}

// Is makes errors.Is answer for ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }

func percent(part, whole int64) int64 { return int64(float64(part) / float64(whole) * 100) }

// isRequest reports whether a message asks for a new job.
func isRequest(m ledger.Message) bool {
	rest, ok := strings.CutPrefix(m.Subject, string(ledger.JobRequest))
	return ok && (rest == "" || rest[0] == '.')
}

// A level is how full something is that has a limit.
type level struct {
	what         string
	bytes, limit int64
}

// room knows, a little late, how full the stream is.
type room struct {
	nc     *nats.Conn
	api    string // prefix of the JetStream API
	stream string
	maxAge time.Duration
	stop   context.Context // ends with the Appender

	mu      sync.Mutex
	levels  []level       // those with a limit
	askedAt time.Time     // when what levels says was asked for; zero: never
	asking  chan struct{} // closed when the question under way is over; nil: there is none
	// admitted is what was let through since askedAt, next since the question
	// under way was asked: bytes that levels cannot know of.
	admitted, next int64
}

// admit returns a *FullError if a request of the given size should not be
// appended. It lets through by knowledge that is at most fillStale times maxAge
// old, and refuses by knowledge that is not older than maxAge; within ctx it
// waits for that. spawn runs the question for it.
func (r *room) admit(ctx context.Context, size int64, spawn func(func())) error {
	r.refresh(ctx, fillStale*r.maxAge, spawn)
	err := r.count(size + storedOverhead)
	if err != nil {
		r.refresh(ctx, r.maxAge, spawn)
		err = r.count(size + storedOverhead)
	}
	return err
}

// count counts a request in, unless there is no room for it.
func (r *room) count(size int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.levels {
		if full := l.limit / 100 * RequestFillPercent; l.bytes+r.admitted+size > full {
			return &FullError{What: l.what, Bytes: l.bytes + r.admitted, Limit: l.limit}
		}
	}
	r.admitted += size
	r.next += size
	return nil
}

// refresh asks for the fill if what is known is old, and waits for the answer
// if it is older than the given age.
func (r *room) refresh(ctx context.Context, oldest time.Duration, spawn func(func())) {
	r.mu.Lock()
	age := time.Since(r.askedAt)
	if age < r.maxAge {
		r.mu.Unlock()
		return
	}
	if r.asking == nil {
		done := make(chan struct{})
		r.asking, r.next = done, 0
		spawn(func() { r.ask(done) })
	}
	asking := r.asking
	r.mu.Unlock()
	if age < oldest || !r.nc.IsConnected() {
		return
	}
	patience := time.NewTimer(fillPatience(ctx))
	defer patience.Stop()
	select {
	case <-asking:
	case <-patience.C:
	case <-r.stop.Done():
	case <-ctx.Done():
	}
}

// fillPatience is how much of the time that an append has may be spent on
// learning whether there is room for it.
func fillPatience(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(time.Until(end)/4, fillWait)
	}
	return fillWait
}

// ask learns the fill. What cannot be learnt limits nothing.
func (r *room) ask(done chan struct{}) {
	defer close(done)
	began := time.Now()
	ctx, cancel := context.WithTimeout(r.stop, fillWait)
	defer cancel()
	levels := r.measure(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.levels, r.askedAt, r.asking, r.admitted = levels, began, nil, r.next
}

// measure asks the server about the stream and about the account, whose limit
// may be the nearer one.
func (r *room) measure(ctx context.Context) []level {
	var levels []level
	add := func(what string, bytes, limit int64) {
		if limit > 0 {
			levels = append(levels, level{what, bytes, limit})
		}
	}
	var info streamInfo
	if r.request(ctx, "STREAM.INFO."+r.stream, &info) {
		add("the stream "+r.stream, info.State.Bytes, info.Config.MaxBytes)
	}
	var account accountInfo
	if r.request(ctx, "INFO", &account) {
		add("the account's storage", account.Storage, account.Limits.MaxStorage)
		if t, ok := account.Tiers[fmt.Sprintf("R%d", info.Config.Replicas)]; ok {
			add("the account's storage", t.Storage, t.Limits.MaxStorage)
		}
	}
	return levels
}

// streamInfo and accountInfo are what is read of the server's answers.
type streamInfo struct {
	Config struct {
		MaxBytes int64 `json:"max_bytes"`
		Replicas int   `json:"num_replicas"`
	} `json:"config"`
	State struct {
		Bytes int64 `json:"bytes"`
	} `json:"state"`
}

type accountInfo struct {
	accountTier
	Tiers map[string]accountTier `json:"tiers"`
}

type accountTier struct {
	Storage int64 `json:"storage"`
	Limits  struct {
		MaxStorage int64 `json:"max_storage"`
	} `json:"limits"`
}

// request reports whether the JetStream API has answered. An answer that is an
// error leaves into as it was.
func (r *room) request(ctx context.Context, subject string, into any) bool {
	msg, err := r.nc.RequestWithContext(ctx, r.api+"."+subject, nil)
	return err == nil && json.Unmarshal(msg.Data, into) == nil
}
