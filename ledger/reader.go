package ledger

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// reader reads the value of one member. The first fault sticks in err; the
// calls after it return zero values.
type reader struct {
	scanner
	err error
}

// members calls visit for each member of the object in data, in order, with a
// reader that stands at its value; visit must consume it. A name that stands
// there twice is refused. Errors are *JSONError with the member in the pointer.
func members(data []byte, visit func(name string, r *reader) error) error {
	r := reader{scanner: scanner{src: data}}
	r.space()
	if r.peek() != '{' {
		return r.fail("%s; expected an object", r.found())
	}
	if err := r.each(visit); err != nil {
		return err
	}
	return r.end()
}

// maxMembers bounds the members of an envelope, so that the search for
// duplicates stays short. No entry has half as many.
const maxMembers = 32

// each visits the members of the object at the current position.
func (r *reader) each(visit func(name string, r *reader) error) error {
	r.pos++
	var seen [maxMembers]string
	var few [64]byte
	for n := 0; ; n++ {
		r.space()
		switch {
		case r.peek() == '}':
			r.pos++
			return nil
		case n > 0 && r.peek() != ',':
			return r.fail("%s in an object; expected ',' or '}'", r.found())
		case n > 0:
			r.pos++
		}
		if n == maxMembers {
			return r.fail("more than %d members", maxMembers)
		}
		quoted, err := r.name(few[:0])
		if err != nil {
			return err
		}
		name := unquoted(quoted)
		for _, s := range seen[:n] {
			if s == name {
				return within(name, r.fail("a member with this name stands twice in the object"))
			}
		}
		seen[n] = name
		r.space()
		if err := visit(name, r); err != nil {
			return within(name, err)
		}
	}
}

func (r *reader) expect(what string) {
	if r.err == nil {
		r.err = r.fail("%s; expected %s", r.found(), what)
	}
}

func (r *reader) reject(format string, args ...any) {
	if r.err == nil {
		r.err = r.fail(format, args...)
	}
}

// text reads a string of any length.
func (r *reader) text() string {
	if r.err != nil {
		return ""
	}
	if r.peek() != '"' {
		r.expect("a string")
		return ""
	}
	if n := r.plain(); n >= 0 {
		v := string(r.src[r.pos+1 : r.pos+n-1])
		r.pos += n
		return v
	}
	var few [256]byte
	v, err := r.decode(few[:0])
	r.err = err
	return string(v)
}

// freeText reads a string of at most MaxTextBytes.
func (r *reader) freeText() string {
	at := r.pos
	v := r.text()
	if len(v) > MaxTextBytes {
		r.pos = at
		r.reject("a text of %d bytes; at most %d are allowed", len(v), MaxTextBytes)
	}
	return v
}

// int reads an integer that fits 64 bits and is written without point or
// exponent.
func (r *reader) int() int64 {
	if r.err != nil {
		return 0
	}
	from := r.pos
	d, err := r.decimal()
	if err != nil || len(d.frac) > 0 || d.exp != 0 {
		r.pos = from
		r.expect("an integer")
		return 0
	}
	v, err := strconv.ParseInt(string(r.src[from:r.pos]), 10, 64)
	if err != nil {
		r.pos = from
		r.reject("an integer beyond 64 bits")
	}
	return v
}

// count reads an integer from 0 to most.
func (r *reader) count(most int64) int64 { return r.between(0, most) }

func (r *reader) between(least, most int64) int64 {
	at := r.pos
	v := r.int()
	if r.err == nil && (v < least || v > most) {
		r.pos = at
		r.reject("%d; expected %d to %d", v, least, most)
	}
	return v
}

// seq reads a sequence number.
func (r *reader) seq() uint64 { return uint64(r.count(math.MaxInt64)) }

func (r *reader) bool() bool {
	if r.err != nil {
		return false
	}
	switch c := r.peek(); {
	case c == 't':
		_, r.err = r.literal(nil, "true")
		return r.err == nil
	case c == 'f':
		_, r.err = r.literal(nil, "false")
	default:
		r.expect("true or false")
	}
	return false
}

func (r *reader) uuid() uuid.UUID {
	at := r.pos
	v := r.text()
	id, err := uuid.Parse(v)
	if r.err == nil && (err != nil || len(v) != 36) {
		r.pos = at
		r.reject("%s; expected a UUID of 36 characters", Quote(v))
	}
	return id
}

// time reads an RFC 3339 instant, cut to the microseconds that tables hold.
func (r *reader) time() time.Time {
	at := r.pos
	v := r.text()
	if r.err != nil {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if t = t.UTC(); err != nil || t.Year() < 1970 || t.Year() > 9999 {
		r.pos = at
		r.reject("%s; expected an RFC 3339 time such as 2026-01-02T15:04:05Z", Quote(v))
		return time.Time{}
	}
	return Instant(t)
}

// Instant cuts a time to what the ledger keeps: UTC, whole microseconds.
func Instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// raw reads any accepted value and returns its bytes as they stand in the
// source, which they alias.
func (r *reader) raw() []byte {
	if r.err != nil {
		return nil
	}
	from := r.pos
	var few [512]byte
	if _, r.err = r.value(few[:0], 0); r.err != nil {
		return nil
	}
	return r.src[from:r.pos]
}

// document reads any accepted value and returns its bytes and its canonical
// form.
func (r *reader) document() (raw, canonical []byte) {
	if r.err != nil {
		return nil, nil
	}
	from := r.pos
	canonical, r.err = r.value(make([]byte, 0, len(r.src)-from), 0)
	if r.err != nil {
		return nil, nil
	}
	return r.src[from:r.pos], canonical
}

// skip passes over any accepted value.
func (r *reader) skip() { r.raw() }

// oneOf reads a string that must be one of the given.
func oneOf[T ~string](r *reader, allowed ...T) T {
	at := r.pos
	v := T(r.text())
	if r.err != nil {
		return ""
	}
	for _, a := range allowed {
		if v == a {
			return v
		}
	}
	r.pos = at
	r.reject("%s; expected one of %q", Quote(string(v)), allowed)
	return ""
}

// ident reads an owner or a key.
func (r *reader) ident() string {
	at := r.pos
	v := r.text()
	if r.err != nil {
		return ""
	}
	if err := CheckIdent("it", v); err != nil {
		r.pos = at
		r.reject("%v", err)
	}
	return v
}

// named reads the name of a kind, a provider or a class.
func (r *reader) named() string {
	at := r.pos
	v := r.text()
	if r.err == nil && !ValidName(v) {
		r.pos = at
		r.reject("%s is not a valid name; expected [a-z0-9][a-z0-9_-]{0,63}", Quote(v))
	}
	return v
}

// lenient passes over a value of which only the extent must be clear: brackets
// balance outside strings. It serves to find the rest of a completion whose
// result is not accepted.
func (r *reader) lenient() {
	depth := 0
	for r.pos < len(r.src) {
		switch r.src[r.pos] {
		case '"':
			r.lenientString()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return
			}
			depth--
		case ',':
			if depth == 0 {
				return
			}
		}
		r.pos++
	}
}

func (r *reader) lenientString() {
	for r.pos++; r.pos < len(r.src); r.pos++ {
		switch r.src[r.pos] {
		case '\\':
			r.pos++
		case '"':
			r.pos++
			return
		}
	}
}

// fault makes an error for a member that is missing or does not fit the others.
func fault(pointer, format string, args ...any) error {
	return &JSONError{Pointer: pointer, Problem: fmt.Sprintf(format, args...)}
}
