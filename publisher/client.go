package publisher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"jobledger/ledger"
)

var (
	// ErrDuplicateAppend: see DuplicateAppendError.
	ErrDuplicateAppend = errors.New("the same entry is in the ledger already")
	// ErrNoDecision: see NoDecisionError.
	ErrNoDecision = errors.New("no decision yet")
)

// A DuplicateAppendError says that somebody has appended the same entry before,
// so that its decision went, or will go, to somebody else. Once the tables have
// applied Seq they show what became of it. If they show that it was refused,
// Client.DecideFresh says it anew.
type DuplicateAppendError struct {
	Seq uint64 // of the original
}

func (e *DuplicateAppendError) Error() string {
	return fmt.Sprintf("%s, as entry %d; its decision is in the tables once they have applied it", ErrDuplicateAppend, e.Seq)
}

// Is makes errors.Is answer for ErrDuplicateAppend.
func (e *DuplicateAppendError) Is(target error) bool { return target == ErrDuplicateAppend }

// A NoDecisionError says that the entry is stored, and that no decision on it
// came in time. It will be decided.
type NoDecisionError struct {
	Seq   uint64
	Cause error // the context's error, or ErrClosed
}

func (e *NoDecisionError) Error() string {
	return fmt.Sprintf("%s on entry %d: %v", ErrNoDecision, e.Seq, e.Cause)
}

// Is makes errors.Is answer for ErrNoDecision.
func (e *NoDecisionError) Is(target error) bool { return target == ErrNoDecision }

// Unwrap returns the cause.
func (e *NoDecisionError) Unwrap() error { return e.Cause }

const (
	// DefaultMaxWaiting is how many decisions a Client waits for at once.
	DefaultMaxWaiting = 16 << 10

	// ownAnswerWait is how long an answer is waited for whose entry turns out
	// to be stored before its acknowledgement came: whatever took the
	// acknowledgement may have taken the answer too.
	ownAnswerWait = 2 * time.Second
)

// A Client appends entries and waits for the decisions on them. Its methods may
// be called by any number of goroutines.
type Client struct {
	appender *Appender
	inbox    string // without the token
	sub      *nats.Subscription
	slots    chan struct{} // bounds waiting
	dropped  atomic.Uint64
	stop     context.Context
	stopNow  context.CancelFunc

	mu      sync.Mutex
	waiting map[string]chan ledger.Answer
}

// NewClient makes a Client that receives decisions on nc, under its inbox
// prefix, which must be the one that the projector answers to. maxWaiting
// bounds how many decisions are waited for at once; 0: DefaultMaxWaiting. It
// closes neither nc nor the Appender.
func NewClient(nc *nats.Conn, a *Appender, maxWaiting int) (*Client, error) {
	if maxWaiting < 1 {
		maxWaiting = DefaultMaxWaiting
	}
	c := &Client{
		appender: a,
		inbox:    nc.NewInbox() + ".",
		slots:    make(chan struct{}, maxWaiting),
		waiting:  map[string]chan ledger.Answer{},
	}
	var err error
	if c.sub, err = nc.Subscribe(c.inbox+"*", c.receive); err != nil {
		return nil, fmt.Errorf("subscribe to decisions: %w", err)
	}
	c.stop, c.stopNow = context.WithCancel(context.Background())
	return c, nil
}

// Close ends what waits for a decision, with a *NoDecisionError.
func (c *Client) Close() error {
	c.stopNow()
	if err := c.sub.Unsubscribe(); err != nil && !gone(err) {
		return fmt.Errorf("unsubscribe from decisions: %w", err)
	}
	return nil
}

// Dropped returns how many answers came too late, for something else, or were
// not readable.
func (c *Client) Dropped() uint64 { return c.dropped.Load() }

// Waiting returns how many decisions are being waited for, appends included.
func (c *Client) Waiting() int { return len(c.slots) }

// Append appends m without asking for the decision and returns its sequence,
// the original's if the same entry was appended before. Errors are
// *AppendError.
func (c *Client) Append(ctx context.Context, m ledger.Message) (uint64, error) {
	ack, err := c.appender.Append(ctx, m, "")
	return ack.Seq, err
}

// Decide appends m and returns the decision on it. Errors are *AppendError (it
// is not, or perhaps not, appended), *DuplicateAppendError, and
// *NoDecisionError when ctx ends first. A message without an id, such as a
// claim, may be appended again to learn what the fold makes of it.
func (c *Client) Decide(ctx context.Context, m ledger.Message) (ledger.Answer, error) {
	began := time.Now()
	answer, err := c.decide(ctx, m)
	c.appender.opts.Observer.Decided(m.Subject, answer, err, time.Since(began))
	return answer, err
}

func (c *Client) decide(ctx context.Context, m ledger.Message) (ledger.Answer, error) {
	if c.stop.Err() != nil {
		return ledger.Answer{}, c.notAppended(m, ErrClosed)
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return ledger.Answer{}, c.notAppended(m, context.Cause(ctx))
	case <-c.stop.Done():
		return ledger.Answer{}, c.notAppended(m, ErrClosed)
	}
	token, answers := c.expect()
	defer c.forget(token)
	ack, err := c.appender.Append(ctx, m, c.inbox+token)
	if err != nil {
		return ledger.Answer{}, err
	}
	var giveUp <-chan time.Time
	if ack.Duplicate {
		if ack.ReplyTo != c.inbox+token {
			return ledger.Answer{}, &DuplicateAppendError{Seq: ack.Seq}
		}
		timer := time.NewTimer(ownAnswerWait)
		defer timer.Stop()
		giveUp = timer.C
	}
	for {
		select {
		case answer := <-answers:
			if answer.Seq == ack.Seq {
				return answer, nil
			}
			c.dropped.Add(1) // of another entry: ours, stored twice, or somebody's with our reply subject
		case <-giveUp:
			return ledger.Answer{}, &DuplicateAppendError{Seq: ack.Seq}
		case <-ctx.Done():
			return ledger.Answer{}, &NoDecisionError{Seq: ack.Seq, Cause: context.Cause(ctx)}
		case <-c.stop.Done():
			return ledger.Answer{}, &NoDecisionError{Seq: ack.Seq, Cause: ErrClosed}
		}
	}
}

// DecideFresh is Decide for a message whose id is known to belong to an entry
// that was refused: it takes a fresh one.
func (c *Client) DecideFresh(ctx context.Context, m ledger.Message) (ledger.Answer, error) {
	return c.Decide(ctx, Fresh(m))
}

func (c *Client) notAppended(m ledger.Message, cause error) error {
	return &AppendError{Subject: c.appender.subject(m), ID: m.ID, Cause: cause}
}

// answersKept is how many answers to one request are kept until its entry's
// sequence is known. More than two are somebody's mistake.
const answersKept = 4

func (c *Client) expect() (token string, answers chan ledger.Answer) {
	token, answers = nuid.Next(), make(chan ledger.Answer, answersKept)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[token] = answers
	return token, answers
}

func (c *Client) forget(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, token)
}

func (c *Client) receive(msg *nats.Msg) {
	token := strings.TrimPrefix(msg.Subject, c.inbox)
	answer, err := ledger.ParseAnswer(msg.Data)
	c.mu.Lock()
	answers := c.waiting[token]
	c.mu.Unlock()
	if err != nil || answers == nil {
		c.dropped.Add(1)
		return
	}
	select {
	case answers <- answer:
	default:
		c.dropped.Add(1)
	}
}
