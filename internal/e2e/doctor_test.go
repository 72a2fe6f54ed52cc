package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/testenv"
)

// doctor runs the command and returns the line of one check.
func (w *world) doctor(code int, check string) string {
	w.t.Helper()
	out := w.run("doctor", "--unknown-age", "24h").is(w.t, code)
	for line := range strings.SplitSeq(out.stdout, "\n") {
		if strings.HasPrefix(line, check+"  ") {
			return line
		}
	}
	w.t.Fatalf("there is no check %q:\n%s", check, out.stdout)
	return ""
}

// TestDoctor looks over a ledger that is well, and then as its parts are taken
// away.
func TestDoctor(t *testing.T) {
	t.Parallel()
	port := testenv.FreePort(t)
	nats := testenv.StartNATS(t, natsserver.Options{SyncAlways: true, MonitorPort: port})
	main := newStub(t, "main")
	w := newWorld(t, setup{nats: nats.URL(), yaml: oneKind("", main)})
	w.attach(main)
	text, err := os.ReadFile(w.config)
	require.NoError(t, err)
	change := func(old, now string) {
		t.Helper()
		require.Contains(t, string(text), old)
		text = []byte(strings.Replace(string(text), old, now, 1))
		require.NoError(t, os.WriteFile(w.config, text, 0o600))
	}
	change("nats: {", fmt.Sprintf(`nats: {monitor: "http://127.0.0.1:%d", `, port))
	projector, worker := w.serve("projector"), w.serve("worker")
	require.Regexp(t, "kinds +problem +pay is not in the ledger", w.doctor(1, "kinds"))
	w.apply()
	testenv.Eventually(t, patience, func() (bool, string) {
		out := w.run("doctor", "-o", "json")
		return out.code == 0 && !strings.Contains(out.stdout, "not checked"), out.stdout
	})

	change("providers: [main]", "providers: [main], max_attempts: 9")
	require.Regexp(t, "problem .*max_attempts is 4 in the ledger and 9", w.doctor(1, "kinds"))
	worker.stop()
	testenv.Eventually(t, patience, func() (bool, string) {
		line := w.doctor(1, "workers")
		return strings.Contains(line, "nobody works for main (of pay)"), line
	})
	projector.stop()
	_, err = w.js.Publish(w.ctx(), w.prefix+".job.request", []byte("{}"))
	require.NoError(t, err)
	require.Regexp(t, "problem .*stand still", w.doctor(1, "projector"))
	w.limitStream(int64(w.streamBytes()) + 100)
	require.Regexp(t, "problem .*raise max_bytes", w.doctor(1, "stream fill"))
	nats.Stop()
	require.Regexp(t, "problem +connect to NATS", w.doctor(1, "nats"))
	nats.Restart()
}
