package model

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"jobledger/ledger"
	"jobledger/workers"
	"jobledger/workers/contract"
)

// minSecretBytes is the shortest key that is looked for in texts. What is shorter
// is a placeholder, such as "none", which stands in many a text.
const minSecretBytes = 16

// Options configure a [Provider]. Model and Contracts are required.
type Options struct {
	// BaseURL is where the API is: http or https, without query; "" for the
	// vendor's own.
	BaseURL string
	// Model is the model's name, as the server calls it.
	Model string
	// APIKey is sent as the API wants it, and never logged or recorded; "" for
	// servers that need none.
	APIKey string
	// Stream asks for the answer as a stream of events.
	Stream bool
	// KnownFailures are statuses, from 300 to 599, that this server gives only
	// when nothing was done.
	KnownFailures []int
	// Contracts by kind; each with a prompt.
	Contracts map[string]*contract.Contract
	// TLS is for certificates beyond the system's; nil: the defaults.
	TLS *tls.Config
}

// A Provider carries out attempts by asking a model. It implements
// [workers.Provider]. Each call is one request on the wire.
type Provider struct {
	options Options
	sender  *workers.Sender
	api     api
	tasks   map[string]*task // by kind
}

// api is one of the two APIs.
type api interface {
	// ask has the SDK make the request, and returns the answer unread. on puts it
	// on the wire.
	ask(ctx context.Context, on *exchange, q question) (*http.Response, error)
	// events reads a stream until take reports that it has seen the last event or
	// fails. It returns take's error or that of reading.
	events(answer *http.Response, take func(kind string, data []byte) (last bool, err error)) error
	// document reads an answer that is one document.
	document(body []byte, r *reply) error
	// event reads one event of a stream.
	event(data []byte, r *reply) (last bool, err error)
	// tell returns a result's schema as the SDK takes it, and whether the API can
	// hold the model to it.
	tell(schema map[string]any) (told any, strict bool)
}

// A task is what is asked for one kind.
type task struct {
	contract *contract.Contract
	schema   any // as the SDK takes it; nil: none is told
	strict   bool
}

// A question is a prompt with all that governs the answer.
type question struct {
	*task
	kind         string
	system, user string
	stream       bool
}

func newProvider(o Options, vendorURL string, with func(Options) api) (*Provider, error) {
	if o.BaseURL == "" {
		o.BaseURL = vendorURL
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	p := &Provider{options: o, sender: workers.NewSender(o.TLS), api: with(o), tasks: map[string]*task{}}
	for _, kind := range slices.Sorted(maps.Keys(o.Contracts)) {
		t, err := newTask(p.api, o.Contracts[kind])
		if err != nil {
			return nil, fmt.Errorf("kind %s: %w", kind, err)
		}
		p.tasks[kind] = t
	}
	return p, nil
}

func (o *Options) check() error {
	u, err := url.Parse(o.BaseURL)
	switch {
	case err != nil:
		return errors.New("model: Options.BaseURL cannot be parsed; expected an http or https URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("model: Options.BaseURL is %q; expected an http or https URL with a host and without query or fragment", u.Redacted())
	case o.Model == "":
		return errors.New("model: Options.Model is empty; the name of a model is expected")
	case strings.ContainsFunc(o.APIKey, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return errors.New("model: Options.APIKey has white space or other characters that no key has (a line break at its end?)")
	}
	for _, status := range o.KnownFailures {
		if status < 300 || status > 599 {
			return fmt.Errorf("model: Options.KnownFailures has %d; expected statuses from 300 to 599", status)
		}
	}
	return nil
}

func newTask(a api, c *contract.Contract) (*task, error) {
	switch {
	case c == nil:
		return nil, errors.New("there is no contract; a model provider needs one, with a prompt")
	case c.Prompt() == nil:
		return nil, errors.New("the contract has no prompt; a model provider needs one (prompt: {system: …, user: …})")
	}
	t := &task{contract: c}
	schema, err := objectSchema(c.ResultSchema())
	if err != nil {
		return nil, err
	}
	if schema != nil {
		t.schema, t.strict = a.tell(schema)
	}
	return t, nil
}

// Close closes the idle connections. Calls may still be made.
func (p *Provider) Close() { p.sender.Close() }

// Call implements [workers.Provider]. What an ending means: [table].
func (p *Provider) Call(ctx context.Context, c workers.Call) (workers.Result, error) {
	t, ok := p.tasks[c.Kind]
	if !ok {
		return workers.Result{}, fail(noContract, "", fmt.Errorf("the worker has no contract for the kind %s, and so no prompt", c.Kind))
	}
	prompt, err := t.contract.Render(c.Input)
	if err != nil {
		return workers.Result{}, fail(noPrompt, "", err)
	}
	x := &exchange{p: p, call: c}
	answer, err := p.api.ask(ctx, x, question{task: t, kind: c.Kind, system: prompt.System, user: prompt.User, stream: p.options.Stream}) //nolint:bodyclose // x.close closes it
	defer x.close()
	var r reply
	failure := x.failure(err)
	if failure == nil {
		failure = p.read(answer, &r)
	}
	return p.conclude(x, &r, failure)
}

// conclude makes the result of what was said. The reference and the usage stand in
// it however the call ended.
func (p *Provider) conclude(x *exchange, r *reply, failure *workers.CallError) (workers.Result, error) {
	if failure == nil {
		failure = p.judge(r)
	}
	result := workers.Result{ProviderRef: p.clean(firstOf(x.ref, r.id)), Usage: p.usage(r)}
	if failure == nil {
		result.Body = []byte(r.text.String())
		return result, nil
	}
	result.Output = p.clean(r.said())
	if text := failure.Err.Error(); p.holdsKey(text) {
		failure.Err = errors.New(p.clean(text)) // what it wraps has the key, too
	}
	return result, failure
}

// judge says why an answer that came to its end is no result, or nil.
func (p *Provider) judge(r *reply) *workers.CallError {
	switch finish := strings.ToLower(r.finish); {
	case r.refusal.Len() > 0 || finish == "refusal" || finish == "content_filter":
		return fail(refusal, "", fmt.Errorf("the model refused (it ended with %s): %s", ledger.Quote(p.clean(r.finish)), p.excerpt(r.said())))
	case finish == "length" || finish == "max_tokens" || finish == "model_context_window_exceeded":
		return fail(cutOff, "", fmt.Errorf("the output was cut off: it ended with %s after %d bytes of text", finish, r.text.Len()))
	case r.parts == 0:
		return fail(noOutput, "", errors.New("the answer has no output"))
	case !endsWell(finish):
		return fail(otherEnd, "", fmt.Errorf("the output ended with %s; expected stop or end_turn", ledger.Quote(p.clean(r.finish))))
	case strings.TrimSpace(r.text.String()) == "":
		return fail(noOutput, "", errors.New("the answer has no text"))
	case p.holdsKey(r.text.String()):
		return fail(leaked, "", errors.New("the provider's API key stands in the output"))
	}
	return nil
}

// holdsKey reports whether the API key stands in a text.
func (p *Provider) holdsKey(text string) bool {
	key := p.options.APIKey
	return len(key) >= minSecretBytes && (strings.Contains(text, key) || strings.Contains(unescaped(text), key))
}

// jsonEscape is how JSON may spell a character.
var jsonEscape = regexp.MustCompile(`\\(?:u([0-9a-fA-F]{4})|(.))`)

// unescaped returns a text with the escapes of JSON and of URLs taken out, to
// look for what they may hide.
func unescaped(text string) string {
	if strings.ContainsRune(text, '\\') {
		text = jsonEscape.ReplaceAllStringFunc(text, func(escape string) string {
			if code, err := strconv.ParseUint(escape[2:], 16, 32); err == nil && escape[1] == 'u' {
				return string(rune(code))
			}
			return escape[1:]
		})
	}
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

// clean takes the API key out of a text.
func (p *Provider) clean(text string) string {
	if !p.holdsKey(text) {
		return text
	}
	if !strings.Contains(text, p.options.APIKey) {
		text = unescaped(text)
	}
	return strings.ReplaceAll(text, p.options.APIKey, "[API key]")
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
