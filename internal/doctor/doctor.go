// Package doctor looks a ledger over: its stream, its servers, its tables, and
// what the configuration says of them. It changes nothing.
package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"jobledger/ledger"
	"jobledger/projector"
)

// Status is the outcome of a check.
type Status string

// The outcomes.
const (
	OK        Status = "ok"
	Problem   Status = "problem"
	Unchecked Status = "not checked" // what it needs was not given, or has a problem itself
)

// A Finding is what a check found.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"` // what was found and, of a problem, what to do
}

// Tables reads the ledger's tables.
type Tables interface {
	// Checkpoints returns up to where the tables know the stream, by shard.
	Checkpoints(ctx context.Context) ([]uint64, error)
	// Unknown returns the unknown attempts that are somebody's concern, by
	// provider and kind.
	Unknown(ctx context.Context) ([]projector.UnknownGroup, error)
	// Kinds returns the definitions that hold now.
	Kinds(ctx context.Context) ([]*ledger.KindRow, error)
	// Providers returns the definitions that hold now.
	Providers(ctx context.Context) ([]*ledger.ProviderRow, error)
}

// A Patient is the ledger to be looked over. What is missing is not checked, and
// the error beside it, if there is one, is a finding.
type Patient struct {
	Stream, Prefix string

	Conn    *nats.Conn // nil: ConnErr says why
	ConnErr error
	Monitor string // base URL of a server's monitoring endpoint; "": none

	DatabaseURL string // "": none is configured
	Tables      Tables // nil: TablesErr says why
	TablesErr   error

	// Kinds and Providers are what the configuration defines, by name, as the
	// ledger would store it.
	Kinds     map[string]json.RawMessage
	Providers map[string]json.RawMessage

	// UnknownAge is how old an unknown attempt may be: DefaultUnknownAge.
	UnknownAge time.Duration
	// CatchUp is how long the tables may take to reach the stream's end of now:
	// DefaultCatchUp.
	CatchUp time.Duration
	// MaxSkew is how far two clocks may be apart: DefaultMaxSkew.
	MaxSkew time.Duration
}

// Defaults of a Patient.
const (
	DefaultUnknownAge = 15 * time.Minute
	DefaultCatchUp    = 5 * time.Second
	DefaultMaxSkew    = 2 * time.Second
)

// checkTimeout bounds one check.
const checkTimeout = 30 * time.Second

// checks are in the order in which they are reported. Each returns a status and
// a text; an empty text leaves the check out.
var checks = []struct {
	name string
	look func(ctx context.Context, p *Patient) (Status, string)
}{
	{"nats", connection},
	{"nats version", serverVersion},
	{"nats sync", syncInterval},
	{"nats storage", serverStorage},
	{"stream settings", streamSettings},
	{"stream fill", streamFill},
	{"clock of nats", natsClock},
	{"database", databaseServer},
	{"database order", databaseOrder},
	{"clock of the database", databaseClock},
	{"schema", schemaVersion},
	{"tables", tables},
	{"projector", projectorBehind},
	{"kinds", kindsDiffer},
	{"providers", providersDiffer},
	{"workers", workersMissing},
	{"unknown attempts", unknownAttempts},
}

// Examine runs every check and returns what they found.
func Examine(ctx context.Context, p Patient) []Finding {
	setDefault(&p.UnknownAge, DefaultUnknownAge)
	setDefault(&p.CatchUp, DefaultCatchUp)
	setDefault(&p.MaxSkew, DefaultMaxSkew)
	findings := make([]Finding, 0, len(checks))
	for _, c := range checks {
		bounded, cancel := context.WithTimeout(ctx, checkTimeout)
		status, detail := c.look(bounded, &p)
		cancel()
		findings = append(findings, Finding{c.name, status, detail})
	}
	return findings
}

func setDefault(d *time.Duration, fallback time.Duration) {
	if *d == 0 {
		*d = fallback
	}
}

// Healthy reports whether no check found a problem.
func Healthy(findings []Finding) bool {
	for _, f := range findings {
		if f.Status == Problem {
			return false
		}
	}
	return true
}

func ok(format string, args ...any) (Status, string) { return OK, fmt.Sprintf(format, args...) }
func problem(format string, args ...any) (Status, string) {
	return Problem, fmt.Sprintf(format, args...)
}
func unchecked(format string, args ...any) (Status, string) {
	return Unchecked, fmt.Sprintf(format, args...)
}

func noConnection() (Status, string) { return unchecked("there is no connection to NATS") }
func noTables() (Status, string)     { return unchecked("the tables cannot be read") }
