package ledger

import (
	"unicode/utf16"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// text appends the canonical form of the string at the current position.
func (s *scanner) text(dst []byte) ([]byte, error) {
	if n := s.plain(); n >= 0 { // nothing to unescape or to check: copy
		dst = append(dst, s.src[s.pos:s.pos+n]...)
		s.pos += n
		return dst, nil
	}
	var few [128]byte
	decoded, err := s.decode(few[:0])
	if err != nil {
		return dst, err
	}
	return appendText(dst, decoded), nil
}

// plain returns the length of the string at the current position, quotes
// included, if it is printable ASCII without escapes, else -1.
func (s *scanner) plain() int {
	for i := s.pos + 1; i < len(s.src); i++ {
		switch c := s.src[i]; {
		case c == '"':
			return i + 1 - s.pos
		case c < 0x20 || c >= 0x7f || c == '\\':
			return -1
		}
	}
	return -1
}

// decode appends the text, unescaped, of the string at the current position.
func (s *scanner) decode(dst []byte) ([]byte, error) {
	s.pos++
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == '"':
			s.pos++
			return dst, nil
		case c == '\\':
			var err error
			if dst, err = s.escape(dst); err != nil {
				return dst, err
			}
		case c < 0x20:
			return dst, s.fail("the control character 0x%02x in a string; write it as \\u%04x", c, c)
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			s.pos++
		default:
			r, n := utf8.DecodeRune(s.src[s.pos:])
			if r == utf8.RuneError && n <= 1 {
				return dst, s.fail("invalid UTF-8 (byte 0x%02x) in a string", c)
			}
			dst = append(dst, s.src[s.pos:s.pos+n]...)
			s.pos += n
		}
	}
	return dst, s.fail("the document ends inside a string")
}

// escape appends what the escape sequence at the current position stands for.
func (s *scanner) escape(dst []byte) ([]byte, error) {
	if s.pos+1 >= len(s.src) {
		return dst, s.fail("the document ends inside an escape")
	}
	var c byte
	switch s.src[s.pos+1] {
	case '"', '\\', '/':
		c = s.src[s.pos+1]
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return s.unicode(dst)
	default:
		return dst, s.fail("an unknown escape in a string")
	}
	s.pos += 2
	return append(dst, c), nil
}

// unicode appends the character of the \uXXXX escape, or pair of them, at the
// current position.
func (s *scanner) unicode(dst []byte) ([]byte, error) {
	r, ok := s.hex4(s.pos)
	switch {
	case !ok:
		return dst, s.fail("\\u without four hexadecimal digits")
	case r == 0:
		return dst, s.fail("\\u0000, which databases cannot hold in text")
	case !utf16.IsSurrogate(r):
		s.pos += 6
		return utf8.AppendRune(dst, r), nil
	}
	low, ok := s.hex4(s.pos + 6)
	if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
		s.pos += 12
		return utf8.AppendRune(dst, pair), nil
	}
	return dst, s.fail("a lone surrogate \\u%04x, which is not text", r)
}

// hex4 reads the \uXXXX escape at offset at.
func (s *scanner) hex4(at int) (rune, bool) {
	if at+6 > len(s.src) || s.src[at] != '\\' || s.src[at+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range s.src[at+2 : at+6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// appendText appends text as a JSON string with the fewest escapes: the
// canonical form of a string. The text must be valid UTF-8.
func appendText[T string | []byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := range len(text) {
		c := text[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[from:i]...)
		from = i + 1
		if c < 0x20 {
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		} else {
			dst = append(dst, '\\', c)
		}
	}
	dst = append(dst, text[from:]...)
	return append(dst, '"')
}
