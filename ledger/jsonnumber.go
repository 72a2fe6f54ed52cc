package ledger

import "strconv"

// decimal is a number literal taken apart: the value is
// ±intPart.frac × 10^exp.
type decimal struct {
	negative      bool
	intPart, frac []byte
	exp           int
}

// number appends the canonical form of the number at the current position.
func (s *scanner) number(dst []byte) ([]byte, error) {
	start := s.pos
	d, err := s.decimal()
	if err != nil {
		return dst, err
	}
	if n := s.pos - start; n > MaxNumberBytes {
		s.pos = start
		return dst, s.fail("a number of %d characters; at most %d are allowed", n, MaxNumberBytes)
	}
	s.surplus += max(d.exp, -d.exp)
	if len(s.src)+s.surplus > MaxExpandedBytes {
		s.pos = start
		return dst, s.fail("the document is larger than %d bytes when its numbers are written out", MaxExpandedBytes)
	}
	return d.appendCanonical(dst), nil
}

// decimal reads the literal at the current position by RFC 8259's grammar.
func (s *scanner) decimal() (decimal, error) {
	var d decimal
	if s.peek() == '-' {
		d.negative = true
		s.pos++
	}
	d.intPart = s.digits()
	switch {
	case len(d.intPart) == 0:
		return d, s.fail("%s in a number; expected a digit", s.found())
	case len(d.intPart) > 1 && d.intPart[0] == '0':
		s.pos -= len(d.intPart)
		return d, s.fail("a number with a leading zero")
	}
	if s.peek() == '.' {
		s.pos++
		if d.frac = s.digits(); len(d.frac) == 0 {
			return d, s.fail("%s after the decimal point; expected a digit", s.found())
		}
	}
	if c := s.peek(); c != 'e' && c != 'E' {
		return d, nil
	}
	s.pos++
	return d, s.exponent(&d)
}

// exponent reads what follows the letter e.
func (s *scanner) exponent(d *decimal) error {
	sign := 1
	switch s.peek() {
	case '-':
		sign = -1
		s.pos++
	case '+':
		s.pos++
	}
	at := s.pos
	digits := s.digits()
	if len(digits) == 0 {
		return s.fail("%s in an exponent; expected a digit", s.found())
	}
	for _, c := range digits {
		if d.exp = d.exp*10 + int(c-'0'); d.exp > MaxExponent {
			s.pos = at
			return s.fail("an exponent beyond ±%d", MaxExponent)
		}
	}
	d.exp *= sign
	return nil
}

func (s *scanner) digits() []byte {
	from := s.pos
	for s.pos < len(s.src) && s.src[s.pos] >= '0' && s.src[s.pos] <= '9' {
		s.pos++
	}
	return s.src[from:s.pos]
}

// appendCanonical appends the one form that all equal numbers share: the
// significant digits, then e and the power of ten unless that is zero. Zero has
// no sign.
func (d decimal) appendCanonical(dst []byte) []byte {
	start := len(dst)
	if d.negative {
		dst = append(dst, '-')
	}
	from := len(dst)
	dst = append(append(dst, d.intPart...), d.frac...)
	exp := d.exp - len(d.frac)
	lead := from
	for lead < len(dst) && dst[lead] == '0' {
		lead++
	}
	if lead == len(dst) {
		return append(dst[:start], '0')
	}
	dst = append(dst[:from], dst[lead:]...)
	for dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
		exp++
	}
	if exp == 0 {
		return dst
	}
	return strconv.AppendInt(append(dst, 'e'), int64(exp), 10)
}
