package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// document is a file that is being read: it collects what is wrong with it.
type document struct {
	file string
	// secret keeps every value and every unknown name out of the messages.
	secret bool
	levels int // of nesting that are allowed; 0: maxNestingLevels
	faults []*Fault
}

// err returns everything that was found wrong, or nil.
func (d *document) err() error { return joinFaults(d.file, d.faults) }

// readFile reads a whole file of at most maxFileBytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	// Nothing was written, so closing cannot lose anything.
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, &Fault{
			File:     path,
			Found:    fmt.Sprintf("more than %d bytes", maxFileBytes),
			Expected: "a smaller file",
		}
	}
	return data, nil
}

// parse returns the root of the file's one YAML document. An empty file gives a
// root without a value.
func (d *document) parse(data []byte) (node, error) {
	root := node{doc: d, line: 1, column: 1}
	data = bytes.TrimPrefix(data, []byte("\uFEFF")) // editors on Windows write it
	if line := invalidUTF8Line(data); line > 0 {
		return root, &Fault{File: d.file, Line: line, Column: 1, Found: "bytes that are not UTF-8", Expected: "UTF-8 text"}
	}
	if lines := countLines(data); lines > maxFileLines {
		return root, &Fault{File: d.file, Found: fmt.Sprintf("%d lines", lines), Expected: fmt.Sprintf("at most %d", maxFileLines)}
	}
	file, err := d.parseYAML(string(data))
	if err != nil {
		return root, err
	}
	for i, doc := range file.Docs {
		if i > 0 && doc.Body != nil {
			line, column := position(doc.GetToken())
			return root, &Fault{File: d.file, Line: line, Column: column, Found: "a second YAML document", Expected: "one document in the file"}
		}
	}
	if len(file.Docs) > 0 && file.Docs[0].Body != nil {
		root.val = file.Docs[0].Body
	}
	return root, nil
}

// parseYAML is the border to the YAML library. Its scanner and parser are not
// written for hostile input, and a configuration error must be a message and not
// a stack trace: so a panic becomes an error here and nowhere else.
func (d *document) parseYAML(text string) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			file, err = nil, &Fault{File: d.file, Found: "text that the YAML parser cannot handle", Expected: "well-formed YAML"}
		}
	}()
	tokens := lexer.Tokenize(text)
	if fault := d.plain(tokens); fault != nil {
		return nil, fault
	}
	// Repeated members are found by object, which names both places.
	file, err = parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, d.syntaxFault(err)
	}
	return file, nil
}

// plain refuses the parts of YAML that a configuration does not need and that
// make it mean other than it reads: anchors, aliases, merges, tags, directives
// and complex keys. It also bounds the nesting, since the parser recurses and a
// Go program does not survive an exhausted stack.
func (d *document) plain(tokens token.Tokens) *Fault {
	const expected = "plain YAML: mappings, lists, texts, numbers, true and false"
	level, entryLine, entries, most := 0, 0, 0, cmp.Or(d.levels, maxNestingLevels)
	for _, tk := range tokens {
		found := ""
		switch tk.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			found = "an anchor, alias or merge"
		case token.TagType:
			found = "a tag"
		case token.DirectiveType:
			found = "a directive"
		case token.MappingKeyType:
			found = "a complex key (?)"
		case token.MappingStartType, token.SequenceStartType:
			level++
		case token.MappingEndType, token.SequenceEndType:
			level--
		case token.SequenceEntryType:
			if tk.Position.Line != entryLine {
				entryLine, entries = tk.Position.Line, 0
			}
			entries++
		}
		if level > most || entries > most {
			found = fmt.Sprintf("more than %d levels of nesting", most)
		}
		if found != "" {
			line, column := position(tk)
			return &Fault{File: d.file, Line: line, Column: column, Found: found, Expected: expected}
		}
	}
	return nil
}

// syntaxFault keeps the library's one-line message and its place and drops its
// excerpt of the source, which may quote what should not be in a log.
func (d *document) syntaxFault(err error) *Fault {
	fault := &Fault{File: d.file, Found: "malformed YAML", Expected: "well-formed YAML"}
	var located yaml.Error
	if !errors.As(err, &located) {
		return fault
	}
	fault.Line, fault.Column = position(located.GetToken())
	if !d.secret {
		message := strconv.Quote(clip(located.GetMessage())) // it may hold control characters
		fault.Found += " (" + message[1:len(message)-1] + ")"
	}
	return fault
}

// position is safe for the tokens that the parser makes up, which may be nil.
func position(tk *token.Token) (line, column int) {
	if tk == nil || tk.Position == nil {
		return 0, 0
	}
	return tk.Position.Line, tk.Position.Column
}

// countLines counts the line ends of all systems, and the last line.
func countLines(data []byte) int {
	return bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r")) - bytes.Count(data, []byte("\r\n")) + 1
}

// invalidUTF8Line returns the line (from 1) of the first byte that is not UTF-8,
// or 0.
func invalidUTF8Line(data []byte) int {
	if utf8.Valid(data) {
		return 0
	}
	line := 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			return line
		}
		if r == '\n' {
			line++
		}
		data = data[size:]
	}
	return 0
}
