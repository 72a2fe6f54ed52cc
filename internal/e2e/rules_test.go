package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// trial is the program that knows one version of the rules more: under it, who
// cancels a job must say why (ledger/rules_trial.go).
var trial = sync.OnceValues(func() (string, error) { return build("trial", "-tags", "trialrules") })

const trialRules = ledger.MaxRules + 1

// cancelSilently cancels a job without a reason.
func (w *world) cancelSilently(id string) decision {
	w.t.Helper()
	return w.publish("job.cancel", body{"job": id})
}

// TestChangeOfRules brings new rules into a ledger at work: what was decided
// before stays, whoever folds it later, and a program without them stops.
func TestChangeOfRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{yaml: oneKind("", &stub{name: "main", url: "http://127.0.0.1:9/run"}), shards: 2})
	p := w.serve("api,projector")
	w.apply()
	c := p.client("acme")
	var jobs []string
	for i := range 4 {
		jobs = append(jobs, c.create(fmt.Sprint("job ", i), pay(`"answer"`)))
	}
	w.is(w.cancelSilently(jobs[0]), "accepted", "")

	// The new program folds by the old rules until they change.
	p.stop()
	w.binary = trial
	p.start()
	w.is(w.cancelSilently(jobs[1]), "accepted", "")
	w.is(w.publish("rules.set", body{"rules": trialRules}), "accepted", "")
	w.is(w.cancelSilently(jobs[2]), "refused", "forbidden")
	p.restart()
	w.is(w.cancelSilently(jobs[3]), "refused", "forbidden")
	w.is(w.publish("job.cancel", body{"job": jobs[3], "reason": "seen twice"}), "accepted", "")
	for range 2 {
		w.verify()
		for i, state := range []string{"cancelled", "cancelled", "running", "cancelled"} {
			require.Equal(t, state, c.job(jobs[i]).text("state"), "job %d", i)
		}
		require.Equal(t, 2, w.number("SELECT count(*) FROM ledger.rejections"))
		for i, decisions := range []string{"accepted accepted", "accepted accepted", "accepted refused", "accepted refused accepted"} {
			require.Equal(t, decisions, w.decisions(jobs[i]), "the history of job %d", i)
		}
		w.run("rebuild").is(t, 0)
	}

	// The old program does not know what holds now.
	p.stop()
	w.binary = nil
	p.launch()
	w.notReady(p, "run a newer jobledger")
	verify := w.run("verify")
	require.NotZero(t, verify.code)
	for _, out := range []output{verify, w.run("rebuild").is(t, 4)} {
		require.Contains(t, out.stderr, fmt.Sprintf("this binary knows versions up to %d; run a newer jobledger", ledger.MaxRules))
	}
	p.kill()
	w.binary = trial
	p.start()
	w.verify()
}

// decisions returns what the history of a job says was decided, starts left out.
func (w *world) decisions(id string) string {
	w.t.Helper()
	var told struct {
		Entries []struct{ Decision string }
	}
	out := w.run("job", "history", id, "-o", "json").is(w.t, 0)
	require.NoError(w.t, json.Unmarshal([]byte(out.stdout), &told), out.stdout)
	var list []string
	for _, e := range told.Entries {
		if e.Decision != "" {
			list = append(list, e.Decision)
		}
	}
	return strings.Join(list, " ")
}

// TestNewerRulesStopAProgram sets rules that the program at work does not know.
// What it had folded before stays to be read.
func TestNewerRulesStopAProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{yaml: oneKind("", &stub{name: "main", url: "http://127.0.0.1:9/run"})})
	p := w.serve("api,projector")
	w.apply()
	c := p.client("acme")
	id := c.create("before", pay(`"answer"`))
	_, err := w.js.Publish(w.ctx(), w.prefix+".rules.set", fmt.Appendf(nil, `{"v":1,"rules":%d}`, trialRules))
	require.NoError(t, err)
	at := w.streamEnd()
	w.notReady(p, fmt.Sprintf("entry %d cannot be folded", at))
	c.job(id)
	p.kill()
	p.launch() // a restart changes nothing
	w.notReady(p, "run a newer jobledger")
	require.Contains(t, w.run("rebuild").is(t, 4).stderr, "run a newer jobledger")
	p.kill()
	w.binary = trial
	p.start()
	w.verify()
}

// notReady waits until a process says that it is not ready, and why.
func (w *world) notReady(p *process, why string) {
	w.t.Helper()
	testenv.Eventually(w.t, patience, func() (bool, string) {
		status, text := p.readyz()
		return status == http.StatusServiceUnavailable && strings.Contains(text, why), fmt.Sprintf("/readyz says %d %s", status, text)
	})
}
