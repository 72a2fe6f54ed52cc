package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
	"jobledger/workers"
	"jobledger/workers/contract"
)

// KeyPrefix starts the idempotency keys of verification's calls; a UUID follows.
const KeyPrefix = "verify-"

const (
	// tries is how often a call is made whose provider has provably done nothing.
	tries = 3
	// waitFirst and waitMost bound the pause before it is made again.
	waitFirst = time.Second
	waitMost  = 30 * time.Second

	// MaxCalls bounds the calls of one verification.
	MaxCalls = 10_000
	// MaxConcurrency bounds those that are under way at a time.
	MaxConcurrency = 64
)

// A Question is an input that the provider is asked about.
type Question struct {
	Name  string
	Input []byte // one accepted JSON value
	// Case is the number of the contract's case, from 0; -1: the input was
	// submitted before, and what must hold of its result is the contract alone.
	Case int
}

// Cases returns a contract's cases as questions.
func Cases(c *contract.Contract) []Question {
	list := make([]Question, len(c.Cases()))
	for i, example := range c.Cases() {
		list[i] = Question{Name: example.Name, Input: example.Input, Case: i}
	}
	return list
}

// Options of a verification. All but Counter, Done and wait are required.
type Options struct {
	Provider  workers.Provider
	Contract  *contract.Contract
	Kind      string
	Questions []Question
	Runs      int // calls for each question, from 1
	// Concurrency is how many calls are under way at a time, from 1 to
	// MaxConcurrency.
	Concurrency int
	Timeout     time.Duration // of one call
	// Counter counts the tokens of a prompt; nil: nobody can, which the report
	// says.
	Counter Counter
	Done    func() // called after each call, from any goroutine

	wait func(context.Context, time.Duration) // tests do not wait
}

func (o *Options) check() error {
	calls := len(o.Questions) * o.Runs
	switch {
	case o.Provider == nil || o.Contract == nil || o.Kind == "":
		return errors.New("proof: Options.Provider, Contract and Kind are required")
	case o.Timeout <= 0:
		return fmt.Errorf("proof: Options.Timeout is %s; expected more than 0", o.Timeout)
	case len(o.Questions) == 0:
		return errors.New("there is nothing to ask: the contract has no cases, and no inputs of past jobs were given")
	case o.Runs < 1:
		return fmt.Errorf("%d runs; expected at least 1", o.Runs)
	case calls > MaxCalls:
		return fmt.Errorf("%d questions, %d times each, are %d calls; at most %d are made", len(o.Questions), o.Runs, calls, MaxCalls)
	case o.Concurrency < 1 || o.Concurrency > MaxConcurrency:
		return fmt.Errorf("a concurrency of %d; expected 1 to %d", o.Concurrency, MaxConcurrency)
	}
	return nil
}

// Run makes the calls and reports on them. Where the prompts are not what they
// should be it makes none. The error is of the options, or the context's: then
// nothing is proved.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.wait == nil {
		o.wait = pause
	}
	r := newReport(&o)
	if r.Prompt = Prompts(ctx, &o); r.Prompt != nil && r.Prompt.Verdict == Failed {
		r.conclude()
		return r, ctx.Err()
	}
	var mu sync.Mutex
	g, calls := errgroup.WithContext(ctx)
	g.SetLimit(o.Concurrency)
	for run := 1; run <= o.Runs; run++ {
		for n := range o.Questions {
			g.Go(func() error {
				ended := o.ask(calls, &o.Questions[n])
				if calls.Err() != nil {
					return calls.Err()
				}
				mu.Lock()
				defer mu.Unlock()
				r.add(n, run, ended)
				if o.Done != nil {
					o.Done()
				}
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	r.conclude()
	return r, nil
}

// An ending is how one call ended.
type ending struct {
	failure *ledger.Failure // nil: the contract was kept
	outcome ledger.Outcome  // with a failure
	nothing bool            // the provider has provably done nothing, which says nothing of it
	again   bool            // nothing, and it may do better soon
	faults  []contract.Fault
	said    string
	usage   []byte
	took    time.Duration // of the last try
}

// ask asks a question, again where the provider has provably done nothing and may
// do better soon.
func (o *Options) ask(ctx context.Context, q *Question) ending {
	wait := waitFirst
	for try := 1; ; try++ {
		e := o.call(ctx, q)
		if !e.again || try == tries || ctx.Err() != nil {
			return e
		}
		wished := time.Duration(e.failure.RetryAfterMS) * time.Millisecond
		o.wait(ctx, min(max(wait, wished), waitMost))
		wait *= 2
	}
}

// notLetIn are the classes of refusals that are about who asks: the key on this
// machine, or its account.
var notLetIn = []string{"http_401", "http_403", "no_credit"}

// call makes one call, as a worker does, and judges it.
func (o *Options) call(ctx context.Context, q *Question) (e ending) {
	deadline := time.Now().Add(o.Timeout)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	id := uuid.New()
	began := time.Now()
	result, err := o.provide(ctx, workers.Call{
		JobID: id, Attempt: 1, Kind: o.Kind, Input: q.Input, IdempotencyKey: KeyPrefix + id.String(), Deadline: deadline,
	})
	e.took, e.usage, e.said = time.Since(began), result.Usage, result.Output
	if err != nil {
		outcome, failure := workers.Classify(err)
		e.outcome, e.failure = outcome, &failure
		refused := outcome == ledger.OutcomeFailed && !failure.Executed
		e.again = outcome == ledger.OutcomeUnsent || refused && failure.Reach == ledger.ReachTransient
		e.nothing = e.again || refused && slices.Contains(notLetIn, failure.Class)
		return e
	}
	body := bytes.Trim(result.Body, " \t\r\n")
	if e.faults = append(o.judge(q, body), o.judgePrompt(result.Usage)...); len(e.faults) > 0 {
		e.outcome, e.said = ledger.OutcomeFailed, string(body)
		e.failure = &ledger.Failure{Class: "contract", Executed: true}
	}
	return e
}

// provide makes the call. A panic is an error like any other.
func (o *Options) provide(ctx context.Context, c workers.Call) (result workers.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &workers.CallError{Class: "panic", Err: fmt.Errorf("the provider panicked: %v", r)}
		}
	}()
	return o.Provider.Call(ctx, c)
}

func (o *Options) judge(q *Question, body []byte) []contract.Fault {
	if len(body) > ledger.MaxResultBytes {
		return []contract.Fault{{Rule: "size", Detail: fmt.Sprintf("%d bytes; the ledger takes at most %d", len(body), ledger.MaxResultBytes)}}
	}
	if q.Case >= 0 {
		return o.Contract.CheckCase(q.Case, body)
	}
	return o.Contract.CheckResult(q.Input, body)
}

// judgePrompt holds the prompt against the contract by the provider's own count.
func (o *Options) judgePrompt(usage []byte) []contract.Fault {
	p := o.Contract.Prompt()
	var told struct {
		Input int `json:"input_tokens"`
	}
	if p == nil || p.MaxInputTokens == 0 || len(usage) == 0 || json.Unmarshal(usage, &told) != nil || told.Input <= p.MaxInputTokens {
		return nil
	}
	return []contract.Fault{{Rule: "prompt", Detail: fmt.Sprintf("by the provider's count it has %d tokens; the contract allows %d", told.Input, p.MaxInputTokens)}}
}

// pause waits for about so long, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
