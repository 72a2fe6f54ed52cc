package workers

import (
	"bytes"
	"fmt"
	"strings"

	"jobledger/ledger"
	"jobledger/workers/internal/wait"
)

const (
	// maxUsageBytes bounds what a completion says of the costs.
	maxUsageBytes = 4 << 10
	// maxOutputBytes bounds what a completion keeps of what is no result.
	maxOutputBytes = 256 << 10
)

// finish records how the attempt ended and, once that is stored, acknowledges
// the start.
func (a *attempt) finish(result Result, err error) {
	if a.complete(result, err) {
		a.done()
	} else {
		a.w.release(a) // it comes again, and its claim will be refused
	}
}

// done acknowledges the start: it is of no more use to anybody.
func (a *attempt) done() {
	a.w.release(a)
	a.w.note(a.msg.Ack(), "acknowledge a start")
}

// giveBack has the start delivered again, not at once.
func (a *attempt) giveBack() {
	a.w.release(a)
	a.w.note(a.msg.NakWithDelay(wait.Jitter(a.w.timing.redeliver)), "give a start back")
}

// complete records how the attempt ended, and reports whether that is stored.
func (a *attempt) complete(result Result, err error) bool {
	c := a.completion(result, err)
	stored := a.store(c)
	a.ended = c.Outcome
	a.w.log.Debug("an attempt ended here", "job", a.start.Job, "attempt", a.start.Attempt, "kind", a.start.Kind,
		"outcome", c.Outcome, "class", c.Failure.Class, "recorded", stored)
	if a.w.o.Ended != nil {
		a.w.o.Ended(a.start.Kind, c.Outcome, a.w.clock.since(a.claimed))
	}
	return stored
}

// addLate records what a call said that returned after its attempt had been
// recorded as unknown. That it knows no more is not worth an entry.
func (a *attempt) addLate(result Result, err error) {
	c := a.completion(result, err)
	if c.Outcome != ledger.OutcomeUnknown || c.ProviderRef != "" {
		a.store(c)
	}
}

// completion makes the entry that says how the attempt ended, fit to be stored.
func (a *attempt) completion(result Result, err error) *ledger.Completion {
	body := bytes.Trim(result.Body, " \t\r\n")
	output := result.Output
	if err == nil {
		if err = a.checkResult(body); err != nil {
			output = string(body)
		}
	}
	c := &ledger.Completion{
		Job: a.start.Job, Attempt: a.start.Attempt, JobVersion: a.start.JobVersion, Provider: a.start.Provider,
		Claim: a.claim, ProviderRef: ledger.ValidText(result.ProviderRef), Usage: a.usage(result.Usage),
	}
	c.Outcome, c.Failure = Classify(err)
	if c.Outcome == ledger.OutcomeSucceeded {
		c.Result = body
	}
	if c.Outcome == ledger.OutcomeFailed || c.Outcome == ledger.OutcomeUnknown {
		c.Output = storable(output)
	}
	return c
}

// storable is text as an entry may hold it, up to maxOutputBytes.
func storable(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "\ufffd")
	return shorten(text, maxOutputBytes)
}

// checkResult says why a result is not accepted: by the contract, or where there
// is none by the ledger.
func (a *attempt) checkResult(body []byte) error {
	if len(body) > ledger.MaxResultBytes {
		return tooLarge()
	}
	if a.contract != nil {
		return a.checkTerms(body)
	}
	if err := ledger.CheckJSON(body); err != nil {
		return &CallError{Known: Executed, Class: "invalid_result", Err: fmt.Errorf("the result is not accepted: %w", err)}
	}
	return nil
}

// usage leaves out what would make the entry one that the ledger refuses.
func (a *attempt) usage(usage []byte) []byte {
	if len(usage) == 0 {
		return nil
	}
	err := ledger.CheckJSON(usage)
	if len(usage) > maxUsageBytes {
		err = fmt.Errorf("%d bytes; at most %d are kept", len(usage), maxUsageBytes)
	}
	if err != nil {
		a.w.log.Error("the provider's usage is not recorded", "job", a.start.Job, "attempt", a.start.Attempt, "error", err)
		return nil
	}
	return usage
}

// store appends a completion until the stream has acknowledged it, and reports
// whether it has. It gives up only when the process has to exit.
func (a *attempt) store(c *ledger.Completion) bool {
	records, _, end := a.span(a.w.records, SpanComplete)
	defer func() { end(string(c.Outcome)) }()
	return a.w.persist(records, c, "")
}
