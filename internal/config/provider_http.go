package config

import (
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"
)

// HTTP is a provider of type http: any endpoint that takes and gives JSON.
type HTTP struct {
	// URL is where attempts are posted: http or https, without credentials.
	URL string
	// HeadersEnv maps canonical header names to the environment variables that
	// hold their values; nil: none.
	HeadersEnv map[string]string
	// KnownFailures are the statuses, ascending, that this endpoint answers
	// only when nothing was done; nil: none beyond the protocol's own.
	KnownFailures []int
	// IdempotencyKey says what the Idempotency-Key header holds.
	IdempotencyKey KeyScope
	// Reconcile says how the truth about unknown attempts can be had; its zero
	// value: only from people.
	Reconcile Reconcile
}

func (HTTP) providerType() string { return "http" }

// KeyScope says what a provider's idempotency key stands for.
type KeyScope string

// The values of [KeyScope].
const (
	KeyPerJob     KeyScope = "job"     // the default: <job id>
	KeyPerAttempt KeyScope = "attempt" // <job id>/<n>, for providers that replay a stored error for ever
)

// NotFound says what a look-up means that knows nothing of an attempt.
type NotFound string

// The values of [NotFound].
const (
	NotFoundUnknown NotFound = "unknown" // the default: nothing; the attempt stays unknown
	NotFoundFailed  NotFound = "failed"  // absence is the truth: it never had an effect
)

// Reconcile says what a provider offers for unknown attempts.
type Reconcile struct {
	// Lookup is a URL with the placeholders {job_id} and, optionally,
	// {attempt}, to ask what became of an attempt; empty: there is none.
	Lookup string
	// Replay says that the provider honours idempotency keys, so that the same
	// request may be sent again. Default false.
	Replay bool
	// NotFound is NotFoundUnknown unless the file says otherwise; empty if
	// there is no Lookup.
	NotFound NotFound
	// LookupTimeout bounds one look-up. Default 10 s; 0 if there is no Lookup.
	LookupTimeout time.Duration
	// Backoff says how long the reconciler waits before it looks again.
	Backoff ReconcileBackoff
}

// ReconcileBackoff says how long to wait before an attempt that is still
// unknown is looked at again. Each wait is twice the one before.
type ReconcileBackoff struct {
	// Initial is the first wait. Default 1 s; above 0.
	Initial time.Duration
	// Max is the longest wait. Default 5 min; not below Initial.
	Max time.Duration
}

func readHTTP(o *object) ProviderSpec {
	h := HTTP{IdempotencyKey: KeyPerJob}
	need(o, "url", &h.URL, "an http or https URL", httpURL)
	set(o, "headers_env", &h.HeadersEnv, headersEnv)
	set(o, "known_failures", &h.KnownFailures,
		listOf(0, "a list of HTTP statuses", integer(minKnownFailure, maxKnownFailure)))
	slices.Sort(h.KnownFailures)
	set(o, "idempotency_key", &h.IdempotencyKey, oneOf(KeyPerJob, KeyPerAttempt))
	section(o, "reconcile", func(r *object) { readReconcile(r, &h.Reconcile) })
	return h
}

func readReconcile(o *object, r *Reconcile) {
	r.Backoff = ReconcileBackoff{Initial: defaultReconcileInitial, Max: defaultReconcileMax}
	section(o, "backoff", func(b *object) { readReconcileBackoff(b, &r.Backoff) })
	set(o, "lookup", &r.Lookup, lookupURL)
	set(o, "replay", &r.Replay, boolean)
	set(o, "not_found", &r.NotFound, oneOf(NotFoundUnknown, NotFoundFailed))
	hasLookup := o.has("lookup")
	if hasLookup {
		r.LookupTimeout = defaultLookupTimeout
	}
	set(o, "lookup_timeout", &r.LookupTimeout, durationUpTo(minWait, maxLookupTimeout))
	if o.has("lookup_timeout") && !hasLookup {
		o.spot("lookup_timeout").reject("it without a lookup", "a lookup with it")
	}
	if o.has("not_found") && !hasLookup {
		o.spot("not_found").reject("it without a lookup", "a lookup with it: not_found is about a look-up's answer")
	}
	if !hasLookup && !r.Replay && o.sound("replay") {
		o.reject("neither lookup nor replay: true", "at least one of them, or no reconcile")
	}
	if r.NotFound == "" && hasLookup {
		r.NotFound = NotFoundUnknown
	}
}

func readReconcileBackoff(o *object, b *ReconcileBackoff) {
	set(o, "initial", &b.Initial, duration(minWait))
	set(o, "max", &b.Max, duration(minWait))
	if b.Max < b.Initial && o.sound("initial", "max") {
		o.spot("max").reject(b.Max.String(), "at least initial, "+b.Initial.String())
	}
}

var (
	headerPattern   = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")
	variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

	// ownHeaders are set by the worker or by the transport.
	ownHeaders = []string{
		"Connection", "Content-Length", "Content-Type", "Host", "Idempotency-Key",
		"Ledger-Attempt", "Ledger-Job-Id", "Traceparent", "Transfer-Encoding",
	}
)

const variableExpected = "the name of an environment variable (secrets stay out of this file)"

// environmentVariable reads the name of a variable, and does not quote what is
// not one: it is likely to be the secret itself.
var environmentVariable = hidden(variablePattern, variableExpected)

func headersEnv(n node) (map[string]string, bool) {
	o, ok := n.object("a mapping from header names to environment variables")
	if !ok {
		return nil, false
	}
	headers := map[string]string{}
	o.each(func(name string, n node) {
		header := textproto.CanonicalMIMEHeaderKey(name)
		_, twice := headers[header]
		switch {
		case !headerPattern.MatchString(name):
			n.rejectName("a name that is no HTTP header", "a header's name, such as Authorization")
		case slices.Contains(ownHeaders, header):
			n.rejectName("a header that the ledger sets itself", "any but "+strings.Join(ownHeaders, ", "))
		case twice:
			n.rejectName("the header a second time (case does not count)", "it once")
		default:
			headers[header] = ""
			if variable, good := environmentVariable(n); good {
				headers[header] = variable
			}
		}
	})
	return headers, true
}
