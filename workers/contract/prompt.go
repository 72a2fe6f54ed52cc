package contract

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/template"
)

// A Rendered is a prompt for one input.
type Rendered struct {
	System, User string
}

// prompt is a compiled Prompt.
type prompt struct{ system, user *template.Template }

func newPrompt(p *Prompt) (*prompt, error) {
	if p.User == "" {
		return nil, specError("/prompt/user", "it is missing; the user's part asks for the work")
	}
	for name, n := range map[string]int{"max_input_tokens": p.MaxInputTokens, "max_output_tokens": p.MaxOutputTokens} {
		if n < 0 {
			return nil, specError("/prompt/"+name, "%d; expected 0 or more", n)
		}
	}
	if t := p.Temperature; t != nil && (*t < 0 || *t > 2) {
		return nil, specError("/prompt/temperature", "%v; expected 0 to 2", *t)
	}
	system, err := parseTemplate("system", p.System)
	if err != nil {
		return nil, err
	}
	user, err := parseTemplate("user", p.User)
	if err != nil {
		return nil, err
	}
	return &prompt{system, user}, nil
}

func parseTemplate(name, text string) (*template.Template, error) {
	t, err := template.New(name).Option("missingkey=error").Funcs(template.FuncMap{"json": asJSON}).Parse(text)
	if err != nil {
		return nil, specError("/prompt/"+name, "it is no template: %v", err)
	}
	return t, nil
}

func asJSON(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// Render makes the prompt for an input. It fails if the contract has none, or if
// a template asks for what the input does not have.
func (c *Contract) Render(input []byte) (Rendered, error) {
	if c.prompt == nil {
		return Rendered{}, fmt.Errorf("the contract has no prompt; a model provider needs one")
	}
	doc, err := document(input)
	if err != nil {
		return Rendered{}, fmt.Errorf("the input: %w", err)
	}
	return c.prompt.render(doc)
}

func (p *prompt) render(doc any) (Rendered, error) {
	var system, user strings.Builder
	if err := p.system.Execute(&system, doc); err != nil {
		return Rendered{}, fmt.Errorf("the prompt's system part: %w", err)
	}
	if err := p.user.Execute(&user, doc); err != nil {
		return Rendered{}, fmt.Errorf("the prompt's user part: %w", err)
	}
	return Rendered{system.String(), user.String()}, nil
}

// Lost returns the parts of an input that do not reach its prompt as they are, as
// JSON Pointers: texts, numbers and truth values. A part is lost if the prompt
// does not hold it, or stays the same when it is changed. A template that leaves
// out or changes a part of the input asks for other work than was submitted.
func (c *Contract) Lost(input []byte) ([]string, error) {
	before, err := c.Render(input)
	if err != nil {
		return nil, err
	}
	doc, err := document(input)
	if err != nil {
		return nil, fmt.Errorf("the input: %w", err)
	}
	var lost []string
	eachLeaf("", doc, func(v any) { doc = v }, func(pointer string, v any, set func(any)) {
		set(another(v))
		after, err := c.prompt.render(doc)
		set(v)
		// A template that fails on another value has looked at it.
		if !before.holds(v) || err == nil && after == before {
			lost = append(lost, pointer)
		}
	})
	return lost, nil
}

// another returns another value of the same type.
func another(v any) any {
	switch v := v.(type) {
	case string:
		return v + "\u2021another"
	case bool:
		return !v
	}
	if n := json.Number("918273645"); v != n {
		return n
	}
	return json.Number("918273644")
}

// holds reports whether a part of the prompt has the value, as it is or as JSON.
// A truth value may be told in any words.
func (r Rendered) holds(v any) bool {
	texts := []string{fmt.Sprint(v)}
	switch v := v.(type) {
	case bool:
		return true
	case string:
		if quoted, err := asJSON(v); err == nil {
			texts = []string{v, quoted[1 : len(quoted)-1]}
		}
	}
	for _, text := range texts {
		if strings.Contains(r.User, text) || strings.Contains(r.System, text) {
			return true
		}
	}
	return false
}

// eachLeaf visits the texts, numbers and truth values of a document, each with
// what puts another value in its place, in an order that is always the same.
func eachLeaf(at string, v any, set func(any), visit func(pointer string, v any, set func(any))) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			eachLeaf(at+jsonPointer([]string{k}), v[k], func(other any) { v[k] = other }, visit)
		}
	case []any:
		for i, e := range v {
			eachLeaf(fmt.Sprintf("%s/%d", at, i), e, func(other any) { v[i] = other }, visit)
		}
	case nil:
	default:
		visit(at, v, set)
	}
}

// ResultSchema returns the schema for the result as a provider is to be told it:
// closed at every level by additionalProperties, which is what providers know.
// nil: any result.
func (c *Contract) ResultSchema() json.RawMessage {
	if c.spec.Result == nil {
		return nil
	}
	doc, err := document(c.spec.Result)
	if err != nil {
		panic("contract: a schema that was compiled cannot be read: " + err.Error())
	}
	text, err := json.Marshal(told(doc))
	if err != nil {
		panic("contract: a schema cannot be written: " + err.Error())
	}
	return text
}
