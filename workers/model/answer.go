package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"jobledger/ledger"
	"jobledger/workers"
)

const (
	// answerBytes bounds an answer that is one document: a result with every
	// character escaped, and what stands around it.
	answerBytes = 8 << 20
	// streamBytes bounds a stream, in which every few characters have an event.
	streamBytes = 64 << 20
	// lineBytes bounds a line of a stream.
	lineBytes = 4 << 20
	// nameBytes bounds a name that is recorded.
	nameBytes = 256
)

// A reply is what a model said, or as much of it as came.
type reply struct {
	id, model string
	text      strings.Builder
	refusal   strings.Builder // where the API tells it apart
	finish    string          // why it ended, as the API spells it; "" unknown
	parts     int             // of the answer: choices, content blocks
	input     *int64          // tokens; nil: not told
	output    *int64
}

// called takes the answer's own name and the model's on.
func (r *reply) called(id, model string) {
	if id != "" {
		r.id = id
	}
	if model != "" {
		r.model = model
	}
}

// ends takes on why the answer ended. Once it has ended badly it does not end
// well any more, whatever a later event says.
func (r *reply) ends(why string) {
	if why != "" && (r.finish == "" || endsWell(r.finish)) {
		r.finish = why
	}
}

// callsTools takes on that the answer asks for the use of tools: it is none yet,
// whatever it says of its end.
func (r *reply) callsTools(n int) {
	if n > 0 {
		r.ends("tool_calls")
	}
}

// endsWell reports whether an answer that ends so is whole.
func endsWell(finish string) bool {
	finish = strings.ToLower(finish)
	return finish == "stop" || finish == "end_turn"
}

// content takes on what an API calls content: text, or a list of parts, of which
// those with text count; null is nothing.
func (r *reply) content(raw string) error {
	switch raw {
	case "", "null":
		return nil
	}
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal([]byte(raw), &text); err != nil {
			return err
		}
		r.text.WriteString(text)
		return nil
	}
	var parts []struct{ Type, Text, Refusal string }
	if err := json.Unmarshal([]byte(raw), &parts); err != nil {
		return fmt.Errorf("its content is neither text nor a list of parts: %w", err)
	}
	for _, part := range parts {
		if part.Type == "text" || part.Type == "output_text" {
			r.text.WriteString(part.Text)
		}
		r.refusal.WriteString(part.Refusal)
	}
	return nil
}

// said is all the text, for people.
func (r *reply) said() string {
	return strings.TrimSpace(r.refusal.String() + "\n" + r.text.String())
}

// usage is what the call cost, as JSON; nil: not told.
func (p *Provider) usage(r *reply) []byte {
	if r.input == nil && r.output == nil && r.model == "" {
		return nil
	}
	name := strings.ReplaceAll(p.clean(r.model), "\x00", "")
	name = name[:min(len(name), nameBytes)]
	usage, err := json.Marshal(struct {
		Input  *int64 `json:"input_tokens,omitempty"`
		Output *int64 `json:"output_tokens,omitempty"`
		Model  string `json:"model,omitempty"`
	}{r.input, r.output, name})
	if err != nil {
		panic("model: numbers and a text cannot be written: " + err.Error())
	}
	return usage
}

// read reads an answer to its end.
func (p *Provider) read(answer *http.Response, r *reply) *workers.CallError {
	if !p.options.Stream || isDocument(answer) {
		return p.readDocument(answer, r)
	}
	return p.readStream(answer, r)
}

func (p *Provider) readDocument(answer *http.Response, r *reply) *workers.CallError {
	body, err := workers.ReadAnswer(answer, answerBytes)
	if err != nil {
		return bodyFailure(err)
	}
	if !json.Valid(body) {
		return fail(foreign, "", fmt.Errorf("HTTP %s, and no JSON: %s", answer.Status, p.excerpt(string(body))))
	}
	if err := p.check(body); err != nil {
		return asFailure(err)
	}
	if err := p.api.document(body, r); err != nil {
		return fail(foreign, "", fmt.Errorf("HTTP %s, and not the API's answer (%w): %s", answer.Status, err, p.excerpt(string(body))))
	}
	return nil
}

// bodyFailure puts an error of [workers.ReadAnswer] under its sign.
func bodyFailure(err error) *workers.CallError {
	var e *workers.CallError
	switch {
	case !errors.As(err, &e):
		return fail(brokenOff, workers.BodyClass(err), err)
	case e.Known == workers.Executed:
		return fail(unreadable, "", e.Err)
	case e.Class == table[tooLong].class:
		return fail(tooLong, "", e.Err)
	}
	return fail(brokenOff, e.Class, e.Err)
}

// check says why a document or an event is none to go on with: it tells of an
// error, or it could be read in two ways.
func (p *Provider) check(data []byte) error {
	if said, ok := readAPIError(data); ok {
		e := fail(providerError, "", fmt.Errorf("the provider reports an error: %s", p.excerpt(said.String())))
		if said.is(creditErrors) {
			e.Reach = table[noCredit].reach
		}
		return e
	}
	if err := ledger.CheckJSON(data); err != nil {
		return fail(unreadable, "", fmt.Errorf("the answer is not accepted: %w", err))
	}
	return nil
}

// asFailure returns the *CallError that err is or wraps.
func asFailure(err error) *workers.CallError {
	var e *workers.CallError
	if errors.As(err, &e) {
		return e
	}
	return fail(brokenOff, workers.BodyClass(err), fmt.Errorf("the stream broke off: %w", err))
}

func (p *Provider) readStream(answer *http.Response, r *reply) *workers.CallError {
	reader, err := workers.AnswerReader(answer)
	if err != nil {
		return bodyFailure(err)
	}
	events := 0
	body := &boundedBody{Reader: reader, Closer: answer.Body}
	answer.Body = body
	last := false
	err = p.api.events(answer, func(kind string, data []byte) (bool, error) {
		events++
		data = bytes.TrimSpace(data)
		var err error
		last, err = p.take(kind, data, r)
		return last, err
	})
	switch {
	case err != nil:
		return asFailure(err)
	case last:
		return nil
	case events == 0 && body.total > 0:
		return fail(foreign, "", fmt.Errorf("HTTP %s, and no event of a stream", answer.Status))
	}
	return fail(cutShort, "", fmt.Errorf("the stream ended without its last event, after %d events and %d bytes of text", events, r.text.Len()))
}

// take takes an event on.
func (p *Provider) take(kind string, data []byte, r *reply) (last bool, err error) {
	if bytes.HasPrefix(data, []byte("[DONE]")) {
		return p.api.event(nil, r)
	}
	if !json.Valid(data) {
		return false, fail(foreign, "", fmt.Errorf("an event %s that is no JSON: %s", ledger.Quote(p.clean(kind)), p.excerpt(string(data))))
	}
	if err := p.check(data); err != nil {
		return false, err
	}
	if last, err = p.api.event(data, r); err != nil {
		return false, fail(foreign, "", fmt.Errorf("an event %s that is not the API's: %w", ledger.Quote(p.clean(kind)), err))
	}
	if r.text.Len() > ledger.MaxResultBytes {
		return false, fail(tooLong, "", fmt.Errorf("the text goes on beyond the %d bytes that a result may have", ledger.MaxResultBytes))
	}
	return last, nil
}

// A boundedBody ends a stream that does not end, or has a line that does not.
type boundedBody struct {
	io.Reader
	io.Closer
	total, line int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.total += n
	if i := bytes.LastIndexByte(p[:n], '\n'); i >= 0 {
		b.line = n - i - 1
	} else {
		b.line += n
	}
	if b.total > streamBytes || b.line > lineBytes {
		return 0, fail(tooLong, "", fmt.Errorf("the stream goes on beyond %d bytes, or a line of it beyond %d", streamBytes, lineBytes))
	}
	return n, err
}
