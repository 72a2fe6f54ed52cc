package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"jobledger/ledger"
	"jobledger/publisher/httpapi"
	"jobledger/workers/contract"
)

const (
	// kindsFor is how long it is known which contracts the kinds have.
	kindsFor = time.Second
	// kindsWait bounds the asking for them.
	kindsWait = 2 * time.Second
	// kindsQuiet is the pause between two warnings of the same about a kind.
	kindsQuiet = time.Minute
)

// An inputChecker checks inputs by the contracts of the process's configuration.
// A contract counts only while the ledger's kind names it: a process whose file is
// older or newer than what was applied lets inputs pass, and says so. The workers
// check them again.
type inputChecker struct {
	contracts func() map[string]*contract.Contract // by kind
	kinds     func(context.Context) ([]*ledger.KindRow, error)
	log       *slog.Logger
	now       func() time.Time

	mu    sync.Mutex // held while asking: whoever comes meanwhile gets the answer, too
	asked time.Time
	names map[string]string    // the contracts' digests, by kind; nil: they could not be read
	said  map[string]time.Time // when it was warned of a kind last
}

// newInputChecker makes a checker; contracts is called when there is something to
// check.
func newInputChecker(contracts func() map[string]*contract.Contract, kinds func(context.Context) ([]*ledger.KindRow, error), log *slog.Logger) *inputChecker {
	return &inputChecker{contracts: contracts, kinds: kinds, log: log, now: time.Now, said: map[string]time.Time{}}
}

// CheckInput implements httpapi.InputChecker.
func (c *inputChecker) CheckInput(ctx context.Context, kind string, input []byte) []httpapi.Detail {
	own := c.contracts()[kind]
	if own == nil || !c.holds(ctx, kind, own.Digest()) {
		return nil
	}
	faults := own.CheckInput(input)
	details := make([]httpapi.Detail, len(faults))
	for i, f := range faults {
		details[i] = httpapi.Detail{Detail: f.Detail, Pointer: f.Pointer}
	}
	return details
}

// holds reports whether the kind has the contract now.
func (c *inputChecker) holds(ctx context.Context, kind, digest string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked.IsZero() || c.now().Sub(c.asked) >= kindsFor {
		c.ask(ctx)
	}
	name, defined := c.names[kind]
	switch {
	case defined && name == digest:
		return true
	case c.names == nil, c.now().Sub(c.said[kind]) < kindsQuiet:
		return false
	}
	c.said[kind] = c.now()
	c.log.Warn("inputs of a kind are not checked here: the ledger has another contract than this process's configuration; jobledger kind apply makes the ledger follow it",
		"kind", kind, "contract", digest, "ledger_has", name)
	return false
}

func (c *inputChecker) ask(ctx context.Context) {
	// The answer is for others, too: it does not end with one request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), kindsWait)
	defer cancel()
	rows, err := c.kinds(ctx)
	c.asked, c.names = c.now(), nil
	if err != nil {
		c.log.Warn("inputs are not checked: the kinds cannot be read", "error", err)
		return
	}
	c.names = make(map[string]string, len(rows))
	for _, r := range rows {
		c.names[r.Kind.Name] = r.Kind.Contract
	}
}

// checkInputs makes commands tell of bad inputs as an API would. They can do
// without: a contract that cannot be read is told and left to the workers.
func (c *cli) checkInputs(d *direct) httpapi.InputChecker {
	read := sync.OnceValue(func() map[string]*contract.Contract {
		contracts, err := d.cfg.Contracts()
		if err != nil {
			c.log.Warn("inputs of some kinds are not checked here", "error", err)
		}
		return contracts
	})
	return newInputChecker(read, d.queries.Kinds, c.log)
}
