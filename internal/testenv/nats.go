package testenv

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"jobledger/internal/stream"
)

// NATSURL is the URL of the shared NATS server or the one that NATSEnv names.
func NATSURL(t testing.TB) string {
	t.Helper()
	if given := os.Getenv(NATSEnv); given != "" {
		return given
	}
	server, err := shared.startNATS()
	if err != nil {
		t.Fatalf("start the tests' NATS server: %v", err)
	}
	return server.URL()
}

// NATS returns a new connection to NATSURL, closed when the test ends.
func NATS(t testing.TB) *nats.Conn {
	t.Helper()
	return Connect(t, NATSURL(t))
}

// Connect connects to a NATS server until the test ends. The connection
// reconnects for ever, every 50 ms, as fault tests need.
func Connect(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	options = append([]nats.Option{
		nats.Name(t.Name()),
		nats.Timeout(10 * time.Second),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(50 * time.Millisecond),
		nats.ReconnectJitter(10*time.Millisecond, 10*time.Millisecond),
	}, options...)
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatalf("connect to the tests' NATS server: %v", err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Stream creates a ledger's stream on NATSURL for this test, with a name and a
// subject prefix that no other test uses, and deletes it when the test ends.
func Stream(t testing.TB) (js jetstream.JetStream, name, prefix string) {
	t.Helper()
	return StreamOn(t, NATS(t))
}

// StreamOn is Stream on a connection of the test's choice.
func StreamOn(t testing.TB, nc *nats.Conn) (js jetstream.JetStream, name, prefix string) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("open JetStream: %v", err)
	}
	prefix = unique()
	name = "LEDGER_" + prefix
	if _, err := stream.Create(setupContext(t), js, stream.Config(name, prefix, 1, 0)); err != nil {
		t.Fatalf("create the test's stream: %v", err)
	}
	t.Cleanup(func() { deleteStream(t, js, name) })
	return js, name, prefix
}

func deleteStream(t testing.TB, js jetstream.JetStream, name string) {
	t.Helper()
	if js.Conn().IsClosed() {
		return // the test took the connection, or its server, away itself
	}
	ctx, cancel := cleanupContext()
	defer cancel()
	err := js.DeleteStream(ctx, name)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("delete the test's stream: %v", err)
	}
}
