// Package ledgerenv gives a test a whole ledger: a migrated database and a
// stream. It is apart from testenv so that the schema's own tests can use that.
package ledgerenv

import (
	"context"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"jobledger/internal/testenv"
	"jobledger/schema"
)

// Ledger is an empty ledger of a test's own.
type Ledger struct {
	// DatabaseURL is of a database with the ledger's schema.
	DatabaseURL string
	// JS reaches the stream; JS.Conn() is a connection of the test's own.
	JS jetstream.JetStream
	// Stream is the stream's name, and Prefix what its subjects start with.
	Stream, Prefix string
}

// New makes a ledger on the tests' servers, and removes it when the test ends.
func New(t testing.TB) Ledger {
	t.Helper()
	js, stream, prefix := testenv.Stream(t)
	return Ledger{DatabaseURL: Database(t), JS: js, Stream: stream, Prefix: prefix}
}

// Database makes a database with the ledger's schema for this test, and drops
// it when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	return testenv.PreparedDatabase(t, "ledger", func(ctx context.Context, url string) error {
		return schema.Migrate(ctx, url, slog.New(slog.DiscardHandler))
	})
}
