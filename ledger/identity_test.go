package ledger

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestJobIDVectors pins the ids that the contract gives to everyone who
// computes them without asking.
func TestJobIDVectors(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ owner, key, id string }{
		{"acme", "order-17", "932e6392-de75-5f3a-ac8f-94870d967406"},
		{"a", "bc", "8d219186-b90f-51e6-9cec-d904373c26c5"},
		{"ab", "c", "935fa2d5-95ed-549b-b5af-cf40e3699fbc"},
		{"a:b", "c", "dc59ad73-7974-5a75-8195-93f9e17e7b37"},
		{"é", "x y", "baba3ee4-4223-54c7-a329-15c54a63cc55"},
	} {
		if id := JobID(v.owner, v.key).String(); id != v.id {
			t.Errorf("JobID(%q, %q) = %s; the contract says %s", v.owner, v.key, id, v.id)
		}
	}
}

// TestJobIDsDiffer checks pairs that a careless join or comparison would merge.
func TestJobIDsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string][2]string{}
	for _, pair := range [][2]string{
		{"a", "b.c"}, {"a.b", "c"}, {"a", "bc"}, {"ab", "c"}, {"a:b", "c"}, {"a", "b:c"}, {"1:a", "b"}, {"1", ":ab"},
		{"*", ">"}, {">", "*"}, {"a", "K1"}, {"a", "k1"}, {"a", "K1 x"}, {"a", "K1  x"}, {"a", "ı"}, {"a", "i"},
		{"a", "\u00e9"}, {"a", "e\u0301"}, {"a", "ﬁ"}, {"a", "fi"}, {"a", "%2E"}, {"a", "."}, {"10:aaaaaaaaaa", "b"},
	} {
		id := JobID(pair[0], pair[1]).String()
		if other, ok := seen[id]; ok {
			t.Errorf("%q and %q have the same id %s", pair, other, id)
		}
		seen[id] = pair
	}
}

func TestJobIDIsInjective(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		owner, key := rapid.String().Draw(t, "owner"), rapid.String().Draw(t, "key")
		owner2, key2 := rapid.String().Draw(t, "owner2"), rapid.String().Draw(t, "key2")
		if rapid.Bool().Draw(t, "shift") { // the same text, cut elsewhere
			all := owner + key
			cut := rapid.IntRange(0, len(all)).Draw(t, "cut")
			owner2, key2 = all[:cut], all[cut:]
		}
		same := owner == owner2 && key == key2
		if (JobID(owner, key) == JobID(owner2, key2)) != same {
			t.Fatalf("ids of (%q, %q) and (%q, %q): equal is %v; expected %v", owner, key, owner2, key2, !same, same)
		}
	})
}

func TestCheckIdent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", MaxIdentBytes/2) // 254 bytes
	for _, v := range []struct {
		name, ident string
		problem     string // in the message; "" for none
	}{
		{"one byte", "a", ""},
		{"a subject's wildcards", "a.*.>", ""},
		{"dots at the ends", ".a.", ""},
		{"two dots", "a..b", ""},
		{"a slash", "order/1", ""},
		{"percent", "%2E", ""},
		{"quotes", `"k"`, ""},
		{"inner blanks", "x y", ""},
		{"an emoji", "😀", ""},
		{"decomposed", "e\u0301", ""},
		{"a zero-width joiner", "a\u200db", ""},
		{"the most bytes", long + "x", ""},
		{"the most bytes of random text", strings.Repeat("q7Z", MaxIdentBytes/3), ""},
		{"empty", "", "empty"},
		{"a byte more", long + "xx", "256 bytes; at most 255"},
		{"far too long", strings.Repeat("a", 8191), "8191 bytes; at most 255"},
		{"a leading blank", " a", "white space"},
		{"a trailing blank", "K1 ", "white space"},
		{"blanks only", "   ", "white space"},
		{"a no-break space at the end", "a\u00a0", "white space"},
		{"an ideographic space in front", "\u3000a", "white space"},
		{"NUL", "a\x00b", "control character U+0000 at byte 1"},
		{"a tab inside", "a\tb", "control character U+0009"},
		{"a line break at the end", "a\n", "control character U+000A"},
		{"DEL", "a\x7f", "control character U+007F"},
		{"C1", "a\u0085b", "control character U+0085"},
		{"invalid UTF-8", "a\xff", "UTF-8"},
		{"a surrogate in UTF-8", "a\xed\xa0\x80", "UTF-8"},
		{"an overlong slash", "a\xc0\xaf", "UTF-8"},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			err := CheckIdent("key", v.ident)
			switch {
			case v.problem == "" && err != nil:
				t.Errorf("%q was refused: %v", v.ident, err)
			case v.problem != "" && err == nil:
				t.Errorf("%q was accepted", v.ident)
			case v.problem != "" && (!strings.Contains(err.Error(), v.problem) || !strings.HasPrefix(err.Error(), "key ")):
				t.Errorf("%q: %v; expected the key and %q to be named", v.ident, err, v.problem)
			}
		})
	}
}

func TestValidName(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"a": true, "0": true, "a-b_c9": true, "9lives": true, strings.Repeat("a", MaxNameBytes): true,
		"": false, strings.Repeat("a", MaxNameBytes+1): false, "A": false, "aB": false, "-a": false, "_a": false,
		"a.b": false, "a b": false, "*": false, ">": false, "é": false, "a\n": false, "a/b": false, "ａ": false,
	} {
		if ValidName(name) != valid {
			t.Errorf("ValidName(%q) = %v", name, !valid)
		}
		if err := CheckName("kind", name); (err == nil) != valid {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
}

func TestQuoteIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		s = strings.Repeat(s, rapid.IntRange(1, 50).Draw(t, "times"))
		if q := Quote(s); len(q) > 10*quoteBytes+5 {
			t.Fatalf("Quote gave %d bytes for %d", len(q), len(s))
		}
	})
}
