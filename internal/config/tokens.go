package config

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
)

// The roles that a token can have.
const (
	RoleProducer = "producer" // sees and touches its own jobs only
	RoleOperator = "operator" // may name any owner, resolve and force
)

// Tokens are the bearer tokens that the API accepts: their digests, not the
// tokens. The zero value accepts none. It does not change after [LoadTokens] and
// is safe for concurrent use.
type Tokens struct {
	entries []tokenEntry
}

type tokenEntry struct {
	digest [sha256.Size]byte
	owner  string
	role   string
}

// LoadTokens reads a tokens file, a YAML list of
//
//   - {sha256: <64 hexadecimal digits>, owner: acme, role: producer}
//
// where sha256 is the digest of the token's bytes as they are sent, without a
// line's end (printf %s "$TOKEN" | sha256sum), and role is producer or operator.
// All faults are returned at once as joined [Fault] values with their lines. They
// quote nothing from the file, since what is wrong may be a token.
func LoadTokens(path string) (*Tokens, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the tokens file: %w", err)
	}
	return decodeTokens(path, data)
}

func decodeTokens(path string, data []byte) (*Tokens, error) {
	doc := &document{file: path, secret: true}
	root, err := doc.parse(data)
	if err != nil {
		return nil, err
	}
	tokens := readTokens(root)
	if err := doc.err(); err != nil {
		return nil, err
	}
	return tokens, nil
}

func readTokens(root node) *Tokens {
	items, ok := root.items("a list of {sha256, owner, role}")
	if !ok {
		return nil
	}
	if len(items) == 0 || len(items) > maxTokens {
		root.reject(fmt.Sprintf("%d tokens", len(items)), fmt.Sprintf("1 to %d", maxTokens))
		return nil
	}
	tokens := &Tokens{}
	lines := map[[sha256.Size]byte]int{}
	for _, item := range items {
		entry, ok := readToken(item)
		if !ok {
			continue
		}
		if first := lines[entry.digest]; first > 0 {
			item.reject("the token of another entry", fmt.Sprintf("each once (first on line %d)", first))
		}
		lines[entry.digest] = item.line
		tokens.entries = append(tokens.entries, entry)
	}
	return tokens
}

func readToken(n node) (tokenEntry, bool) {
	const digestExpected = "the SHA-256 of a token in 64 hexadecimal digits"
	var entry tokenEntry
	if n.empty() {
		n.rejectValue("{sha256, owner, role}")
		return entry, false
	}
	o, ok := n.object("{sha256, owner, role}")
	if !ok {
		return entry, false
	}
	before := len(n.doc.faults)
	need(o, "sha256", &entry.digest, digestExpected, digest(digestExpected))
	need(o, "owner", &entry.owner, "an owner", ownerName)
	need(o, "role", &entry.role, "producer or operator", oneOf(RoleProducer, RoleOperator))
	o.finish()
	return entry, len(n.doc.faults) == before
}

func digest(expected string) reader[[sha256.Size]byte] {
	return func(n node) (sum [sha256.Size]byte, ok bool) {
		s, isText := rawText(n)
		// All digits are a number to YAML; the token keeps them as written.
		if !isText && !n.empty() && n.val.GetToken() != nil {
			s = n.val.GetToken().Value
		}
		raw, err := hex.DecodeString(s)
		if err != nil || len(raw) != len(sum) {
			n.rejectValue(expected)
			return sum, false
		}
		copy(sum[:], raw)
		if sum == sha256.Sum256(nil) {
			n.reject("the digest of an empty token", expected)
			return sum, false
		}
		return sum, true
	}
}

func ownerName(n node) (string, bool) {
	s, ok := rawText(n)
	if !ok || s == "" || len(s) > maxOwnerBytes || strings.TrimSpace(s) != s || strings.ContainsFunc(s, unicode.IsControl) {
		n.rejectValue(fmt.Sprintf("a text of 1 to %d bytes without control characters or outer spaces", maxOwnerBytes))
		return "", false
	}
	return s, true
}

// Lookup returns whose token bearer is and with which role; ok is false if it is
// nobody's. The time that it takes depends on the number of tokens and not on
// bearer's likeness to any of them. bearer is hashed and not kept.
func (t *Tokens) Lookup(bearer string) (owner, role string, ok bool) {
	if t == nil || bearer == "" {
		return "", "", false
	}
	sum := sha256.Sum256([]byte(bearer))
	found := -1
	for i := range t.entries {
		equal := subtle.ConstantTimeCompare(sum[:], t.entries[i].digest[:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	if found < 0 {
		return "", "", false
	}
	return t.entries[found].owner, t.entries[found].role, true
}

// Len returns the number of tokens.
func (t *Tokens) Len() int {
	if t == nil {
		return 0
	}
	return len(t.entries)
}
