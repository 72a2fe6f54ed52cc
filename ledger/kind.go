package ledger

import (
	"crypto/sha256"
	"math"
	"slices"
	"time"
)

// Effects says whether doing a kind's work twice does harm.
type Effects string

// The values of Effects.
const (
	EffectsExternal Effects = "external" // the default: never repeated once executed
	EffectsNone     Effects = "none"     // pure: may be raced and repeated
)

// Mode says whether attempts of a job may overlap.
type Mode string

// The values of Mode.
const (
	ModeExclusive Mode = "exclusive" // the default
	ModeRace      Mode = "race"      // needs EffectsNone
)

// FailoverRule says whether automatic work may move to another provider.
type FailoverRule string

// The values of FailoverRule.
const (
	FailoverNever    FailoverRule = "never"
	FailoverVerified FailoverRule = "verified"
)

// A Kind is the definition of a kind of work. Durations are whole milliseconds
// so that no rounding is ever a matter of interpretation.
type Kind struct {
	Name               string
	Providers          []string // in order of preference, at least one
	Effects            Effects
	Mode               Mode
	HedgeAfterMS       int64 // race: how long a provider has before the next one starts too
	StartTimeoutMS     int64 // 0: an unclaimed start waits as long as it takes
	AttemptTimeoutMS   int64 // from the claim; at least 1
	HeartbeatTimeoutMS int64 // 0: a worker's silence alone ends nothing
	MaxAttempts        int
	Backoff            BackoffPolicy
	Failover           FailoverRule
	Contract           string // digest of the contract, "" for none
}

// A BackoffPolicy gives the wait before the n-th repetition: InitialMS times
// the factor to the power n-1, at most MaxMS, less a jitter of up to a half.
type BackoffPolicy struct {
	InitialMS   int64
	MaxMS       int64
	FactorMilli int64 // thousandths: 2000 doubles; integers fold alike on every CPU
}

// AppendJSON appends the definition in its one written form, on which Digest
// rests and which the kinds table shows.
func (k *Kind) AppendJSON(dst []byte) []byte {
	o := object(dst)
	o.text("name", k.Name)
	o.member("providers")
	o.buf = append(o.buf, '[')
	for i, p := range k.Providers {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.buf = appendText(o.buf, p)
	}
	o.buf = append(o.buf, ']')
	o.text("effects", string(k.Effects))
	o.text("mode", string(k.Mode))
	o.int("hedge_after_ms", k.HedgeAfterMS)
	o.int("start_timeout_ms", k.StartTimeoutMS)
	o.int("attempt_timeout_ms", k.AttemptTimeoutMS)
	o.int("heartbeat_timeout_ms", k.HeartbeatTimeoutMS)
	o.int("max_attempts", int64(k.MaxAttempts))
	o.member("backoff")
	in := object(o.buf)
	in.int("initial_ms", k.Backoff.InitialMS)
	in.int("max_ms", k.Backoff.MaxMS)
	in.int("factor_milli", k.Backoff.FactorMilli)
	o.buf = in.close()
	o.text("failover", string(k.Failover))
	o.optText("contract", k.Contract)
	return o.close()
}

// Digest identifies the definition's meaning.
func (k *Kind) Digest() Digest { return sha256.Sum256(k.AppendJSON(nil)) }

// ParseKind reads a definition in any layout and checks it. Members that are
// left out have the defaults of the configuration file.
func ParseKind(data []byte) (Kind, error) {
	r := reader{scanner: scanner{src: data}}
	r.space()
	k, err := r.kind()
	if err != nil {
		return Kind{}, err
	}
	return k, r.end()
}

// DefaultKind returns what holds for a kind that says nothing else. Name and
// Providers must still be set.
func DefaultKind() Kind {
	return Kind{
		Effects: EffectsExternal, Mode: ModeExclusive,
		AttemptTimeoutMS: 60_000, MaxAttempts: 4,
		Backoff:  BackoffPolicy{InitialMS: 1000, MaxMS: 60_000, FactorMilli: 2000},
		Failover: FailoverVerified,
	}
}

func (r *reader) kind() (Kind, error) {
	if r.peek() != '{' {
		return Kind{}, r.fail("%s; expected an object", r.found())
	}
	k := DefaultKind()
	maxMS := MaxTimeout.Milliseconds()
	err := r.each(func(name string, r *reader) error {
		switch name {
		case "name":
			k.Name = r.named()
		case "providers":
			k.Providers = r.names(MaxProviders)
		case "effects":
			k.Effects = oneOf(r, EffectsExternal, EffectsNone)
		case "mode":
			k.Mode = oneOf(r, ModeExclusive, ModeRace)
		case "hedge_after_ms":
			k.HedgeAfterMS = r.count(maxMS)
		case "start_timeout_ms":
			k.StartTimeoutMS = r.count(maxMS)
		case "attempt_timeout_ms":
			k.AttemptTimeoutMS = r.count(maxMS)
		case "heartbeat_timeout_ms":
			k.HeartbeatTimeoutMS = r.count(maxMS)
		case "max_attempts":
			k.MaxAttempts = int(r.between(1, MaxAttemptsLimit))
		case "backoff":
			r.backoff(&k.Backoff)
		case "failover":
			k.Failover = oneOf(r, FailoverNever, FailoverVerified)
		case "contract":
			k.Contract = r.contract()
		default:
			r.reject("an unknown member")
		}
		return r.err
	})
	if err != nil {
		return Kind{}, err
	}
	return k, k.Check()
}

func (r *reader) backoff(b *BackoffPolicy) {
	if r.err != nil {
		return
	}
	if r.peek() != '{' {
		r.expect("an object")
		return
	}
	r.err = r.each(func(name string, r *reader) error {
		switch name {
		case "initial_ms":
			b.InitialMS = r.count(MaxTimeout.Milliseconds())
		case "max_ms":
			b.MaxMS = r.count(MaxTimeout.Milliseconds())
		case "factor_milli":
			b.FactorMilli = r.count(100_000)
		default:
			r.reject("an unknown member")
		}
		return r.err
	})
}

// contract reads a contract's digest: it travels in every start, so it is short
// and needs no escapes.
func (r *reader) contract() string {
	at := r.pos
	v := r.text()
	if r.err == nil && !validContract(v) {
		r.pos = at
		r.reject("%s; expected at most %d letters, digits and the characters : . _ -", Quote(v), MaxContractBytes)
	}
	return v
}

func validContract(v string) bool {
	for i := range len(v) {
		c := v[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && c != ':' && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return len(v) <= MaxContractBytes
}

// names reads an array of at most most names.
func (r *reader) names(most int) []string {
	if r.err != nil {
		return nil
	}
	if r.peek() != '[' {
		r.expect("an array of names")
		return nil
	}
	r.pos++
	var list []string
	for r.err == nil {
		r.space()
		if r.peek() == ']' && len(list) == 0 {
			r.pos++
			return nil
		}
		if list = append(list, r.named()); len(list) > most {
			r.reject("more than %d names", most)
		}
		r.space()
		switch r.peek() {
		case ',':
			r.pos++
		case ']':
			r.pos++
			return list
		default:
			r.expect("',' or ']'")
		}
	}
	return nil
}

// Check reports the first thing in the definition that cannot work, or nil.
func (k *Kind) Check() error {
	switch {
	case !ValidName(k.Name):
		return fault("/name", "%s is not a valid name; expected [a-z0-9][a-z0-9_-]{0,63}", Quote(k.Name))
	case len(k.Providers) == 0:
		return fault("/providers", "it is empty; a kind needs at least one provider")
	case len(k.Providers) > MaxProviders:
		return fault("/providers", "%d providers; at most %d are allowed", len(k.Providers), MaxProviders)
	case !validContract(k.Contract):
		return fault("/contract", "%s is not a contract's digest", Quote(k.Contract))
	case k.AttemptTimeoutMS < 1:
		return fault("/attempt_timeout_ms", "%d; expected at least 1", k.AttemptTimeoutMS)
	case k.MaxAttempts < 1:
		return fault("/max_attempts", "%d; expected 1 to %d", k.MaxAttempts, MaxAttemptsLimit)
	case k.Backoff.FactorMilli < 1000:
		return fault("/backoff/factor_milli", "%d; expected at least 1000, which keeps the wait constant", k.Backoff.FactorMilli)
	case k.Backoff.MaxMS < k.Backoff.InitialMS:
		return fault("/backoff/max_ms", "%d is less than initial_ms %d", k.Backoff.MaxMS, k.Backoff.InitialMS)
	case k.Mode == ModeRace && k.Effects != EffectsNone:
		return fault("/mode", "race needs effects: none, since it does the work more than once")
	case k.Mode == ModeRace && k.HedgeAfterMS < 1:
		return fault("/hedge_after_ms", "%d; race mode needs at least 1", k.HedgeAfterMS)
	case k.Mode == ModeExclusive && k.HedgeAfterMS != 0:
		return fault("/hedge_after_ms", "only race mode hedges")
	}
	for i, p := range k.Providers {
		if slices.Contains(k.Providers[:i], p) {
			return fault("/providers", "%s stands there twice", Quote(p))
		}
	}
	return nil
}

// wait returns the back-off before repetition n (from 1), without jitter.
func (b BackoffPolicy) wait(n int) int64 {
	ms := b.InitialMS
	for range n - 1 {
		if ms >= b.MaxMS || ms > math.MaxInt64/b.FactorMilli {
			break
		}
		ms = ms * b.FactorMilli / 1000
	}
	return min(ms, b.MaxMS)
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
