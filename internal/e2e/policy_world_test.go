package e2e_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// A storedEntry is what the tests look at of an entry that stands in the stream.
type storedEntry struct {
	Job     string    `json:"job"`
	Attempt int       `json:"attempt"`
	Due     time.Time `json:"due"`
}

// entries returns what is stored under a subject, such as clock.due, in order.
func (w *world) entries(subject string) (list []storedEntry) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	consumer, err := w.js.OrderedConsumer(ctx, w.stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{w.prefix + "." + subject}})
	require.NoError(w.t, err)
	info, err := consumer.Info(ctx)
	require.NoError(w.t, err)
	for range info.NumPending {
		msg, err := consumer.Next(jetstream.FetchMaxWait(patience))
		require.NoError(w.t, err)
		var e storedEntry
		require.NoError(w.t, json.Unmarshal(msg.Data(), &e), string(msg.Data()))
		list = append(list, e)
	}
	return list
}

// moment returns the time that the query gives.
func (w *world) moment(sql string, args ...any) time.Time {
	w.t.Helper()
	return queried[time.Time](w, sql, args)
}

// backoffWait is the documented wait before the next try of a job that has had n
// attempts, of which tries count: initial times the factor to the power tries-1,
// at most the maximum, less a jitter of up to a half that the job's id and n
// give. It is written down here once more so that the ledger is held to it.
func backoffWait(job string, n, tries int, initial, most time.Duration, factor int64) time.Duration {
	wait := initial.Milliseconds()
	for range tries - 1 {
		wait = min(wait*factor, most.Milliseconds())
	}
	id := uuid.MustParse(job)
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(id[:], uint32(n)))
	jitter := binary.BigEndian.Uint64(sum[:8]) % uint64(wait/2+1)
	return time.Duration(wait-int64(jitter)) * time.Millisecond
}

// state is a job's state, and the reason of it if there is one.
func (c *client) state(id string) string {
	c.t.Helper()
	a := c.job(id)
	return strings.TrimSpace(a.text("state") + " " + a.text("state_reason"))
}

// becomes waits until the job is in that state, as state has it.
func (w *world) becomes(id, state string) {
	w.t.Helper()
	w.eventually(1, "SELECT count(*) FROM ledger.jobs WHERE id = $1 AND concat_ws(' ', state, state_reason) = $2", id, state)
}

// brake pauses a provider or lets it go on.
func (w *world) brake(provider string, paused bool) {
	w.t.Helper()
	w.is(w.publish("provider.define", body{"name": provider, "paused": paused, "reason": "a test", "actor": "operator:ann"}), "accepted", "")
}

// crash kills the process and starts it again.
func (p *process) crash() {
	p.w.t.Helper()
	p.kill()
	p.start()
}

// serveOnly starts a worker for one provider, which is a line of a configuration.
func (w *world) serveOnly(name, provider string) *process {
	w.t.Helper()
	whole, err := os.ReadFile(w.config)
	require.NoError(w.t, err)
	text, _, found := strings.Cut(string(whole), "kinds:")
	require.True(w.t, found)
	path := filepath.Join(w.dir, "only-"+name+".yaml")
	require.NoError(w.t, os.WriteFile(path, []byte(text+"providers:\n"+provider), 0o600))
	return w.serve("worker", func(p *process) { p.args = append(p.args, "--config", path) })
}
