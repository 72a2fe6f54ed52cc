// Package presence tells who is there and notices who is gone.
//
// A process that works on attempts puts a key of its own into a key-value
// bucket every second or so: a [Beacon] does. A [Watcher] follows the bucket.
// When a process has been silent for longer than a kind of work allows, the
// watcher says in the ledger that the running attempts of that kind which the
// process holds have lost their worker, and the fold makes them unknown: at
// once, and not at their deadlines.
//
// Presence is a help and no proof. It stays outside of the stream, nothing in
// the ledger depends on it, and to be called lost by mistake costs little: a
// completion that comes after all is taken as any late one is.
package presence

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"jobledger/ledger"
)

const (
	// MinHeartbeat is the shortest silence that means anything: three beats.
	// Shorter heartbeat timeouts are taken for this one.
	MinHeartbeat = 3 * time.Second
	// maxNameBytes bounds a key.
	maxNameBytes = 256
	// keyLife is how long the key of a process is kept that nobody watched die.
	keyLife = 24 * time.Hour
	// maxValueBytes and maxBucketBytes bound the bucket.
	maxValueBytes  = 4 << 10
	maxBucketBytes = 16 << 20
)

// Bucket returns the name of the key-value bucket that belongs to a ledger's
// stream.
func Bucket(stream string) string { return stream + "_workers" }

// Create makes the bucket of a ledger, or brings its settings up to date.
//
// It is kept in files. A bucket in memory would be gone after a restart of a
// single server, and since nothing but the making of a ledger makes the bucket,
// presence with it. A beat is a write of some hundred bytes a second for each
// process.
func Create(ctx context.Context, js jetstream.JetStream, stream string, replicas int) error {
	_, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket:       Bucket(stream),
		Description:  "Who works for the ledger " + stream + ": a key for each process, put every second or so",
		MaxValueSize: maxValueBytes,
		MaxBytes:     maxBucketBytes,
		History:      1,
		TTL:          keyLife,
		Storage:      jetstream.FileStorage,
		Replicas:     replicas,
	})
	if err != nil {
		return fmt.Errorf("presence: create the bucket %s: %w", Bucket(stream), err)
	}
	return nil
}

// namePattern is what may be a key and is one token of a subject.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9_=/-]+$`)

// CheckName says why a name cannot be a process's key. The name is what the
// process calls itself in its claims.
func CheckName(name string) error {
	if len(name) > maxNameBytes || !namePattern.MatchString(name) {
		return fmt.Errorf("the name %s; expected 1 to %d characters of A-Z a-z 0-9 - _ = /", ledger.Quote(name), maxNameBytes)
	}
	return nil
}

// timing holds the intervals. They are no options, because all who share a
// bucket must agree; tests shorten them.
type timing struct {
	beat       time.Duration // from beat to beat, at most; at least three quarters of it
	put        time.Duration // bounds one beat
	retry      time.Duration // between looks for a bucket that is not there
	gap        time.Duration // between own beats, above which the watcher has seen nothing
	shortest   time.Duration // MinHeartbeat
	tick       time.Duration // between judgements
	recheck    time.Duration // the first pause before a silent process is looked at again; it doubles
	recheckMax time.Duration
	forget     time.Duration // silence after which a process that holds nothing is forgotten
	blind      time.Duration // without own beats, after which the watch is begun anew
	decide     time.Duration // bounds one entry with its decision
}

func defaultTiming() timing {
	return timing{
		beat:       time.Second,
		put:        2 * time.Second,
		retry:      30 * time.Second,
		gap:        2500 * time.Millisecond,
		shortest:   MinHeartbeat,
		tick:       200 * time.Millisecond,
		recheck:    500 * time.Millisecond,
		recheckMax: 30 * time.Second,
		forget:     10 * time.Minute,
		blind:      10 * time.Second,
		decide:     10 * time.Second,
	}
}

// missing reports whether err says that there is no bucket.
func missing(err error) bool { return errors.Is(err, jetstream.ErrBucketNotFound) }
