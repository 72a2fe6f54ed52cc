package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"jobledger/workers/contract"
)

// LoadContract reads and compiles the contract file at path. Its members are
// those of [contract.Spec]; input and result are JSON Schemas, written as YAML
// or named as the path of a file of their own, which is taken from the folder of
// the contract's.
//
// What is wrong with the file is returned at once as joined [Fault] values; what
// is wrong with what it says (a schema, an expression, a template, a case that
// breaks its own contract), the first of it only.
func LoadContract(path string) (*contract.Contract, error) {
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the contract file %s is not there: %w", path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a contract: %w", err)
	}
	return decodeContract(path, data)
}

func decodeContract(path string, data []byte) (*contract.Contract, error) {
	doc := &document{file: path, levels: maxContractLevels}
	root, err := doc.parse(data)
	if err != nil {
		return nil, err
	}
	r := contractReader{places: map[string]node{"": root}}
	r.read(root)
	if err := doc.err(); err != nil {
		return nil, err
	}
	c, err := contract.New(r.spec)
	var wrong *contract.SpecError
	if errors.As(err, &wrong) {
		return nil, r.place(wrong)
	}
	return c, err
}

// A contractReader makes a Spec of a document, and remembers where its parts
// stand.
type contractReader struct {
	spec   contract.Spec
	places map[string]node // by JSON Pointer into the Spec
}

// place makes a fault of what is wrong with the Spec, at the nearest place that
// stands in a file.
func (r *contractReader) place(e *contract.SpecError) *Fault {
	for at := e.Pointer; ; at = at[:strings.LastIndexByte(at, '/')] {
		n, ok := r.places[at]
		if !ok {
			continue // "" is there
		}
		f := &Fault{File: n.doc.file, Line: n.line, Column: n.column, Path: n.path, Found: e.Problem}
		if rest := e.Pointer[len(at):]; rest != "" {
			f.Found = strings.TrimPrefix(rest, "/") + ": " + f.Found
		}
		return f
	}
}

func (r *contractReader) read(root node) {
	const expected = "a mapping with input, result, assertions, limits, prompt and cases"
	if root.empty() {
		root.reject("nothing", expected)
		return
	}
	o, ok := root.object(expected)
	if !ok {
		return
	}
	set(o, "input", &r.spec.Input, r.schema("/input"))
	set(o, "result", &r.spec.Result, r.schema("/result"))
	r.list(o, "assertions", "a list of assertions", r.assertion)
	section(o, "limits", func(o *object) {
		r.note("/limits", o.node)
		r.member(o, "/limits", "input_bytes", func() { set(o, "input_bytes", &r.spec.Limits.InputBytes, count) })
		r.member(o, "/limits", "result_bytes", func() { set(o, "result_bytes", &r.spec.Limits.ResultBytes, count) })
	})
	section(o, "prompt", r.prompt)
	r.list(o, "cases", "a list of cases", r.example)
	o.finish()
}

func (r *contractReader) note(pointer string, n node) { r.places[pointer] = n }

// member reads a member of an object and notes its place.
func (r *contractReader) member(o *object, at, name string, read func()) {
	if n, ok := o.members[name]; ok {
		r.note(at+"/"+name, n)
	}
	read()
}

// list reads a member that is a list of mappings.
func (r *contractReader) list(o *object, name, expected string, read func(at string, o *object)) {
	n, ok := o.member(name)
	if !ok {
		return
	}
	r.note("/"+name, n)
	items, ok := n.items(expected)
	if !ok {
		return
	}
	for i, item := range items {
		at := "/" + name + "/" + strconv.Itoa(i)
		r.note(at, item)
		if inner, ok := item.object("a mapping"); ok {
			read(at, inner)
			inner.finish()
		}
	}
}

func (r *contractReader) assertion(at string, o *object) {
	var a contract.Assertion
	r.member(o, at, "name", func() { need(o, "name", &a.Name, "a name", filledText) })
	r.member(o, at, "expr", func() { need(o, "expr", &a.Expr, "a CEL expression", argument) })
	r.member(o, at, "message", func() { set(o, "message", &a.Message, text) })
	r.spec.Assertions = append(r.spec.Assertions, a)
}

func (r *contractReader) prompt(o *object) {
	const at = "/prompt"
	p := &contract.Prompt{}
	r.note(at, o.node)
	r.member(o, at, "system", func() { set(o, "system", &p.System, argument) })
	r.member(o, at, "user", func() { need(o, "user", &p.User, "a template", argument) })
	r.member(o, at, "temperature", func() {
		if o.has("temperature") {
			p.Temperature = new(float64)
		}
		set(o, "temperature", p.Temperature, decimal)
	})
	r.member(o, at, "max_input_tokens", func() { set(o, "max_input_tokens", &p.MaxInputTokens, count) })
	r.member(o, at, "max_output_tokens", func() { set(o, "max_output_tokens", &p.MaxOutputTokens, count) })
	r.spec.Prompt = p
}

func (r *contractReader) example(at string, o *object) {
	var c contract.Case
	r.member(o, at, "name", func() { need(o, "name", &c.Name, "a name", filledText) })
	need(o, "input", &c.Input, "an input", func(n node) (json.RawMessage, bool) { return r.value(at+"/input", n) })
	r.member(o, at, "expect", func() { set(o, "expect", &c.Expect, r.expressions(at+"/expect")) })
	r.member(o, at, "instructions", func() { set(o, "instructions", &c.Instructions, boolean) })
	r.spec.Cases = append(r.spec.Cases, c)
}

func (r *contractReader) expressions(at string) reader[[]string] {
	return func(n node) ([]string, bool) {
		items, ok := n.items("a list of CEL expressions")
		if !ok {
			return nil, false
		}
		list := make([]string, 0, len(items))
		for i, item := range items {
			r.note(at+"/"+strconv.Itoa(i), item)
			expr, good := argument(item)
			ok = ok && good
			list = append(list, expr)
		}
		return list, ok
	}
}

// schema reads a JSON Schema, or the path of a file that holds one.
func (r *contractReader) schema(at string) reader[json.RawMessage] {
	return func(n node) (json.RawMessage, bool) {
		const expected = "a JSON Schema, or the path of a file that holds one"
		if n.empty() {
			n.reject("nothing", expected)
			return nil, false
		}
		path, named := rawText(n)
		if !named {
			return r.value(at, n)
		}
		if path == "" {
			n.reject("an empty text", expected)
			return nil, false
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(n.doc.file), path)
		}
		return r.schemaFile(at, path, n)
	}
}

// schemaFile reads a schema from a file of its own. JSON is YAML, so that its
// faults have their places, too.
func (r *contractReader) schemaFile(at, path string, n node) (json.RawMessage, bool) {
	data, err := readFile(path)
	if err != nil {
		n.reject("a file that cannot be read ("+clip(err.Error())+")", "the path of a JSON Schema")
		return nil, false
	}
	doc := &document{file: path, levels: maxContractLevels}
	root, err := doc.parse(data)
	var fault *Fault
	if errors.As(err, &fault) {
		n.doc.faults = append(n.doc.faults, fault)
		return nil, false
	}
	if err != nil {
		n.reject("a file that cannot be read", "JSON")
		return nil, false
	}
	value, ok := r.value(at, root)
	n.doc.faults = append(n.doc.faults, doc.faults...)
	return value, ok
}

// value reads a node as the JSON value that it writes down, and notes the places
// of its parts.
func (r *contractReader) value(at string, n node) (json.RawMessage, bool) {
	var b bytes.Buffer
	ok := r.writeJSON(&b, at, n)
	return b.Bytes(), ok
}

// jsonNumber is a number as JSON writes it. YAML's others (0x1f, 1_000, .5, .inf)
// are refused: what they mean depends on who reads them.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func (r *contractReader) writeJSON(b *bytes.Buffer, at string, n node) bool {
	r.note(at, n)
	switch v := n.val.(type) {
	case nil, *ast.NullNode:
		b.WriteString("null")
	case *ast.BoolNode:
		b.WriteString(strconv.FormatBool(v.Value))
	case *ast.IntegerNode, *ast.FloatNode:
		number := n.val.GetToken().Value
		if !jsonNumber.MatchString(number) {
			n.rejectValue("a number as JSON writes it")
			return false
		}
		b.WriteString(number)
	case *ast.SequenceNode:
		return r.writeList(b, at, n)
	case *ast.MappingNode, *ast.MappingValueNode:
		return r.writeObject(b, at, n)
	default:
		s, ok := rawText(n)
		if !ok {
			n.rejectValue("a value that JSON has")
			return false
		}
		// The library takes 1e3 for a text; without quotes it is none.
		if n.val.GetToken().Type == token.StringType && jsonNumber.MatchString(s) {
			b.WriteString(s)
			return true
		}
		writeText(b, s)
	}
	return true
}

func (r *contractReader) writeList(b *bytes.Buffer, at string, n node) bool {
	items, ok := n.items("a list")
	b.WriteByte('[')
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		good := r.writeJSON(b, at+"/"+strconv.Itoa(i), item)
		ok = ok && good
	}
	b.WriteByte(']')
	return ok
}

func (r *contractReader) writeObject(b *bytes.Buffer, at string, n node) bool {
	before := len(n.doc.faults) // of members that stand there twice
	o, ok := n.object("a mapping")
	ok = ok && len(n.doc.faults) == before
	b.WriteByte('{')
	first := true
	o.each(func(name string, member node) {
		if !first {
			b.WriteByte(',')
		}
		first = false
		writeText(b, name)
		b.WriteByte(':')
		good := r.writeJSON(b, at+"/"+pointerToken.Replace(name), member)
		ok = ok && good
	})
	b.WriteByte('}')
	return ok
}

// pointerToken escapes a name for a JSON Pointer.
var pointerToken = strings.NewReplacer("~", "~0", "/", "~1")

func writeText(b *bytes.Buffer, s string) {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic("config: a text has no JSON: " + err.Error())
	}
	b.Write(quoted)
}

// count reads a number of bytes or tokens; how large it may be the contract says.
func count(n node) (int, bool) { return integer(0, maxCount)(n) }

// decimal reads a number that need not be whole.
func decimal(n node) (float64, bool) {
	const expected = "a number"
	switch n.val.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		if number := n.val.GetToken().Value; jsonNumber.MatchString(number) {
			if f, err := strconv.ParseFloat(number, 64); err == nil {
				return f, true
			}
		}
	}
	n.rejectValue(expected)
	return 0, false
}

// Contracts reads the contracts of the configuration's kinds, by the names of the
// kinds; those without one are left out. Kinds that name the same file share a
// contract. It is an error if a kind names a model provider and its contract has
// no prompt.
func (c *Config) Contracts() (map[string]*contract.Contract, error) {
	contracts, byPath := map[string]*contract.Contract{}, map[string]*contract.Contract{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Kinds)) {
		path := c.Kinds[name].Contract
		if path == "" {
			continue
		}
		if _, read := byPath[path]; !read {
			loaded, err := LoadContract(path)
			if err != nil {
				errs = append(errs, fmt.Errorf("the contract of kind %s: %w", name, err))
			}
			byPath[path] = loaded
		}
		contracts[name] = byPath[path]
	}
	if err := errors.Join(errs...); err != nil {
		return contracts, err
	}
	return contracts, c.checkPrompts(contracts)
}
