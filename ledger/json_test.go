package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestPayloadPairs is the ledger's notion of "the same intent": pairs under one
// owner and key, and what the second one is answered.
func TestPayloadPairs(t *testing.T) {
	t.Parallel()
	same := []struct{ name, a, b string }{
		{"member order", `{"a":1,"b":2}`, `{"b":2,"a":1}`},
		{"member order, deep", `{"x":[{"a":{"p":1,"q":2},"b":2}]}`, `{"x":[{"b":2,"a":{"q":2,"p":1}}]}`},
		{"white space", `{"a":[1,2]}`, "{ \"a\"\t:\r\n[ 1 , 2 ] } \n"},
		{"an escaped letter", `"é"`, `"\u00e9"`},
		{"an escaped letter in a name", `{"é":1}`, `{"\u00E9":1}`},
		{"an escaped slash", `"/"`, `"\/"`},
		{"a surrogate pair", `"\ud83d\ude00"`, `"😀"`},
		{"control characters", `"\b\f\n\r\t\u000b"`, `"\u0008\u000c\u000A\u000d\u0009\u000B"`},
		{"1 and 1.0", `1`, `1.0`},
		{"1 and 1e0", `1`, `1e0`},
		{"1 and 10e-1", `1`, `10e-1`},
		{"1 and 0.1E+1", `1`, `0.1E+1`},
		{"0 and -0", `0`, `-0`},
		{"0 and 0.000", `0`, `0.000`},
		{"0 and 0e1000", `0`, `0e1000`},
		{"1.10 and 1.1", `1.10`, `1.1`},
		{"100 and 1e2", `100`, `1e2`},
		{"big integers", `9007199254740993`, `9007199254740993.0`},
	}
	for _, v := range same {
		t.Run("same/"+v.name, func(t *testing.T) {
			t.Parallel()
			answer(t, v.a, v.b, Duplicate)
			answer(t, v.b, v.a, Duplicate)
		})
	}
	other := []struct{ name, a, b string }{
		{"the order of an array", `[1,2]`, `[2,1]`},
		{"NFC and NFD", "\"\u00e9\"", "\"e\u0301\""},
		{"neighbours beyond 2^53", `9007199254740992`, `9007199254740993`},
		{"neighbours beyond float64", `0.1`, `0.1000000000000000055511151231257827`},
		{"null and absent", `{"a":null}`, `{}`},
		{"text and number", `"1"`, `1`},
		{"true and its text", `true`, `"true"`},
		{"an empty object and an empty array", `{"a":{}}`, `{"a":[]}`},
		{"case", `"K"`, `"k"`},
		{"a trailing blank", `"k"`, `"k "`},
		{"a name's case", `{"a":1}`, `{"A":1}`},
		{"sign", `1`, `-1`},
		{"null and false", `null`, `false`},
		{"nesting", `[[1],2]`, `[1,[2]]`},
		{"U+FFFD and another", `"\ufffd"`, `"\ufffe"`},
	}
	for _, v := range other {
		t.Run("conflict/"+v.name, func(t *testing.T) {
			t.Parallel()
			answer(t, v.a, v.b, Conflict)
			answer(t, v.b, v.a, Conflict)
		})
	}
	for name, doc := range refusedDocuments() {
		t.Run("refused/"+name, func(t *testing.T) {
			t.Parallel()
			answer(t, `1`, doc, Malformed)
			if err := CheckJSON([]byte(doc)); err == nil {
				t.Error("CheckJSON accepts it")
			}
		})
	}
}

// refusedDocuments are documents that must be refused before anything compares
// them.
func refusedDocuments() map[string]string {
	return map[string]string{
		"a member named twice":               `{"a":1,"a":1}`,
		"a member named twice, deep":         `[{"b":{"a":1,"c":2,"a":1}}]`,
		"a member named twice, escaped":      `{"a":1,"\u0061":1}`,
		"a lone high surrogate":              `"\ud800"`,
		"a lone low surrogate":               `"\udc00"`,
		"a high surrogate and a letter":      `"\ud800a"`,
		"two high surrogates":                `"\ud800\ud800"`,
		"surrogates in the wrong order":      `"\ude00\ud83d"`,
		"a lone surrogate in a name":         `{"\udead":1}`,
		"a surrogate in raw UTF-8":           "\"\xed\xa0\x80\"",
		"U+0000":                             `"a\u0000"`,
		"U+0000 in a name":                   `{"\u0000":1}`,
		"a raw NUL":                          "\"a\x00\"",
		"a raw line break in a string":       "\"a\n\"",
		"something after the value":          `1 2`,
		"a comma after the value":            `1,`,
		"a second document":                  `{}{}`,
		"a byte order mark":                  "\ufeff1",
		"a byte order mark in UTF-16":        "\xff\xfe1\x00",
		"depth over the limit":               nested(MaxDepth + 1),
		"an exponent beyond the limit":       `1e1001`,
		"an exponent beyond it, negative":    `1e-1001`,
		"an exponent of many digits":         `1e99999999999999999999`,
		"NaN":                                `NaN`,
		"Infinity":                           `-Infinity`,
		"invalid UTF-8":                      "\"\xff\"",
		"invalid UTF-8 in a name":            "{\"\xff\":1}",
		"an overlong encoding":               "\"\xc0\xaf\"",
		"nothing":                            ``,
		"blanks":                             `  `,
		"a leading zero":                     `01`,
		"a plus sign":                        `+1`,
		"a bare point":                       `.5`,
		"a point without digits":             `1.`,
		"an exponent without digits":         `1e`,
		"hexadecimal":                        `0x1`,
		"a single quote":                     `'a'`,
		"a trailing comma in an array":       `[1,]`,
		"a trailing comma in an object":      `{"a":1,}`,
		"a comment":                          `/**/1`,
		"an unknown escape":                  `"\x41"`,
		"an escape without enough digits":    `"\u00e"`,
		"another blank":                      "\u00a01",
		"a form feed":                        "\f1",
		"a word in capitals":                 `True`,
		"a word with a tail":                 `nullx`,
		"an open array":                      `[1`,
		"an open object":                     `{"a":1`,
		"an open string":                     `"a`,
		"a string that ends in an escape":    `"a\`,
		"a name without quotes":              `{a:1}`,
		"a number as a name":                 `{1:1}`,
		"a name without a value":             `{"a"}`,
		"a bracket of the other kind":        `[1}`,
		"a number longer than the limit":     strings.Repeat("1", MaxNumberBytes+1),
		"a fraction longer than the limit":   "0." + strings.Repeat("1", MaxNumberBytes),
		"numbers that are large written out": expanded(MaxExpandedBytes + 1),
	}
}

// answer submits input a and then b under one key and compares the decision on
// the second.
func answer(t *testing.T, a, b string, want Decision) {
	t.Helper()
	s := NewState(1)
	kind := DefaultKind()
	kind.Name, kind.Providers = "work", []string{"primary"}
	s.LoadKind(KindRow{Seq: 1, Kind: kind})
	s.LoadAbsent(JobID("acme", "k"))
	first := fold(t, s, 2, &Request{Owner: "acme", Key: "k", Kind: "work", Input: []byte(a)})
	if first.Answer.Decision != Accepted {
		t.Fatalf("%.60s: %s %s; expected it to be accepted", a, first.Answer.Decision, first.Answer.Detail)
	}
	second := fold(t, s, 3, &Request{Owner: "acme", Key: "k", Kind: "work", Input: []byte(b)})
	if second.Answer.Decision != want {
		t.Errorf("%.60s after %.60s: %s; expected %s", b, a, second.Answer.Decision, want)
	}
}

// nested returns arrays in arrays, so many deep.
func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// expanded returns a document that has exactly so many bytes when its numbers
// are written out as the check counts them: the source, and each exponent's
// magnitude.
func expanded(size int) string {
	const number = "1e1000,"
	n := (size - 4) / (len(number) + MaxExponent)
	head := strings.Repeat(number, n)
	rest := size - n*MaxExponent - len(head) - len(`[`) - len(`""]`)
	return "[" + head + `"` + strings.Repeat("x", rest) + `"]`
}

func TestLimitsAreExact(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		name string
		doc  string
		ok   bool
	}{
		{"depth at the limit", nested(MaxDepth), true},
		{"depth over it", nested(MaxDepth + 1), false},
		{"objects at the limit", strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth), true},
		{"objects over it", strings.Repeat(`{"a":`, MaxDepth+1) + "1" + strings.Repeat("}", MaxDepth+1), false},
		{"exponent at the limit", "1e1000", true},
		{"exponent at it, with leading zeros", "1e+0001000", true},
		{"exponent over it", "1e1001", false},
		{"negative exponent at the limit", "1E-1000", true},
		{"negative exponent over it", "1E-1001", false},
		{"zero with an exponent over it", "0e1001", false},
		{"number at the limit", strings.Repeat("7", MaxNumberBytes), true},
		{"number over it", strings.Repeat("7", MaxNumberBytes+1), false},
		{"sign and point count", "-" + strings.Repeat("7", MaxNumberBytes-2) + ".5", false},
		{"expanded at the limit", expanded(MaxExpandedBytes), true},
		{"expanded over it", expanded(MaxExpandedBytes + 1), false},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			if err := CheckJSON([]byte(v.doc)); (err == nil) != v.ok {
				t.Errorf("%.40s… (%d bytes): error %v; expected it to be accepted: %v", v.doc, len(v.doc), err, v.ok)
			}
		})
	}
}

// TestJSONErrors pins where errors point: the pointer for people, the offset for
// editors.
func TestJSONErrors(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ doc, want string }{
		{``, "the document (byte 0): the document ends where a value is expected"},
		{"\ufeff{}", "the document (byte 0): a byte order mark; JSON starts without one"},
		{`{} x`, "the document (byte 3): 'x' after the value; expected the end"},
		{`{"a":[1,{"b":NaN}]}`, "/a/1/b (byte 13): 'N' where a value is expected"},
		{`{"a/b":{"c~d":01}}`, "/a~1b/c~0d (byte 14): a number with a leading zero"},
		{`["\ud800"]`, `/0 (byte 2): a lone surrogate \ud800, which is not text`},
		{"[0,\"\xff\"]", "/1 (byte 4): invalid UTF-8 (byte 0xff) in a string"},
		{"[\"a\tb\"]", `/0 (byte 3): the control character 0x09 in a string; write it as \u0009`},
		{`["\u0000"]`, `/0 (byte 2): \u0000, which databases cannot hold in text`},
		{`["\q"]`, `/0 (byte 2): an unknown escape in a string`},
		{`["\u12"]`, `/0 (byte 2): \u without four hexadecimal digits`},
		{`[1e2000]`, "/0 (byte 3): an exponent beyond ±1000"},
		{`[1 2]`, "the document (byte 3): '2' in an array; expected ',' or ']'"},
		{`{"a":1 "b":2}`, "the document (byte 7): '\"' in an object; expected ',' or '}'"},
		{`{"a":1,}`, "the document (byte 7): '}' in an object; expected a member's name"},
		{`{"a" 1}`, "the document (byte 5): '1' after a member's name; expected ':'"},
		{`{"x":{"b":1,"b":2}}`, "/x/b (byte 18): a member with this name stands twice in the object"},
		{"[\xfe]", "/0 (byte 1): the byte 0xfe where a value is expected"},
		{`[1`, "the document (byte 2): the end of the document in an array; expected ',' or ']'"},
	} {
		err := CheckJSON([]byte(v.doc))
		if err == nil || err.Error() != v.want {
			t.Errorf("%q:\n got  %v\n want %s", v.doc, err, v.want)
		}
		if bad := new(JSONError); !errors.As(err, &bad) {
			t.Errorf("%q: the error is a %T; expected a *JSONError", v.doc, err)
		}
	}
}

// TestCanonicalForm pins some canonical forms: fingerprints rest on them for
// ever.
func TestCanonicalForm(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		`null`:                                `null`,
		` [ true , false ] `:                  `[true,false]`,
		`{"b":1,"a":{"d":[],"c":{}},"é":"/"}`: `{"a":{"c":{},"d":[]},"b":1,"é":"/"}`,
		`{"B":1,"a":1,"":1,"aa":1}`:           `{"":1,"B":1,"a":1,"aa":1}`,
		`"\u0061\"\\\/\b\u001f\u007f"`:        "\"a\\\"\\\\/\\u0008\\u001f\u007f\"",
		`"\u2028\ud83d\ude00"`:                "\"\u2028😀\"",
		`-0.0`:                                `0`,
		`100`:                                 `1e2`,
		`-1.250e3`:                            `-125e1`,
		`0.001`:                               `1e-3`,
		`12345678901234567890`:                `1234567890123456789e1`,
		`1e1000`:                              `1e1000`,
		`10e1000`:                             `1e1001`,
	} {
		got, err := Canonical(nil, []byte(doc))
		if err != nil || string(got) != want {
			t.Errorf("Canonical(%s) = %s, %v; expected %s", doc, got, err, want)
		}
	}
}

func TestCanonicalAppends(t *testing.T) {
	t.Parallel()
	got, err := Canonical([]byte("before "), []byte(`{"b":1,"a":2}`))
	if err != nil || string(got) != `before {"a":2,"b":1}` {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestManyMembers has more members than fit the scanner's array, sorted and not,
// and a duplicate among them.
func TestManyMembers(t *testing.T) {
	t.Parallel()
	var doc strings.Builder
	doc.WriteString(`{`)
	for i := range 1000 {
		fmt.Fprintf(&doc, `"m%03d":%d,`, (i*7)%1000, i)
	}
	open := doc.String()
	got, err := Canonical(nil, []byte(open+`"z":0}`))
	if err != nil || !json.Valid(got) || !strings.HasPrefix(string(got), `{"m000":`) {
		t.Errorf("1,001 members: %.60s, %v", got, err)
	}
	if err := CheckJSON([]byte(open + `"m500":0}`)); err == nil || !strings.HasPrefix(err.Error(), "/m500 ") {
		t.Errorf("a duplicate among 1,001 members: %v; expected the pointer /m500", err)
	}
}
