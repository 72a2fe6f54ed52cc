package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

// measured serves a process whose metrics the test can read.
func (w *world) measured(roles string) (*process, *figures) {
	w.t.Helper()
	address := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(w.t))
	return w.serve(roles, withArgs("--metrics", address)), &figures{t: w.t, url: "http://" + address + "/metrics"}
}

// figures are the metrics of a process.
type figures struct {
	t   testing.TB
	url string
}

// text is a scrape, with what is wrong instead if it fails.
func (f *figures) text() string {
	resp, err := probe.Get(f.url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Sprint(resp.Status, err)
	}
	return string(body)
}

// value is a series' value, false if there is none.
func (f *figures) value(series string) (float64, bool) {
	for line := range strings.Lines(f.text()) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			return v, err == nil
		}
	}
	return 0, false
}

// becomes waits until a series has a value that is enough.
func (f *figures) becomes(series string, enough func(float64) bool) {
	f.t.Helper()
	testenv.Eventually(f.t, patience, func() (bool, string) {
		v, ok := f.value(series)
		return ok && enough(v), fmt.Sprintf("%s is %v (there: %v)", series, v, ok)
	})
}

func is(want float64) func(float64) bool     { return func(v float64) bool { return v == want } }
func above(least float64) func(float64) bool { return func(v float64) bool { return v > least } }

// TestMetricsShowTrouble: what the alerts watch shows when it happens, in the
// processes that are left to tell.
func TestMetricsShowTrouble(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind("attempt_timeout: 1s", main)})
	w.attach(main)
	api, told := w.measured("api")
	projector, folding := w.measured("projector")
	worker, working := w.measured("worker")
	w.apply()
	c := api.client("acme")

	id := c.create("k", pay(`"stall"`))
	working.becomes(`jobledger_calls_in_flight{provider="main"}`, is(1))
	w.eventually(1, "SELECT count(*) FROM ledger.jobs WHERE id = $1 AND state = 'unknown'", id)
	told.becomes(`jobledger_unknown_attempts{kind="pay",provider="main"}`, is(1))
	told.becomes(`jobledger_unknown_oldest_seconds{kind="pay",provider="main"}`, above(1))
	folding.becomes(`jobledger_unknown_attempts{kind="pay",provider="main"}`, is(1))
	working.becomes(`jobledger_attempts_total{kind="pay",outcome="unknown",provider="main"}`, is(1))
	_, there := working.value("jobledger_tables_readable")
	require.False(t, there, "a worker tells nothing of the tables")
	main.release(id)

	worker.stop()
	c.create("k2", pay(`"answer"`))
	told.becomes(`jobledger_starts_waiting{provider="main"}`, is(1))
	told.becomes(`jobledger_worker_pulls{provider="main"}`, is(0))
	folding.becomes(`jobledger_projector_state{state="active"}`, is(1))
	folding.becomes(`jobledger_appends_total{entry="attempt.start",outcome="stored"}`, is(2))

	projector.kill()
	_, err := w.js.Publish(w.ctx(), w.prefix+".job.request", []byte(`{"v":1,"owner":"acme","key":"k3","kind":"pay","input":1}`))
	require.NoError(t, err)
	told.becomes(`jobledger_projector_lag_entries{shard="0"}`, above(0))
	told.becomes(`jobledger_projector_lag_seconds{shard="0"}`, above(0.5))

	projector.start()
	worker.start()
	told.becomes(`jobledger_projector_lag_entries{shard="0"}`, is(0))
	told.becomes(`jobledger_projector_lag_seconds{shard="0"}`, is(0))
	w.verify()
}
