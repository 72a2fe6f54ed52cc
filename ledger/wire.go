package ledger

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// builder appends a JSON object member by member. It exists because entries
// are written on the hot path, where reflection costs more than the work.
type builder struct {
	buf   []byte
	start int
}

func object(dst []byte) *builder {
	return &builder{buf: append(dst, '{'), start: len(dst) + 1}
}

func (b *builder) close() []byte { return append(b.buf, '}') }

func (b *builder) member(name string) {
	if len(b.buf) > b.start {
		b.buf = append(b.buf, ',')
	}
	b.buf = append(b.buf, '"')
	b.buf = append(b.buf, name...)
	b.buf = append(b.buf, '"', ':')
}

func (b *builder) text(name, v string) {
	b.member(name)
	b.buf = appendText(b.buf, v)
}

func (b *builder) int(name string, v int64) {
	b.member(name)
	b.buf = strconv.AppendInt(b.buf, v, 10)
}

func (b *builder) uint(name string, v uint64) {
	b.member(name)
	b.buf = strconv.AppendUint(b.buf, v, 10)
}

func (b *builder) bool(name string, v bool) {
	b.member(name)
	b.buf = strconv.AppendBool(b.buf, v)
}

func (b *builder) raw(name string, v []byte) {
	b.member(name)
	b.buf = append(b.buf, v...)
}

func (b *builder) uuid(name string, v uuid.UUID) {
	b.member(name)
	var hex [36]byte
	encodeUUID(hex[:], v)
	b.buf = append(b.buf, '"')
	b.buf = append(b.buf, hex[:]...)
	b.buf = append(b.buf, '"')
}

func (b *builder) time(name string, v time.Time) {
	b.member(name)
	b.buf = append(b.buf, '"')
	b.buf = v.UTC().AppendFormat(b.buf, time.RFC3339Nano)
	b.buf = append(b.buf, '"')
}

func (b *builder) optText(name, v string) {
	if v != "" {
		b.text(name, v)
	}
}

func (b *builder) optInt(name string, v int64) {
	if v != 0 {
		b.int(name, v)
	}
}

func (b *builder) optBool(name string, v bool) {
	if v {
		b.bool(name, v)
	}
}

func (b *builder) optRaw(name string, v []byte) {
	if len(v) > 0 {
		b.raw(name, v)
	}
}

func (b *builder) optUUID(name string, v uuid.UUID) {
	if v != (uuid.UUID{}) {
		b.uuid(name, v)
	}
}

func (b *builder) optTime(name string, v time.Time) {
	if !v.IsZero() {
		b.time(name, v)
	}
}

// encodeUUID writes the 36 characters of v into dst.
func encodeUUID(dst []byte, v uuid.UUID) {
	at := 0
	for i, c := range v {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst[at] = '-'
			at++
		}
		dst[at], dst[at+1] = hexDigits[c>>4], hexDigits[c&15]
		at += 2
	}
}

// ValidText makes v fit a text member: invalid UTF-8 and NUL become U+FFFD, and
// what exceeds MaxTextBytes is cut at a character's start.
func ValidText(v string) string {
	v = strings.ReplaceAll(strings.ToValidUTF8(v, "\ufffd"), "\x00", "\ufffd")
	if len(v) <= MaxTextBytes {
		return v
	}
	cut := MaxTextBytes
	for !utf8.RuneStart(v[cut]) {
		cut--
	}
	return v[:cut]
}
