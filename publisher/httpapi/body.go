package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"jobledger/ledger"
)

// readBody reads the whole body, or says that it is too large.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength > ledger.MaxRequestBytes {
		drain(r)
		return nil, tooLarge("the body has %d bytes; at most %d are allowed", r.ContentLength, ledger.MaxRequestBytes)
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, ledger.MaxRequestBytes))
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		drain(r)
		return nil, tooLarge("the body has more than %d bytes, the most that is allowed", over.Limit)
	case err != nil:
		return nil, badRequest("bad-body", "the body could not be read to its end")
	}
	return data, nil
}

// drainBytes is how much of a body that is too large is read and dropped.
const drainBytes = 8 << 20

// drain reads on, for a while: whoever still sends when the server answers and
// closes tends to see a broken connection in the place of the answer. A client
// that waits to be asked for the body is not asked.
func drain(r *http.Request) {
	if r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, r.Body, drainBytes) // the answer is the same
	}
}

func tooLarge(format string, args ...any) *Problem {
	return problem(http.StatusRequestEntityTooLarge, "too-large", format, args...)
}

// A field is a member of a body, as it stands there.
type field struct {
	name string
	raw  []byte
}

// fields takes the object in a body apart. The values are checked by the
// ledger's rules, strictest first: what passes here the fold can store. Names
// other than the allowed ones are refused, so that a misspelt one is noticed.
func fields(body []byte, allowed ...string) ([]field, error) {
	if bytes.HasPrefix(body, []byte("\xef\xbb\xbf")) {
		return nil, malformed("", "a byte order mark at byte 0; JSON starts without one")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, notAnObject(body, d, err)
	}
	var list []field
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, syntaxFault(body, "", d.InputOffset(), err)
		}
		f := field{name: t.(string)} // the decoder gives only strings here
		pointer := "/" + pointerToken(f.name)
		if slices.ContainsFunc(list, func(o field) bool { return o.name == f.name }) {
			return nil, malformed(pointer, fmt.Sprintf("the member stands twice in the object, again before byte %d", d.InputOffset()))
		}
		if !slices.Contains(allowed, f.name) {
			return nil, malformed(pointer, fmt.Sprintf("an unknown member; known are %s", strings.Join(allowed, ", ")))
		}
		before := d.InputOffset()
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			// Ours says more of what is wrong, and where.
			return nil, valueFault(body, pointer, before, err)
		}
		f.raw = raw
		if err := ledger.CheckJSON(f.raw); err != nil {
			return nil, jsonFault(pointer, d.InputOffset()-int64(len(f.raw)), err)
		}
		list = append(list, f)
	}
	if _, err := d.Token(); err != nil {
		return nil, syntaxFault(body, "", d.InputOffset(), err)
	}
	if rest := bytes.TrimLeft(body[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, malformed("", fmt.Sprintf("something follows the object at byte %d", len(body)-len(rest)))
	}
	return list, nil
}

func malformed(pointer, detail string) *Problem {
	where := pointer
	if where == "" {
		where = "the body"
	}
	return badRequest("malformed-json", "%s: %s", where, detail).at(pointer, detail)
}

func notAnObject(body []byte, d *json.Decoder, err error) *Problem {
	if err != nil {
		return syntaxFault(body, "", d.InputOffset(), err)
	}
	return malformed("", "it is not an object")
}

// jsonFault places a fault of a value that stands at offset in the body.
func jsonFault(pointer string, offset int64, err error) *Problem {
	var fault *ledger.JSONError
	if !errors.As(err, &fault) {
		return malformed(pointer, err.Error())
	}
	return malformed(pointer+fault.Pointer, fmt.Sprintf("%s, at byte %d", fault.Problem, offset+int64(fault.Offset)))
}

// valueFault describes the value after offset, which the decoder refused.
func valueFault(body []byte, pointer string, offset int64, err error) *Problem {
	rest := bytes.TrimLeft(body[offset:], " \t\r\n:")
	start := int64(len(body) - len(rest))
	var fault *ledger.JSONError
	if errors.As(ledger.CheckJSON(rest), &fault) && (fault.Pointer != "" || fault.Offset < len(rest)) {
		return jsonFault(pointer, start, fault)
	}
	return syntaxFault(body, pointer, start, err)
}

func syntaxFault(body []byte, pointer string, offset int64, err error) *Problem {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) && syntax.Offset > 0 {
		offset = syntax.Offset - 1
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || offset >= int64(len(body)) {
		return malformed(pointer, fmt.Sprintf("the body ends at byte %d, before the JSON does", len(body)))
	}
	return malformed(pointer, fmt.Sprintf("%v, at byte %d", err, offset))
}

func pointerToken(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(strings.ToValidUTF8(name, "\ufffd"))
}

// An entryText is an entry's body in the making: what the server says, followed
// by what the request says, verbatim.
type entryText struct{ buf []byte }

func newEntryText() *entryText {
	return &entryText{buf: strconv.AppendInt([]byte(`{"v":`), ledger.EntryVersion, 10)}
}

// text adds a string member, unless it is empty.
func (e *entryText) text(name, value string) *entryText {
	if value != "" {
		quoted, err := json.Marshal(value)
		if err != nil {
			panic("httpapi: a string has no JSON: " + err.Error())
		}
		e.raw(name, quoted)
	}
	return e
}

func (e *entryText) raw(name string, value []byte) {
	e.buf = append(e.buf, `,"`...)
	e.buf = append(e.buf, name...)
	e.buf = append(e.buf, `":`...)
	e.buf = append(e.buf, value...)
}

// decode lets the fold's own decoder judge the entry, so that what is appended
// cannot be malformed.
func (e *entryText) decode(kind ledger.EntryKind, from []field) (*ledger.Entry, error) {
	for _, f := range from {
		e.raw(f.name, f.raw)
	}
	entry := ledger.Decode(1, time.Now(), string(kind), append(e.buf, '}'))
	switch fault := entry.Fault; {
	case fault == nil:
		return entry, nil
	case fault.Reason == ledger.TooLarge:
		return nil, tooLarge("%s", fault.Detail)
	default:
		pointer, detail := place(fault.Detail)
		return nil, badRequest("bad-request", "%s", strings.TrimPrefix(pointer+": "+detail, ": ")).at(pointer, detail)
	}
}

// place takes a fault's text apart: the JSON Pointer that it starts with, and
// the rest. The offset between them counts in the entry and says nothing about
// the request.
func place(text string) (pointer, detail string) {
	head, rest, ok := strings.Cut(text, " (byte ")
	if !ok || !strings.HasPrefix(head, "/") {
		return "", text
	}
	if _, rest, ok = strings.Cut(rest, "): "); !ok {
		return "", text
	}
	return head, rest
}
