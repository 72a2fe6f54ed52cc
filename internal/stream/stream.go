// Package stream is the one place that knows how the ledger's stream is
// configured. It creates the stream, opens it and compares it; appending and
// reading are done elsewhere.
package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"jobledger/ledger"
)

// DuplicateWindow is how long the server remembers message ids.
const DuplicateWindow = 2 * time.Minute

// ErrExists: Create found a stream of that name.
var ErrExists = errors.New("the stream exists already")

// ErrMissing: Open found no stream of that name.
var ErrMissing = errors.New("the stream does not exist")

// Config is the configuration of a ledger's stream called name, whose subjects
// start with prefix. replicas below 1 means 1. maxBytes limits the stream, and
// a full stream refuses new entries rather than dropping old ones; 0 or less
// means no limit.
//
// The subjects are enumerated, because a wildcard over all of the prefix would
// also swallow the request/reply services and answer their callers with
// PubAcks.
//
// Nothing in it may lose or hide an entry: no age, message or per-subject
// limit, no TTL, rollup, schedule or counter, no deletes and purges. (Schedules
// would turn rollup on and lift the ban on purges.)
func Config(name, prefix string, replicas int, maxBytes int64) jetstream.StreamConfig {
	if maxBytes <= 0 {
		maxBytes = -1
	}
	return jetstream.StreamConfig{
		Name:        name,
		Description: "Job ledger: every intent and every attempt, append-only",
		Subjects:    ledger.StoredSubjects(prefix),

		Storage:    jetstream.FileStorage,
		Retention:  jetstream.LimitsPolicy,
		Discard:    jetstream.DiscardNew,
		Replicas:   max(replicas, 1),
		Duplicates: DuplicateWindow,

		MaxBytes:          maxBytes,
		MaxConsumers:      -1,
		MaxMsgs:           -1,
		MaxMsgsPerSubject: -1,
		MaxMsgSize:        ledger.MaxPayloadBytes, // what the projector's reader makes room for

		DenyDelete:         true,
		DenyPurge:          true,
		AllowDirect:        true,
		AllowAtomicPublish: true,
		AllowBatchPublish:  true,
	}
}

// Create makes the stream. A stream of that name, whatever its configuration,
// is ErrExists and left alone: adopting one silently could mix two ledgers.
func Create(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	// The server answers a creation with an equal configuration as a success,
	// so the question has to be asked first.
	_, err := js.Stream(ctx, cfg.Name)
	switch {
	case err == nil:
		return nil, fmt.Errorf("create stream %s: %w", cfg.Name, ErrExists)
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("look for stream %s: %w", cfg.Name, err)
	}
	created, err := js.CreateStream(ctx, cfg)
	switch {
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		return nil, fmt.Errorf("create stream %s: %w", cfg.Name, ErrExists)
	case err != nil:
		return nil, fmt.Errorf("create stream %s: %w", cfg.Name, err)
	}
	return created, nil
}

// Open returns the stream called name after comparing it with Config. A
// missing stream is ErrMissing, a different one a *MismatchError. It never
// creates or changes anything.
func Open(ctx context.Context, js jetstream.JetStream, name, prefix string) (jetstream.Stream, error) {
	found, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("open stream %s: %w: restore it from a backup, as docs/runbook.md says; `jobledger init` creates one for a new ledger",
			name, ErrMissing)
	}
	if err != nil {
		return nil, fmt.Errorf("open stream %s: %w", name, err)
	}
	if differences := Check(found.CachedInfo(), prefix); len(differences) > 0 {
		return nil, &MismatchError{Stream: name, Differences: differences}
	}
	return found, nil
}

// MismatchError says in which settings a stream is not a ledger's.
type MismatchError struct {
	Stream      string
	Differences []Difference
}

func (e *MismatchError) Error() string {
	texts := make([]string, len(e.Differences))
	for i, difference := range e.Differences {
		texts[i] = difference.String()
	}
	return fmt.Sprintf("stream %s is not configured as a ledger: %s", e.Stream, strings.Join(texts, "; "))
}
