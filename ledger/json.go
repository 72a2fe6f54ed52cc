package ledger

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A JSONError says where and why a document is not accepted. Pointer is the
// JSON Pointer (RFC 6901) of the offending value, "" for the whole document;
// Offset is a byte offset into the document.
type JSONError struct {
	Pointer string
	Offset  int
	Problem string
}

func (e *JSONError) Error() string {
	at := e.Pointer
	if at == "" {
		at = "the document"
	}
	return fmt.Sprintf("%s (byte %d): %s", at, e.Offset, e.Problem)
}

// Canonical appends the canonical form of the one JSON value in src to dst. Two
// documents mean the same exactly if their canonical forms are equal:
// members are ordered by their bytes, white space is dropped, escapes are
// normalised, and numbers are reduced to digits without leading or trailing
// zeros and a power of ten. Text is not normalised (no NFC).
//
// It is also the check of what the ledger accepts, stricter than RFC 8259:
// one value, valid UTF-8 without lone surrogates, no member named twice, no
// U+0000, no byte order mark, nesting, exponents and expanded size within the
// limits. The error is a *JSONError.
func Canonical(dst, src []byte) ([]byte, error) {
	s := scanner{src: src}
	if bytes.HasPrefix(src, []byte("\xef\xbb\xbf")) {
		return dst, s.fail("a byte order mark; JSON starts without one")
	}
	dst, err := s.value(dst, 0)
	if err != nil {
		return dst, err
	}
	return dst, s.end()
}

// CheckJSON reports why src is not an accepted document, or nil.
func CheckJSON(src []byte) error {
	_, err := Canonical(make([]byte, 0, len(src)), src)
	return err
}

// scanner reads one document. It is a value on the stack of its user: no
// scanner outlives a call of this package.
type scanner struct {
	src     []byte
	pos     int
	surplus int // bytes by which written-out numbers exceed their literals
}

// fail makes the error for the value at the current position.
func (s *scanner) fail(format string, args ...any) error {
	return &JSONError{Offset: s.pos, Problem: fmt.Sprintf(format, args...)}
}

// within puts a member's name or an element's index in front of the pointer of
// an error that came from inside it.
func within(token string, err error) error {
	if e, ok := err.(*JSONError); ok {
		token = strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
		e.Pointer = "/" + token + e.Pointer
	}
	return err
}

func (s *scanner) space() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// end checks that nothing but white space follows.
func (s *scanner) end() error {
	s.space()
	if s.pos < len(s.src) {
		return s.fail("%s after the value; expected the end", s.found())
	}
	return nil
}

// found describes what stands at the current position.
func (s *scanner) found() string {
	if s.pos >= len(s.src) {
		return "the end of the document"
	}
	r, n := utf8.DecodeRune(s.src[s.pos:])
	if r == utf8.RuneError && n <= 1 {
		return fmt.Sprintf("the byte 0x%02x", s.src[s.pos])
	}
	return strconv.QuoteRune(r)
}

// value appends the canonical form of the value at the current position.
func (s *scanner) value(dst []byte, depth int) ([]byte, error) {
	s.space()
	if s.pos >= len(s.src) {
		return dst, s.fail("the document ends where a value is expected")
	}
	switch c := s.src[s.pos]; {
	case c == '{':
		return s.object(dst, depth+1)
	case c == '[':
		return s.array(dst, depth+1)
	case c == '"':
		return s.text(dst)
	case c == '-' || c >= '0' && c <= '9':
		return s.number(dst)
	case c == 't':
		return s.literal(dst, "true")
	case c == 'f':
		return s.literal(dst, "false")
	case c == 'n':
		return s.literal(dst, "null")
	}
	return dst, s.fail("%s where a value is expected", s.found())
}

func (s *scanner) literal(dst []byte, word string) ([]byte, error) {
	if !bytes.HasPrefix(s.src[s.pos:], []byte(word)) {
		return dst, s.fail("%s where a value is expected", s.found())
	}
	s.pos += len(word)
	return append(dst, word...), nil
}

func (s *scanner) array(dst []byte, depth int) ([]byte, error) {
	if depth > MaxDepth {
		return dst, s.fail("nesting deeper than %d", MaxDepth)
	}
	s.pos++
	dst = append(dst, '[')
	s.space()
	if s.peek() == ']' {
		s.pos++
		return append(dst, ']'), nil
	}
	for i := 0; ; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = s.value(dst, depth); err != nil {
			return dst, within(strconv.Itoa(i), err)
		}
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return append(dst, ']'), nil
		default:
			return dst, s.fail("%s in an array; expected ',' or ']'", s.found())
		}
	}
}

// peek returns the byte at the current position, 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

// member is one member in an object's canonical form: offsets into the output.
type member struct{ start, nameEnd, end int }

func (s *scanner) object(dst []byte, depth int) ([]byte, error) {
	if depth > MaxDepth {
		return dst, s.fail("nesting deeper than %d", MaxDepth)
	}
	s.pos++
	dst = append(dst, '{')
	var few [16]member // most objects fit: no allocation
	members, sorted := few[:0], true
	s.space()
	if s.peek() == '}' {
		s.pos++
		return append(dst, '}'), nil
	}
	for {
		m := member{start: len(dst)}
		var err error
		if dst, err = s.name(dst); err != nil {
			return dst, err
		}
		m.nameEnd = len(dst)
		dst = append(dst, ':')
		if dst, err = s.value(dst, depth); err != nil {
			return dst, within(unquoted(dst[m.start:m.nameEnd]), err)
		}
		m.end = len(dst)
		if n := len(members); n > 0 {
			p := members[n-1]
			sorted = sorted && bytes.Compare(dst[p.start:p.nameEnd], dst[m.start:m.nameEnd]) < 0
		}
		members = append(members, m)
		dst = append(dst, ',')
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			continue
		case '}':
			s.pos++
			dst[len(dst)-1] = '}'
			if sorted {
				return dst, nil
			}
			return s.order(dst, members)
		}
		return dst, s.fail("%s in an object; expected ',' or '}'", s.found())
	}
}

// name appends a member's name and passes the colon.
func (s *scanner) name(dst []byte) ([]byte, error) {
	s.space()
	if s.peek() != '"' {
		return dst, s.fail("%s in an object; expected a member's name", s.found())
	}
	dst, err := s.text(dst)
	if err != nil {
		return dst, err
	}
	s.space()
	if s.peek() != ':' {
		return dst, s.fail("%s after a member's name; expected ':'", s.found())
	}
	s.pos++
	return dst, nil
}

// order sorts the members of the object that ends dst and refuses a name that
// stands there twice.
func (s *scanner) order(dst []byte, members []member) ([]byte, error) {
	start := members[0].start
	old := bytes.Clone(dst[start:])
	at := func(m member) []byte { return old[m.start-start : m.nameEnd-start] }
	slices.SortStableFunc(members, func(a, b member) int { return bytes.Compare(at(a), at(b)) })
	dst = dst[:start]
	for i, m := range members {
		if i > 0 {
			if bytes.Equal(at(members[i-1]), at(m)) {
				return dst, within(unquoted(at(m)), s.fail("a member with this name stands twice in the object"))
			}
			dst = append(dst, ',')
		}
		dst = append(dst, old[m.start-start:m.end-start]...)
	}
	return append(dst, '}'), nil
}

// unquoted returns the text of a canonical string for use in a pointer.
func unquoted(canonical []byte) string {
	s := scanner{src: canonical}
	text, err := s.decode(nil)
	if err != nil {
		return string(canonical)
	}
	return string(text)
}
