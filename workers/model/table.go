package model

import (
	"jobledger/ledger"
	"jobledger/workers"
)

// A sign is what was seen of a call that gave no result.
type sign uint8

const (
	noContract sign = iota
	noPrompt
	notSent
	noAnswer
	turnedDown
	locked
	noCredit
	blocked
	busy
	otherStatus
	brokenOff
	cutShort
	tooLong
	foreign
	unreadable
	providerError
	refusal
	cutOff
	otherEnd
	noOutput
	leaked
	numSigns
)

// A meaning says what follows from a sign.
type meaning struct {
	seen  string // for people; docs/providers.md has the same words
	known workers.Known
	// class names the failure. "http_N" stands for the status, and several names
	// for what the error is.
	class string
	reach ledger.Reach // "": it does not count, because nothing follows by itself
}

// table is the only place that says what an ending means. docs/providers.md shows
// it, and a test holds the two together.
//
// Two rules are behind it. What is not proved is ambiguous. And where a provider
// turns a request down, the provider is out and not the request: the input has
// passed the contract, so what it objects to is what it was sent for that input
// (its schema dialect, its context's length, its model's name), which the next
// provider may take, and a verified one provably takes.
var table = [numSigns]meaning{
	noContract: {"the worker has no contract for the kind", workers.NotSent, "no_contract", ledger.ReachProvider},
	noPrompt:   {"the contract's prompt cannot be made from the input", workers.NotSent, "prompt", ledger.ReachRequest},
	notSent: {"connection refused, name not found, TLS failure: nothing of the request left", workers.NotSent,
		"not_connected name_not_found tls request timeout stopped", ledger.ReachTransient},
	noAnswer: {"no answer: reset, closed, or the deadline before the answer's headers", workers.Ambiguous,
		"connection_lost no_answer timeout stopped", ""},

	turnedDown: {"400, 404, 405, 413, 415, 422", workers.Refused, "http_N", ledger.ReachProvider},
	locked:     {"401, 403", workers.Refused, "http_N", ledger.ReachProvider},
	noCredit: {"402 with an error object; 400, 403 or 429 whose error names a spent quota or balance",
		workers.Refused, "no_credit", ledger.ReachProvider},
	blocked: {"400 or 403 whose error says that a filter stopped the prompt", workers.Refused, "refused", ledger.ReachRequest},
	busy: {"429; 503 with a `Retry-After` that can be read; 529 whose error is `overloaded_error`; `known_failures`",
		workers.Refused, "http_N", ledger.ReachTransient},
	otherStatus: {"every other status but 200 and 201: 202, redirects, 408, 409, other 5xx", workers.Ambiguous, "http_N", ""},

	brokenOff: {"200, and the body breaks off: shorter than announced, gzip cut short, reset, or the deadline",
		workers.Ambiguous, "truncated connection_lost no_answer timeout stopped", ""},
	cutShort: {"a stream that ends without its last event (`[DONE]`, `message_stop`)", workers.Ambiguous, "truncated", ""},
	tooLong:  {"200, and the body goes on beyond what is read", workers.Ambiguous, "result_too_large", ""},
	foreign:  {"200, and not this API's answer: HTML, other JSON", workers.Ambiguous, "foreign_answer", ""},
	unreadable: {"200, and text that is no valid Unicode, a member twice, or an encoding that was not asked for",
		workers.Executed, "invalid_result", ledger.ReachTransient},
	providerError: {"an error object under 200; an error event in the stream", workers.Executed, "provider_error", ledger.ReachTransient},

	refusal: {"a refusal: the member `refusal`, the stop reason `refusal`, the finish reason `content_filter`",
		workers.Executed, "refused", ledger.ReachRequest},
	cutOff: {"output cut off at a bound: `length`, `max_tokens`, `model_context_window_exceeded`; even if it parses",
		workers.Executed, "output_truncated", ledger.ReachProvider},
	otherEnd: {"any other end than `stop` or `end_turn`, or none", workers.Executed, "not_finished", ledger.ReachTransient},
	noOutput: {"no choices, null or empty content", workers.Executed, "no_output", ledger.ReachTransient},
	leaked:   {"the API key stands in the output", workers.Executed, "invalid_result", ledger.ReachProvider},
}

// fail makes the error of a sign; class "" means the table's.
func fail(s sign, class string, err error) *workers.CallError {
	m := table[s]
	if class == "" {
		class = m.class
	}
	return &workers.CallError{Known: m.known, Class: class, Reach: m.reach, Err: err}
}
