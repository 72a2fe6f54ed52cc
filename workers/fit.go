package workers

import (
	"fmt"
	"unicode/utf8"

	"jobledger/ledger"
)

const (
	// headerReserveBytes is kept free for the headers of a completion.
	headerReserveBytes = 2 << 10
	// shortTextBytes is what is kept of a message and a reference where the
	// whole text does not fit.
	shortTextBytes = 256
	// shortOutputBytes is what is kept, at first, of a provider's words.
	shortOutputBytes = 16 << 10
)

// completionLimit is the most that the body of a completion may have, by what the
// server takes now.
func (w *Worker) completionLimit() int {
	limit := int64(ledger.MaxPayloadBytes)
	if server := w.o.JetStream.Conn().MaxPayload(); server > 0 {
		limit = min(limit, server)
	}
	return int(limit) - headerReserveBytes
}

// fit returns the message of a completion that has at most the given size, and
// changes the completion to what that can say: an attempt must be able to end. The
// result is the last to go, because it decides about the job. What does not fit
// even so is returned as small as it gets.
func fit(c *ledger.Completion, limit int) ledger.Message {
	original, m := *c, c.Message()
	for _, cut := range []func(*ledger.Completion){
		func(c *ledger.Completion) { c.Output = shorten(c.Output, shortOutputBytes) },
		trim,
		dropResult,
		func(c *ledger.Completion) { dropResult(c); trim(c) },
	} {
		if len(m.Data) <= limit {
			break
		}
		*c = original
		cut(c)
		m = c.Message()
	}
	return m
}

// trim leaves out what only people read.
func trim(c *ledger.Completion) {
	c.Usage = nil
	c.Output = shorten(c.Output, shortTextBytes)
	c.Failure.Message = shorten(c.Failure.Message, shortTextBytes)
	c.ProviderRef = shorten(c.ProviderRef, shortTextBytes)
}

// dropResult makes a success what it is without its result: a failure after
// which the provider has done the work.
func dropResult(c *ledger.Completion) {
	if c.Outcome != ledger.OutcomeSucceeded {
		return
	}
	c.Outcome, c.Failure = Classify(&CallError{Known: Executed, Class: "result_too_large", Err: fmt.Errorf(
		"the result has %d bytes, more than a message to the server has room for", len(c.Result))})
	c.Result = nil
}

// shorten cuts text to at most the given bytes, between characters.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := most
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}
