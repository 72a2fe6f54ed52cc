package ledger

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// jobNamespace is the UUIDv5 namespace of job ids. It never changes.
var jobNamespace = uuid.MustParse("1d9af724-51c9-5d3b-9a7b-5e31743ea03a")

// JobID returns the id of the one job that owner's key can name: UUIDv5 of
// "<length of owner in bytes>:<owner><key>". The length makes the pair
// unambiguous, so "a"+"bc" and "ab"+"c" differ. Everyone can compute it without
// asking. JobID does not validate; see CheckIdent.
func JobID(owner, key string) uuid.UUID {
	name := make([]byte, 0, len(owner)+len(key)+4)
	name = strconv.AppendInt(name, int64(len(owner)), 10)
	name = append(name, ':')
	name = append(name, owner...)
	name = append(name, key...)
	return uuid.NewSHA1(jobNamespace, name)
}

// CheckIdent reports why s cannot be an owner or an idempotency key (what names
// which, for the message), or nil. Valid are 1 to MaxIdentBytes bytes of UTF-8
// without control characters and without white space at either end. Nothing is
// trimmed or folded: identifiers compare by their bytes.
func CheckIdent(what, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty; 1 to %d bytes are expected", what, MaxIdentBytes)
	case len(s) > MaxIdentBytes:
		return fmt.Errorf("%s has %d bytes; at most %d are allowed", what, len(s), MaxIdentBytes)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s is not valid UTF-8", what)
	}
	for i, r := range s {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s has the control character %U at byte %d", what, r, i)
		}
	}
	if strings.TrimSpace(s) != s {
		return fmt.Errorf("%s starts or ends with white space", what)
	}
	return nil
}

// ValidName reports whether s can name a kind, a provider or a producer:
// [a-z0-9][a-z0-9_-]{0,63}. Such a name is safe as a token of a subject and in
// the name of a consumer.
func ValidName(s string) bool {
	if s == "" || len(s) > MaxNameBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '_' && c != '-') {
			return false
		}
	}
	return true
}

// CheckName reports why s is not a valid name (what names which), or nil.
func CheckName(what, s string) error {
	if !ValidName(s) {
		return fmt.Errorf("%s %s is not a valid name; expected [a-z0-9][a-z0-9_-]{0,63}", what, Quote(s))
	}
	return nil
}

// quoteBytes bounds how much of a foreign value an error message repeats.
const quoteBytes = 80

// Quote returns s quoted and cut to a length that suits an error message.
func Quote(s string) string {
	if len(s) > quoteBytes {
		return strconv.Quote(strings.ToValidUTF8(s[:quoteBytes], "")) + "…"
	}
	return strconv.Quote(s)
}
