// Package config reads jobledger.yaml and the tokens file, strictly.
//
// Every fault is reported with file, line, column, member path, what was found
// and what was expected, and all faults of a file are reported at once. A
// [Config] that [Load] returns without an error is valid as a whole: names,
// bounds, enumerations and the references from kinds to providers are checked.
//
// Secrets never stand in these files. The configuration names environment
// variables and files that hold them, credentials inside URLs are refused, and
// no error quotes a value that may have been a secret pasted into the wrong
// place.
//
// Beside the contract's own package the package imports no sibling; its callers
// convert its values to their own.
package config

import "time"

// Config is the whole of jobledger.yaml. Its zero value is not usable: start
// from [Default], [Dev] or [Load].
type Config struct {
	NATS     NATS
	Database Database
	API      API
	Workers  Workers
	// Kinds by name. Never nil in a Config that this package made.
	Kinds map[string]Kind
	// Providers by name. Never nil in a Config that this package made.
	Providers map[string]Provider
}

// NATS says where the stream is and how its subjects start.
type NATS struct {
	// URL is one NATS URL or several with commas between them, without
	// credentials. Default nats://127.0.0.1:4222.
	URL string
	// Stream is the JetStream stream's name. Default LEDGER.
	Stream string
	// SubjectPrefix is the one token that starts every subject. Default ledger.
	SubjectPrefix string
	// Creds is the path of a NATS credentials file; empty: none.
	Creds string
	// Monitor is the base URL of the server's monitoring endpoint; empty: none.
	Monitor string
}

// Database says where the tables are.
type Database struct {
	// URL is a postgres:// URL without a password (that comes from PGPASSWORD,
	// a passfile or the command's own flag). Empty: not configured.
	URL string
}

// API says where the HTTP surfaces listen and who may call them.
type API struct {
	// Listen is host:port of the API. Default 127.0.0.1:8080; port 0 picks one.
	Listen string
	// Metrics is host:port of the metrics' own listener. Default
	// 127.0.0.1:9090; empty: no metrics are served.
	Metrics string
	// TokensFile is the path that [LoadTokens] reads; empty: no tokens.
	TokensFile string
}

// Workers says what the worker role needs beside its providers.
type Workers struct {
	// Spool is the folder for completions that cannot be appended, so that they
	// outlive the process. One process at a time may use it. Empty: there is none
	// (`jobledger dev` then has one in its data directory).
	Spool string
}

// Effects says whether an attempt changes anything outside the ledger.
type Effects string

// The values of [Effects].
const (
	EffectsExternal Effects = "external" // the default: an attempt may charge, send, write
	EffectsNone     Effects = "none"     // pure inference or reads: may be raced and repeated
)

// Mode says how many attempts of a job may be in flight at once.
type Mode string

// The values of [Mode].
const (
	ModeExclusive Mode = "exclusive" // the default: one
	ModeRace      Mode = "race"      // several; needs EffectsNone and Kind.HedgeAfter
)

// Failover says when a job may move to its kind's next provider by itself.
type Failover string

// The values of [Failover].
const (
	FailoverVerified Failover = "verified" // the default: to a provider with a passing verification
	FailoverNever    Failover = "never"    // only a person moves it
)

// Kind is one kind of work. All durations are whole milliseconds.
type Kind struct {
	// Name is the key under which the kind stands in the file.
	Name string
	// Providers in the order of preference; at least one, none twice.
	Providers []string
	Effects   Effects
	Mode      Mode
	// HedgeAfter is how long a race waits for a result before it starts the
	// next provider. Above 0 with ModeRace, otherwise 0.
	HedgeAfter time.Duration
	// StartTimeout is how long a start may wait for a worker; 0 (the default):
	// as long as it takes.
	StartTimeout time.Duration
	// AttemptTimeout is how long a claimed attempt may run before it is
	// unknown. Default 60 s; above 0.
	AttemptTimeout time.Duration
	// HeartbeatTimeout is how long the worker of a running attempt may be
	// silent before the attempt is unknown; 0 (the default): only the attempt's
	// deadline counts. At least 3 s otherwise.
	HeartbeatTimeout time.Duration
	// MaxAttempts counts the attempts that ran. Default 4.
	MaxAttempts int
	Backoff     Backoff
	Failover    Failover
	// Contract is the path of the kind's contract file; empty: no contract.
	Contract string
}

// Backoff says how long to wait before an automatic retry.
type Backoff struct {
	// Initial is the first wait. Default 1 s; above 0.
	Initial time.Duration
	// Max is the longest wait. Default 1 min; not below Initial.
	Max time.Duration
	// FactorMilli is the growth from wait to wait in thousandths, 1000 to
	// 100000. Default 2000 (each wait is twice the one before).
	FactorMilli int64
}

// Provider is one configured provider.
type Provider struct {
	// Name is the key under which the provider stands in the file.
	Name string
	// Concurrency is the number of attempts that one worker runs at once.
	// Default 16.
	Concurrency int
	// Spec is what depends on the type: an [HTTP], an [Exec], a [Model] or an [Own],
	// by value.
	Spec ProviderSpec
}

// Type is the provider's type as the file spells it, such as "http".
func (p Provider) Type() string { return p.Spec.providerType() }

// ProviderSpec is the part of a provider that depends on its type. The types of
// this package are the only ones that satisfy it.
type ProviderSpec interface{ providerType() string }

const (
	defaultNATSURL        = "nats://127.0.0.1:4222"
	defaultStream         = "LEDGER"
	defaultSubjectPrefix  = "ledger"
	defaultListen         = "127.0.0.1:8080"
	defaultMetrics        = "127.0.0.1:9090"
	defaultAttemptTimeout = 60 * time.Second
	defaultMaxAttempts    = 4
	defaultBackoffInitial = time.Second
	defaultBackoffMax     = time.Minute
	defaultFactorMilli    = 2000
	defaultConcurrency    = 16

	defaultLookupTimeout    = 10 * time.Second
	defaultReconcileInitial = time.Second
	defaultReconcileMax     = 5 * time.Minute
)

// Default returns the configuration that an empty file means: local servers, no
// kinds, no providers, no database. Each call returns a value of its own.
func Default() *Config {
	return &Config{
		NATS:      NATS{URL: defaultNATSURL, Stream: defaultStream, SubjectPrefix: defaultSubjectPrefix},
		API:       API{Listen: defaultListen, Metrics: defaultMetrics},
		Kinds:     map[string]Kind{},
		Providers: map[string]Provider{},
	}
}

// Dev returns the configuration that `jobledger dev` uses without a file: a kind
// echo (effects none) on an exec provider echo that runs echoCommand. The
// command gets {"job_id","attempt","kind","input"} on stdin and prints the
// result as JSON. It panics if echoCommand is empty: that is the caller's bug.
func Dev(echoCommand []string) *Config {
	if len(echoCommand) == 0 {
		panic("config.Dev: echoCommand is empty; give the program and its arguments")
	}
	const echo = "echo"
	kind := defaultKind(echo)
	kind.Providers = []string{echo}
	kind.Effects = EffectsNone

	c := Default()
	c.Kinds[echo] = kind
	c.Providers[echo] = Provider{
		Name:        echo,
		Concurrency: defaultConcurrency,
		Spec:        Exec{Command: append([]string(nil), echoCommand...)},
	}
	return c
}

func defaultKind(name string) Kind {
	return Kind{
		Name:           name,
		Effects:        EffectsExternal,
		Mode:           ModeExclusive,
		AttemptTimeout: defaultAttemptTimeout,
		MaxAttempts:    defaultMaxAttempts,
		Backoff: Backoff{
			Initial:     defaultBackoffInitial,
			Max:         defaultBackoffMax,
			FactorMilli: defaultFactorMilli,
		},
		Failover: FailoverVerified,
	}
}
