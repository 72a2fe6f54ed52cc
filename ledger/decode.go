package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Decode decodes the entry that the stream stored with sequence seq at time at
// under subject (without the ledger's prefix). It never fails; see Entry.Fault.
// The entry aliases data, which must not change afterwards.
func Decode(seq uint64, at time.Time, subject string, data []byte) *Entry {
	e := &Entry{Seq: seq, At: Instant(at), Subject: subject, Raw: data}
	var err error
	if e.Kind, e.Token, err = ParseSubject(subject); err != nil {
		e.Fault = &Fault{UnknownEntry, err.Error()}
		return e
	}
	d, ok := decoders[e.Kind]
	if !ok {
		panic("ledger: no decoder for " + string(e.Kind))
	}
	if len(data) > d.limit {
		e.Fault = &Fault{TooLarge, fmt.Sprintf("the body has %d bytes; at most %d are allowed", len(data), d.limit)}
		return e
	}
	if err := d.decode(e); err != nil {
		e.Body, e.Job = nil, uuid.UUID{}
		e.Fault = faultOf(err)
	}
	return e
}

type decoder struct {
	limit  int // bytes of a body
	decode func(*Entry) error
}

var decoders = map[EntryKind]decoder{
	RulesSet:         {MaxRequestBytes, decodeRules},
	KindDefine:       {MaxRequestBytes, decodeKind},
	ProviderDefine:   {MaxRequestBytes, decodeProvider},
	ProviderVerified: {MaxRequestBytes, decodeVerified},
	JobRequest:       {MaxRequestBytes, decodeRequest},
	JobCancel:        {MaxRequestBytes, decodeCancel},
	AttemptRequest:   {MaxRequestBytes, decodeAsk},
	AttemptStart:     {MaxPayloadBytes, decodeStart},
	AttemptClaim:     {MaxRequestBytes, decodeClaim},
	AttemptComplete:  {MaxPayloadBytes, decodeCompletion},
	AttemptResolve:   {MaxPayloadBytes, decodeResolution},
	ClockDue:         {MaxRequestBytes, decodeDue},
}

// versionError reports an entry of another version than this package reads.
type versionError int64

func (v versionError) Error() string {
	return fmt.Sprintf("version %d; this binary reads version %d", int64(v), EntryVersion)
}

func faultOf(err error) *Fault {
	var v versionError
	if errors.As(err, &v) {
		return &Fault{UnsupportedVersion, err.Error()}
	}
	return &Fault{BadEntry, err.Error()}
}

// body visits the members of an entry's body after its version, which every
// body must have. Members that the entry's kind does not have are refused, so
// that a misspelt one is noticed.
func body(e *Entry, visit func(name string, r *reader) bool) error {
	version := int64(-1)
	err := members(e.Raw, func(name string, r *reader) error {
		switch {
		case name == "v":
			if version = r.int(); r.err == nil && version != EntryVersion {
				return versionError(version)
			}
		case name == "actor":
			e.Actor = r.freeText()
		case !visit(name, r):
			r.reject("an unknown member of %s", e.Kind)
		}
		return r.err
	})
	if err == nil && version == -1 {
		return fault("/v", "it is missing; expected the version, %d", EntryVersion)
	}
	return err
}

// jobBody visits the members of the body of an entry about a job, which it must
// name, but for the name itself.
func jobBody(e *Entry, visit func(name string, r *reader) bool) error {
	err := body(e, func(name string, r *reader) bool {
		if name == "job" {
			e.Job = r.uuid()
			return true
		}
		return visit(name, r)
	})
	if err != nil {
		return err
	}
	return required("job", e.Job != uuid.UUID{})
}

// required refuses members that were left out: pairs of a name and whether it
// was there.
func required(pairs ...any) error {
	for i := 0; i < len(pairs); i += 2 {
		if !pairs[i+1].(bool) {
			return fault("/"+pairs[i].(string), "it is missing")
		}
	}
	return nil
}

func decodeRules(e *Entry) error {
	b := &Rules{}
	e.Body = b
	err := body(e, func(name string, r *reader) bool {
		if name != "rules" {
			return false
		}
		b.Rules = int(r.count(1 << 30))
		return true
	})
	b.Actor = e.Actor
	if err == nil && b.Rules < 1 {
		return fault("/rules", "%d; expected at least 1", b.Rules)
	}
	return err
}

func decodeKind(e *Entry) error {
	b := &KindDefinition{}
	e.Body = b
	err := body(e, func(name string, r *reader) bool {
		if name != "kind" {
			return false
		}
		b.Kind, r.err = r.kind()
		return true
	})
	b.Actor = e.Actor
	if err == nil && b.Kind.Name == "" {
		return required("kind", false)
	}
	return err
}

func decodeVerified(e *Entry) error {
	b := &Verification{}
	e.Body = b
	passed := false
	err := body(e, func(name string, r *reader) bool {
		switch name {
		case "provider":
			b.Provider = r.named()
		case "kind":
			b.Kind = r.named()
		case "contract":
			b.Contract = r.contract()
		case "provider_digest":
			b.ProviderDigest = r.digest()
		case "passed":
			b.Passed, passed = r.bool(), true
		case "report":
			b.Report = r.raw()
		case "expires_at":
			b.ExpiresAt = r.time()
		default:
			return false
		}
		return true
	})
	b.Actor = e.Actor
	if err != nil {
		return err
	}
	return required("provider", b.Provider != "", "kind", b.Kind != "", "passed", passed,
		"expires_at", !b.ExpiresAt.IsZero())
}

func decodeRequest(e *Entry) error {
	b := &Request{Producer: e.Token}
	e.Body = b
	var canonical []byte
	err := body(e, func(name string, r *reader) bool {
		switch name {
		case "owner":
			b.Owner = r.ident()
		case "key":
			b.Key = r.ident()
		case "kind":
			b.Kind = r.named()
		case "input":
			b.Input, canonical = r.document()
		case "provider":
			b.Provider = r.named()
		case "run_at":
			b.RunAt = r.time()
		case "delay":
			b.DelayMS = r.delay()
		default:
			return false
		}
		return true
	})
	if err != nil {
		return err
	}
	if e.Actor == "" {
		e.Actor = e.Token
	}
	b.Actor = e.Actor
	if err := required("owner", b.Owner != "", "key", b.Key != "", "kind", b.Kind != "", "input", b.Input != nil); err != nil {
		return err
	}
	switch {
	case b.DelayMS != 0 && !b.RunAt.IsZero():
		return fault("/delay", "it stands beside run_at; give one of them")
	case b.RunAt.Sub(e.At) > MaxDelay:
		return fault("/run_at", "it is more than %d days away", int(MaxDelay.Hours()/24))
	}
	b.fingerprint(canonical)
	e.Job = JobID(b.Owner, b.Key)
	return nil
}

// fingerprint digests all that changes behaviour, in canonical form.
func (b *Request) fingerprint(canonicalInput []byte) {
	o := object(make([]byte, 0, len(canonicalInput)+192))
	o.optInt("delay_ms", b.DelayMS)
	o.raw("input", canonicalInput)
	o.text("kind", b.Kind)
	o.optText("provider", b.Provider)
	if !b.RunAt.IsZero() {
		o.int("run_at_us", b.RunAt.UnixMicro())
	}
	b.Fingerprint = sha256.Sum256(o.close())
}

// delay reads a duration such as "10m" and returns whole milliseconds.
func (r *reader) delay() int64 {
	at := r.pos
	v := r.text()
	if r.err != nil {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 || d > MaxDelay || d%time.Millisecond != 0 {
		r.pos = at
		r.reject(`%s; expected a duration in whole milliseconds up to %d days, such as "90s" or "10m"`,
			Quote(v), int(MaxDelay.Hours()/24))
		return 0
	}
	return d.Milliseconds()
}

func decodeCancel(e *Entry) error {
	b := &Cancel{}
	e.Body = b
	err := jobBody(e, func(name string, r *reader) bool {
		switch name {
		case "owner":
			b.Owner = r.ident()
		case "reason":
			b.Reason = r.freeText()
		default:
			return false
		}
		return true
	})
	b.Job, b.Actor = e.Job, e.Actor
	return err
}

func decodeAsk(e *Entry) error {
	b := &AttemptAsk{}
	e.Body = b
	err := jobBody(e, func(name string, r *reader) bool {
		switch name {
		case "owner":
			b.Owner = r.ident()
		case "key":
			b.Key = r.ident()
		case "provider":
			b.Provider = r.named()
		case "force":
			b.Force = r.bool()
		default:
			return false
		}
		return true
	})
	b.Job, b.Actor = e.Job, e.Actor
	if err != nil {
		return err
	}
	return required("key", b.Key != "")
}

func decodeDue(e *Entry) error {
	b := &Due{}
	e.Body = b
	err := jobBody(e, func(name string, r *reader) bool {
		switch name {
		case "attempt":
			b.Attempt = r.attempt()
		case "due":
			b.Due = r.time()
		default:
			return false
		}
		return true
	})
	b.Job = e.Job
	if err != nil {
		return err
	}
	return required("due", !b.Due.IsZero())
}

// digest reads a SHA-256 in hex, or "" for none.
func (r *reader) digest() string {
	at := r.pos
	v := r.text()
	if _, err := hex.DecodeString(v); r.err == nil && v != "" && (err != nil || len(v) != 2*sha256.Size) {
		r.pos = at
		r.reject("%s; expected the %d hexadecimal digits of a SHA-256", Quote(v), 2*sha256.Size)
	}
	return strings.ToLower(v)
}

// attempt reads an attempt's number.
func (r *reader) attempt() int {
	at := r.pos
	n := r.int()
	if r.err == nil && (n < 1 || n > MaxAttemptsPerJob) {
		r.pos = at
		r.reject("%s; expected an attempt's number, from 1 to %d", strconv.FormatInt(n, 10), MaxAttemptsPerJob)
	}
	return int(n)
}
