package model

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv/rawhttp"
	"jobledger/ledger"
	"jobledger/workers"
	"jobledger/workers/contract"
)

const (
	ample   = 30 * time.Second // far beyond what a test needs
	testKey = "sk-test-0123456789abcdef"
)

// The two APIs, with and without streams: what is true of one is to be true of all.
type flavour struct {
	api    string // openai or anthropic
	stream bool
}

var flavours = []flavour{{"openai", false}, {"openai", true}, {"anthropic", false}, {"anthropic", true}}

func (f flavour) String() string {
	if f.stream {
		return f.api + " stream"
	}
	return f.api
}

// ref is the header by which the API names a request.
func (f flavour) ref() string {
	if f.api == "openai" {
		return "X-Request-Id: req-1\r\n"
	}
	return "Request-Id: req-1\r\n"
}

func testContract(t testing.TB) *contract.Contract {
	t.Helper()
	temperature := 0.25
	c, err := contract.New(contract.Spec{
		Input:  json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`),
		Result: json.RawMessage(`{"type":"object","properties":{"summary":{"type":"string"}},"required":["summary"]}`),
		Prompt: &contract.Prompt{System: "Summarise.", User: "Text: {{.text}}", Temperature: &temperature, MaxOutputTokens: 77},
		Cases:  []contract.Case{{Name: "one", Input: json.RawMessage(`{"text":"x"}`), Instructions: true}},
	})
	require.NoError(t, err)
	return c
}

func (f flavour) provider(t testing.TB, url string, change ...func(*Options)) *Provider {
	t.Helper()
	o := Options{BaseURL: url, Model: "m-1", APIKey: testKey, Stream: f.stream,
		Contracts: map[string]*contract.Contract{"summarize": testContract(t)}, KnownFailures: []int{599}}
	for _, c := range change {
		c(&o)
	}
	make := NewOpenAI
	if f.api == "anthropic" {
		make = NewAnthropic
	}
	p, err := make(o)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func testCall() workers.Call {
	id := uuid.MustParse("932e6392-de75-5f3a-ac8f-94870d967406")
	return workers.Call{JobID: id, Attempt: 2, Kind: "summarize", Input: []byte(`{"text":"hello <b>"}`), IdempotencyKey: id.String(),
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
}

func callContext(t testing.TB, timeout time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// An ending is what the ledger records of a call, but for the message.
type ending struct {
	outcome ledger.Outcome
	failure ledger.Failure
}

func endingOf(t testing.TB, err error) ending {
	t.Helper()
	outcome, failure := workers.Classify(err)
	if err != nil {
		require.NotEmpty(t, failure.Message)
		require.NotContains(t, failure.Message, testKey)
	}
	failure.Message = ""
	return ending{outcome, failure}
}

// by is the ending that the table gives a sign; class "" means the table's.
func by(s sign, class string, wait ...time.Duration) ending {
	e := fail(s, class, fmt.Errorf("x"))
	if len(wait) > 0 {
		e.RetryAfter = wait[0]
	}
	outcome, failure := workers.Classify(e)
	failure.Message = ""
	return ending{outcome, failure}
}

// whole is an answer with a length.
func whole(status int, header, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\n%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", status, header, len(body), body)
}

func jsonHeader(f flavour) string { return f.ref() + "Content-Type: application/json\r\n" }

// said is what a model says, and how it ends, as the scripted server has it.
type said struct {
	text    string
	finish  string // as the API spells it; "" for null
	refusal string
	null    bool // no text: null
	empty   bool // no choices, no content
	noUsage bool
	cut     int  // events that are left out at a stream's end
	extra   bool // members that no API has
}

// answer is the whole HTTP answer in the API's wire format.
func (f flavour) answer(s said) string {
	if !f.stream {
		return whole(200, jsonHeader(f), f.document(s))
	}
	events := f.events(s)
	body := ""
	for _, e := range events[:len(events)-s.cut] {
		body += e
	}
	return "HTTP/1.1 200 OK\r\n" + f.ref() + "Content-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n" +
		fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
}

func quote(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func orNull(text string) string {
	if text == "" {
		return "null"
	}
	return quote(text)
}

func (s said) content() string {
	if s.null {
		return "null"
	}
	return quote(s.text)
}

func (f flavour) document(s said) string {
	extra := ""
	if s.extra {
		extra = `,"x_new":{"a":[1,null]},"error":null`
	}
	if f.api == "openai" {
		choices := fmt.Sprintf(`{"index":0,"message":{"role":"assistant","content":%s,"refusal":%s},"logprobs":null,"finish_reason":%s}`,
			s.content(), orNull(s.refusal), orNull(s.finish))
		if s.empty {
			choices = ""
		}
		usage := `,"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}`
		if s.noUsage {
			usage = ""
		}
		return `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m-1-0611","choices":[` + choices + `]` + usage + extra + `}`
	}
	blocks := `{"type":"text","text":` + quote(s.text) + `}`
	if s.null || s.empty {
		blocks = ""
	}
	usage := `,"usage":{"input_tokens":11,"output_tokens":7}`
	if s.noUsage {
		usage = ""
	}
	return fmt.Sprintf(`{"id":"msg_1","type":"message","role":"assistant","model":"m-1-0611","content":[%s],"stop_reason":%s,"stop_sequence":null%s%s}`,
		blocks, orNull(s.finish), usage, extra)
}

func (f flavour) events(s said) []string {
	half := len(s.text) / 2
	extra := ""
	if s.extra {
		extra = `,"x_new":{"a":[1,null]},"error":null`
	}
	if f.api == "openai" {
		chunk := func(choice, usage string) string {
			return `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m-1-0611","choices":[` + choice + `]` + usage + extra + "}\n\n"
		}
		var list []string
		if !s.empty {
			list = append(list, chunk(`{"index":0,"delta":{"role":"assistant","content":null,"refusal":null},"finish_reason":null}`, ""))
			if !s.null {
				for _, part := range []string{s.text[:half], s.text[half:]} {
					list = append(list, chunk(`{"index":0,"delta":{"content":`+quote(part)+`},"finish_reason":null}`, ""))
				}
			}
			if s.refusal != "" {
				list = append(list, chunk(`{"index":0,"delta":{"refusal":`+quote(s.refusal)+`},"finish_reason":null}`, ""))
			}
			list = append(list, chunk(`{"index":0,"delta":{},"finish_reason":`+orNull(s.finish)+`}`, ""))
		}
		if !s.noUsage {
			list = append(list, chunk("", `,"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}`))
		}
		return append(list, "data: [DONE]\n\n")
	}
	event := func(kind, members string) string {
		return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\"" + members + extra + "}\n\n"
	}
	startUsage, endUsage := `,"usage":{"input_tokens":11,"output_tokens":1}`, `,"usage":{"output_tokens":7}`
	if s.noUsage {
		startUsage, endUsage = "", ""
	}
	list := []string{event("message_start", `,"message":{"id":"msg_1","type":"message","role":"assistant","model":"m-1-0611","content":[],"stop_reason":null`+startUsage+`}`),
		event("ping", "")}
	if !s.empty && !s.null {
		list = append(list, event("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`))
		for _, part := range []string{s.text[:half], s.text[half:]} {
			list = append(list, event("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":`+quote(part)+`}`))
		}
		list = append(list, event("content_block_stop", `,"index":0`))
	}
	return append(list, event("message_delta", `,"delta":{"stop_reason":`+orNull(s.finish)+`,"stop_sequence":null}`+endUsage), event("message_stop", ""))
}

// finish is the API's word for a normal end.
func (f flavour) finish() string {
	if f.api == "openai" {
		return "stop"
	}
	return "end_turn"
}

// always starts a server that gives every request the same answer.
func always(t testing.TB, answer string) *rawhttp.Server {
	t.Helper()
	return rawhttp.Serve(t, rawhttp.Always(answer))
}

// eachFlavour runs a test on all of them.
func eachFlavour(t *testing.T, run func(t *testing.T, f flavour)) {
	t.Helper()
	for _, f := range flavours {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			run(t, f)
		})
	}
}
