package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"jobledger/ledger"
)

// maxFaults bounds what is told of one document.
const maxFaults = 10

// document reads JSON with its numbers as they are written.
func document(text []byte) (any, error) { return jsonschema.UnmarshalJSON(bytes.NewReader(text)) }

// A validator is a compiled JSON Schema.
type validator struct{ schema *jsonschema.Schema }

// newValidator compiles the schema at a place of the Spec; nil for none.
func newValidator(at string, text json.RawMessage) (*validator, error) {
	if text == nil {
		return nil, nil
	}
	if _, err := ledger.Canonical(nil, text); err != nil {
		return nil, specError(at, "%v", err)
	}
	doc, err := document(text)
	if err != nil {
		return nil, specError(at, "%v", err)
	}
	if pointer, found := otherDraft(doc); found != "" {
		return nil, specError(at+pointer, "%q; expected %q, or no $schema at all: other drafts close no objects", found, draft2020)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(nothingElse{})
	if err := c.AddResource(schemaURL, closed(doc, true)); err != nil {
		return nil, specError(at, "it is no JSON Schema: %v", err)
	}
	s, err := c.Compile(schemaURL)
	if err != nil {
		pointer, problem := whereInSchema(err)
		return nil, specError(at+pointer, "it is no JSON Schema (2020-12): %s", problem)
	}
	return &validator{s}, nil
}

const draft2020 = "https://json-schema.org/draft/2020-12/schema"

// otherDraft finds a schema, or a part of one, that says it is of another draft.
// What closes objects here is unknown to older drafts, which would pass it over.
func otherDraft(doc any) (pointer, found string) {
	switch v := doc.(type) {
	case map[string]any:
		if s, ok := v["$schema"].(string); ok && strings.TrimSuffix(s, "#") != draft2020 {
			return "/$schema", s
		}
		for _, k := range sortedKeys(v) {
			if at, s := otherDraft(v[k]); s != "" {
				return jsonPointer([]string{k}) + at, s
			}
		}
	case []any:
		for i, e := range v {
			if at, s := otherDraft(e); s != "" {
				return fmt.Sprintf("/%d%s", i, at), s
			}
		}
	}
	return "", ""
}

// schemaURL is where a schema stands for itself. It has a path, so that what is
// relative to it is another document.
const (
	schemaBase = "contract:///"
	schemaURL  = schemaBase + "schema"
)

// nothingElse loads no other schema: a contract stands for itself.
type nothingElse struct{}

func (nothingElse) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is another document; a contract's schema may refer only to itself", url)
}

// whereInSchema returns the place of the first fault of a schema, and what it is.
func whereInSchema(err error) (pointer, problem string) {
	var invalid *jsonschema.SchemaValidationError
	var v *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &v) {
		leaf := firstLeaf(v)
		return jsonPointer(leaf.InstanceLocation), leaf.ErrorKind.LocalizedString(english())
	}
	return "", strings.NewReplacer(schemaURL, "", schemaBase, "").Replace(err.Error())
}

func firstLeaf(v *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(v.Causes) > 0 {
		v = v.Causes[0]
	}
	return v
}

func english() *message.Printer { return message.NewPrinter(language.English) }

// check returns what is wrong with a document.
func (v *validator) check(doc any) []Fault {
	if v == nil {
		return nil
	}
	err := v.schema.Validate(doc)
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		return leaves(invalid, english(), nil)
	}
	return []Fault{{Rule: "schema", Detail: err.Error()}}
}

// leaves lists what is wrong, each with its place, up to maxFaults.
func leaves(v *jsonschema.ValidationError, p *message.Printer, list []Fault) []Fault {
	if len(list) >= maxFaults {
		return list
	}
	if len(v.Causes) == 0 {
		detail := ledger.ValidText(v.ErrorKind.LocalizedString(p))
		if _, closed := v.ErrorKind.(*kind.FalseSchema); closed {
			detail = "it is not declared by the schema"
		}
		return append(list, Fault{Rule: "schema", Pointer: jsonPointer(v.InstanceLocation), Detail: detail})
	}
	for _, cause := range v.Causes {
		list = leaves(cause, p, list)
	}
	return list
}

func jsonPointer(path []string) string {
	var b strings.Builder
	for _, token := range path {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return b.String()
}

// Where a schema holds schemas, by how they apply. Those of inPlace describe the
// same value as the schema that they stand in; those of below describe parts of
// it; what is in neither (not, if, contains, propertyNames) is a question and
// closes nothing.
var (
	inPlaceOne  = []string{"then", "else"}
	inPlaceList = []string{"allOf", "anyOf", "oneOf"}
	inPlaceMap  = []string{"dependentSchemas", "dependencies", "$defs", "definitions"}
	belowOne    = []string{"items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"}
	belowList   = []string{"prefixItems"}
	belowMap    = []string{"properties", "patternProperties"}
)

// closed returns a schema that allows no members but the declared ones where it
// does not say otherwise. A schema that describes a part of the document is
// closed by unevaluatedProperties, which sees what allOf, $ref and the like
// declare; those themselves stay open, or they would forbid each other's members.
func closed(schema any, outermost bool) any {
	s, ok := schema.(map[string]any)
	if !ok {
		return schema // true or false
	}
	out := make(map[string]any, len(s)+1)
	for k, v := range s {
		out[k] = v
	}
	walkOne(out, inPlaceOne, false)
	walkOne(out, belowOne, true)
	walkList(out, inPlaceList, false)
	walkList(out, belowList, true)
	walkMap(out, inPlaceMap, false)
	walkMap(out, belowMap, true)
	_, additional := s["additionalProperties"]
	_, unevaluated := s["unevaluatedProperties"]
	if outermost && !additional && !unevaluated {
		out["unevaluatedProperties"] = false
	}
	return out
}

func walkOne(s map[string]any, names []string, outermost bool) {
	for _, name := range names {
		if v, ok := s[name]; ok {
			s[name] = closed(v, outermost)
		}
	}
}

func walkList(s map[string]any, names []string, outermost bool) {
	for _, name := range names {
		if list, ok := s[name].([]any); ok {
			s[name] = closedList(list, outermost)
		}
	}
}

func closedList(list []any, outermost bool) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = closed(v, outermost)
	}
	return out
}

func walkMap(s map[string]any, names []string, outermost bool) {
	for _, name := range names {
		if m, ok := s[name].(map[string]any); ok {
			out := make(map[string]any, len(m))
			for k, v := range m {
				out[k] = closed(v, outermost)
			}
			s[name] = out
		}
	}
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
