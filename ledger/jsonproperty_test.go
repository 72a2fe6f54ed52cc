package ledger

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawText draws text that JSON can hold and the ledger accepts: no U+0000.
func drawText(t *rapid.T) string {
	runes := rapid.OneOf(
		rapid.Rune(),
		rapid.SampledFrom([]rune("\"\\/\b\f\n\r\t\u001f\u007f\u0085\u2028éı😀\ufffd ab")),
	)
	text := rapid.StringOfN(runes, 0, 8, -1).Draw(t, "text")
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
}

// drawNumber draws a literal within the limits.
func drawNumber(t *rapid.T) string {
	literal := rapid.StringMatching(`-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?`).Draw(t, "number")
	if rapid.Bool().Draw(t, "with exponent") {
		literal += rapid.SampledFrom([]string{"e", "E", "e+", "E-", "e-00"}).Draw(t, "e") +
			strconv.Itoa(rapid.IntRange(0, 300).Draw(t, "exponent"))
	}
	return literal
}

// drawValue draws a document as encoding/json would decode it with UseNumber.
func drawValue(t *rapid.T, depth int) any {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return json.Number(drawNumber(t))
	case 3, 4:
		return drawText(t)
	case 5:
		list := make([]any, rapid.IntRange(0, 4).Draw(t, "length"))
		for i := range list {
			list[i] = drawValue(t, depth-1)
		}
		return list
	default:
		object := map[string]any{}
		for range rapid.IntRange(0, 20).Draw(t, "members") {
			object[drawText(t)] = drawValue(t, depth-1)
		}
		return object
	}
}

// spell writes a value in one of its many spellings: members in any order,
// white space anywhere, letters escaped or not, numbers as drawn.
func spell(t *rapid.T, dst []byte, v any) []byte {
	dst = blanks(t, dst)
	switch v := v.(type) {
	case json.Number:
		dst = append(dst, respell(t, string(v))...)
	case string:
		dst = spellText(t, dst, v)
	case []any:
		dst = append(dst, '[')
		for i, element := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = spell(t, dst, element)
		}
		dst = append(dst, ']')
	case map[string]any:
		names := slices.Sorted(maps.Keys(v)) // rapid must draw the same again
		dst = append(dst, '{')
		for i, name := range rapid.Permutation(names).Draw(t, "order") {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = spellText(t, blanks(t, dst), name)
			dst = spell(t, append(blanks(t, dst), ':'), v[name])
		}
		dst = append(dst, '}')
	default:
		word, _ := json.Marshal(v) // null, true, false
		dst = append(dst, word...)
	}
	return blanks(t, dst)
}

func blanks(t *rapid.T, dst []byte) []byte {
	return append(dst, rapid.SampledFrom([]string{"", "", "", " ", "\n\t", "\r\n  "}).Draw(t, "blanks")...)
}

func spellText(t *rapid.T, dst []byte, text string) []byte {
	dst = append(dst, '"')
	for _, r := range text {
		switch {
		case r < 0x20 || r == '"' || r == '\\' || rapid.Bool().Draw(t, "escape"):
			dst = append(dst, escaped(r, rapid.Bool().Draw(t, "upper"))...)
		default:
			dst = append(dst, string(r)...)
		}
	}
	return append(dst, '"')
}

// escaped returns \uXXXX, or two of them.
func escaped(r rune, upper bool) string {
	ascii := strconv.QuoteToASCII(string(r)) // knows \U, \x and the short ones
	var b strings.Builder
	for _, unit := range utf16Units(r) {
		hex := strconv.FormatUint(uint64(unit)+0x10000, 16)[1:]
		if upper {
			hex = strings.ToUpper(hex)
		}
		b.WriteString(`\u` + hex)
	}
	if short := ascii[1 : len(ascii)-1]; !upper && len(short) == 2 && strings.ContainsAny(short[1:], `bfnrt"\`) {
		return short
	}
	return b.String()
}

func utf16Units(r rune) []uint16 {
	if r < 0x10000 {
		return []uint16{uint16(r)}
	}
	r -= 0x10000
	return []uint16{uint16(0xd800 + r>>10), uint16(0xdc00 + r&0x3ff)}
}

// respell writes an equal number: the point moved, zeros added.
func respell(t *rapid.T, literal string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(literal), "e")
	exp, _ := strconv.Atoi(exponent) // "" is 0
	for range rapid.IntRange(0, 3).Draw(t, "moves") {
		switch {
		case rapid.Bool().Draw(t, "zero"):
			if !strings.Contains(mantissa, ".") {
				mantissa += "."
			}
			mantissa += "0"
		case !strings.Contains(mantissa, ".") && strings.Trim(mantissa, "-0") != "":
			mantissa += "0"
			exp--
		}
	}
	if exp == 0 {
		return mantissa
	}
	return mantissa + "e" + strconv.Itoa(exp)
}

func canonical(t *rapid.T, doc []byte) []byte {
	out, err := Canonical(nil, doc)
	if err != nil {
		t.Fatalf("%q is refused: %v", doc, err)
	}
	return out
}

// TestSpellingDoesNotCount: two spellings of a value have one canonical form,
// which is a spelling of that value too, and its own canonical form.
func TestSpellingDoesNotCount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := drawValue(t, 3)
		a, b := spell(t, nil, v), spell(t, nil, v)
		form := canonical(t, a)
		if other := canonical(t, b); !bytes.Equal(form, other) {
			t.Fatalf("%q\n and %q\n have the forms %q\n and %q", a, b, form, other)
		}
		if again := canonical(t, form); !bytes.Equal(form, again) {
			t.Fatalf("the canonical form %q has the form %q", form, again)
		}
		if got := parse(t, form); !equalValues(got, parse(t, a)) {
			t.Fatalf("%q parses to %v; its source to %v", form, got, v)
		}
	})
}

func parse(t *rapid.T, doc []byte) any {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", doc, err)
	}
	return v
}

// equalValues compares documents, numbers by their exact value.
func equalValues(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && rational(string(a)).Cmp(rational(string(b))) == 0
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equalValues(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name := range a {
			if other, ok := b[name]; !ok || !equalValues(a[name], other) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a, b)
}

func rational(literal string) *big.Rat {
	r, ok := new(big.Rat).SetString(literal)
	if !ok {
		panic("not a number: " + literal)
	}
	return r
}

// TestNumbersAreExact: numbers have equal forms exactly if they are equal.
func TestNumbersAreExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawNumber(t), drawNumber(t)
		switch rapid.IntRange(0, 2).Draw(t, "relation") {
		case 0: // independent
		case 1:
			b = respell(t, a)
		case 2: // one digit differs
			b = nudge(t, a)
		}
		formA, formB := canonical(t, []byte(a)), canonical(t, []byte(b))
		equal := rational(a).Cmp(rational(b)) == 0
		if bytes.Equal(formA, formB) != equal {
			t.Fatalf("%s and %s: equal is %v, but their forms are %s and %s", a, b, equal, formA, formB)
		}
		if rational(string(formA)).Cmp(rational(a)) != 0 {
			t.Fatalf("the form of %s is %s, which is another number", a, formA)
		}
	})
}

func nudge(t *rapid.T, literal string) string {
	digits := []byte(literal)
	i := rapid.IntRange(0, len(digits)-1).Draw(t, "digit")
	if digits[i] >= '1' && digits[i] <= '8' {
		digits[i]++
	}
	return string(digits)
}

// TestDifferentValuesDiffer: what encoding/json reads differently has different
// forms.
func TestDifferentValuesDiffer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := spell(t, nil, drawValue(t, 2)), spell(t, nil, drawValue(t, 2))
		equal := equalValues(parse(t, a), parse(t, b))
		if bytes.Equal(canonical(t, a), canonical(t, b)) != equal {
			t.Fatalf("%q and %q: equal is %v, but not of their forms", a, b, equal)
		}
	})
}
