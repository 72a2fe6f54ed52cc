package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"jobledger/ledger"
	"jobledger/workers/contract"
)

const (
	// DefaultGrace is how long running calls may go on after Run's context has
	// ended.
	DefaultGrace = 20 * time.Second
	// MaxConcurrency bounds the calls that one worker makes at a time.
	MaxConcurrency = 4096

	// The margin that Options leaves open is a twentieth of the attempt's
	// timeout within these bounds.
	minMargin = 10 * time.Millisecond
	maxMargin = 2 * time.Second
)

// A Ledger is where a worker says what it does and learns what was decided.
type Ledger interface {
	// Append stores an entry and returns its sequence once the stream has
	// acknowledged it. It repeats the publication within the context's
	// deadline; after an error the entry may still be stored.
	Append(ctx context.Context, m ledger.Message) (seq uint64, err error)
	// Decide appends an entry and waits for what the fold makes of it. The
	// error wraps context.DeadlineExceeded if no decision came in time.
	Decide(ctx context.Context, m ledger.Message) (ledger.Answer, error)
}

// Options configure a [Worker].
type Options struct {
	Provider string   // the provider's name; required
	Impl     Provider // what does the work; required
	// Concurrency is how many calls may run at a time, from 1 to
	// MaxConcurrency; required.
	Concurrency int

	Ledger        Ledger              // required
	JetStream     jetstream.JetStream // required
	Stream        string              // the ledger's stream; required
	SubjectPrefix string              // the ledger's subject prefix; required
	// Name is what claims call this worker: free text of at most
	// ledger.MaxTextBytes; required.
	Name string

	// ReplayOnly makes a worker that takes no starts and carries out only what
	// Replay asks of it.
	ReplayOnly bool
	// KeyPerAttempt makes calls carry the idempotency key "<job id>/<attempt>"
	// instead of "<job id>": for providers that replay a stored error for ever.
	KeyPerAttempt bool
	// ProviderDigest is the digest, in hex, of the provider's definition as this
	// worker carries it out (ledger.ProviderDigest). A start that rests on a proof
	// of another one is completed as unsent. "": not compared.
	ProviderDigest string
	// Contracts are those of the kinds, by name. An attempt whose start names a
	// contract that is not the one here is not begun; the input is checked before
	// the call and the result before it may count. Kinds whose starts name none
	// need none.
	Contracts map[string]*contract.Contract
	// Spool keeps completions on disk that cannot be appended, so that the next
	// worker on it appends them; nil: they are lost with the process.
	Spool *Spool
	// Margin is how much of an attempt's time must be left for the provider to
	// be called at all. 0: a twentieth of the timeout, from 10 ms to 2 s. It
	// is never more than half of the timeout.
	Margin time.Duration
	// Grace is how long running calls may go on after Run's context has ended;
	// 0: DefaultGrace.
	Grace time.Duration

	Log *slog.Logger // nil: nowhere
	// Ended, if not nil, is called after each attempt that this worker claimed,
	// with how it was recorded and the time since the claim. It must be quick
	// and safe for concurrent use.
	Ended func(kind string, outcome ledger.Outcome, took time.Duration)
	// Tracer records spans; nil: none, and the provider gets the trace that the
	// start came with.
	Tracer Tracer
}

// check says which option is wrong.
func (o *Options) check() error {
	if err := ledger.CheckName("workers: Options.Provider", o.Provider); err != nil {
		return err
	}
	switch {
	case o.Impl == nil:
		return errors.New("workers: Options.Impl is nil; a provider's implementation is expected")
	case o.Concurrency < 1 || o.Concurrency > MaxConcurrency:
		return fmt.Errorf("workers: Options.Concurrency is %d; expected 1 to %d", o.Concurrency, MaxConcurrency)
	case o.Ledger == nil:
		return errors.New("workers: Options.Ledger is nil")
	case o.JetStream == nil:
		return errors.New("workers: Options.JetStream is nil")
	case o.Stream == "":
		return errors.New("workers: Options.Stream is empty; the name of the ledger's stream is expected")
	case o.SubjectPrefix == "" || strings.ContainsAny(o.SubjectPrefix, " \t\r\n*>"):
		return fmt.Errorf("workers: Options.SubjectPrefix is %q; expected a subject without wildcards", o.SubjectPrefix)
	case o.Name == "" || ledger.ValidText(o.Name) != o.Name:
		return fmt.Errorf("workers: Options.Name is %s; expected 1 to %d bytes of text", ledger.Quote(o.Name), ledger.MaxTextBytes)
	case o.Margin < 0:
		return fmt.Errorf("workers: Options.Margin is %s; expected 0 or more", o.Margin)
	case o.Grace < 0:
		return fmt.Errorf("workers: Options.Grace is %s; expected 0 or more", o.Grace)
	}
	return nil
}

// margin is what must be left of an attempt's timeout.
func (o *Options) margin(timeout time.Duration) time.Duration {
	margin := o.Margin
	if margin == 0 {
		margin = min(max(timeout/20, minMargin), maxMargin)
	}
	return min(margin, timeout/2)
}

// timing holds the waits of the protocol. They are no options: their values
// are either part of the contract or nobody's concern; tests shorten them.
type timing struct {
	ackWait       time.Duration // after which the server delivers a start again
	fullFor       time.Duration // how long a full worker keeps what it has fetched ahead
	quiet         time.Duration // after which a pull that brings nothing is begun anew
	claimTry      time.Duration // the first wait for a claim's decision; it doubles
	claimTryMax   time.Duration
	claimPatience time.Duration // the most that a claim waits, whatever its timeout
	retry         time.Duration // the first pause after an error; it doubles
	retryMax      time.Duration
	appendTry     time.Duration // bounds one append
	drainPatience time.Duration // how long what was spooled goes before new starts
	overrun       time.Duration // what a call may take after its context's end
	recordWait    time.Duration // what appends may take when the worker must exit
	redeliver     time.Duration // pause before a start comes again that could not be claimed
	unreadable    time.Duration // pause before a start comes again that could not be read
}

func defaultTiming() timing {
	return timing{
		ackWait:       30 * time.Second,
		fullFor:       time.Second,
		quiet:         20 * time.Second,
		claimTry:      2 * time.Second,
		claimTryMax:   30 * time.Second,
		claimPatience: 5 * time.Minute,
		retry:         100 * time.Millisecond,
		retryMax:      5 * time.Second,
		appendTry:     10 * time.Second,
		drainPatience: time.Minute,
		overrun:       2 * time.Second,
		recordWait:    10 * time.Second,
		redeliver:     15 * time.Second,
		unreadable:    time.Minute,
	}
}
