package e2e_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

// A teller is a provider that says what it is told to say, whatever the input.
type teller struct {
	url string

	mu     sync.Mutex
	status int
	says   string
	keys   []string // idempotency keys, in the order of the calls
}

const (
	goodSummary = `{"summary":"short","words":1}`
	summarizeIt = `{"text":"a text that is rather long"}`
)

func newTeller(t testing.TB, says string) *teller {
	t.Helper()
	s := &teller{status: http.StatusOK, says: says}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return // whoever called is gone
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.says)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *teller) tell(status int, says string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.says = status, says
}

func (s *teller) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.keys...)
}

// summaries is a contract that its providers must keep.
const summaries = `
input:
  type: object
  properties: {text: {type: string}}
  required: [text]
result:
  type: object
  properties: {summary: {type: string}, words: {type: integer}}
  required: [summary, words]
assertions:
  - {name: shorter, expr: size(result.summary) < size(input.text), message: a summary is shorter than its text}
limits: {result_bytes: 1000}
cases:
  - {name: plain, input: {text: some words about nothing}}
  - {name: counted, input: {text: two words more}, expect: ["result.words >= 1"]}
`

// contractWorld is a ledger with the kinds pure (effects: none) and real, both
// under the contract of summaries, on the providers main and spare.
func contractWorld(t *testing.T, main, spare *teller) (*world, *client) {
	t.Helper()
	kind := "{providers: [main, spare], contract: contracts/summarize.yaml, max_attempts: 4, backoff: {initial: 10ms, max: 10ms}"
	w := newWorld(t, setup{yaml: "kinds:\n  pure: " + kind + ", effects: none}\n  real: " + kind + "}\n" +
		"providers:\n  main: {type: http, url: \"" + main.url + "\"}\n  spare: {type: http, url: \"" + spare.url + "\"}\n"})
	w.contract(summaries)
	p := w.serve("api,projector,worker")
	w.apply()
	return w, p.client("acme")
}

// contract writes the contract's file.
func (w *world) contract(text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, "contracts", "summarize.yaml")
	require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(w.t, os.WriteFile(path, []byte(text), 0o600))
}

func asked(kind, input string) string { return `{"kind":"` + kind + `","input":` + input + `}` }

// Whatever way a result breaks the contract, it does not win: where an attempt has
// effects the job fails for a person, where it has none others get their turn.
func TestNoBrokenContractWins(t *testing.T) {
	t.Parallel()
	main, spare := newTeller(t, ""), newTeller(t, goodSummary)
	w, c := contractWorld(t, main, spare)
	w.run("provider", "verify", "spare", "--kind", "pure", "--runs", "1").is(t, 0)
	for name, says := range map[string]string{
		"prose":   "Here is your summary: short.",
		"fences":  "```json\n" + goodSummary + "\n```",
		"renamed": `{"Summary":"short","words":1}`,
		"extra":   `{"summary":"short","words":1,"confidence":1}`,
		"array":   "[" + goodSummary + "]",
		"meaning": `{"summary":"a text that is longer than what it was made of","words":1}`,
		"large":   `{"summary":"` + strings.Repeat("x", 1000) + `","words":1}`,
	} {
		main.tell(http.StatusOK, says)
		id := c.create("real "+name, asked("real", summarizeIt))
		a := c.finished(id, "failed")
		require.Equal(t, "contract true", a.text("failure.class")+" "+a.text("failure.executed"), name)
		require.Equal(t, "1", w.text("SELECT count(*)::TEXT FROM ledger.attempts WHERE job_id = $1", id), name)
		require.Equal(t, says, w.outputOf(id), "%s: what was said is kept in the entry", name)

		id = c.create("pure "+name, asked("pure", summarizeIt))
		a = c.finished(id, "succeeded")
		require.JSONEq(t, goodSummary, a.text("result"), name)
		require.Equal(t, "main failed, main failed, spare succeeded",
			w.text("SELECT string_agg(provider || ' ' || state, ', ' ORDER BY number) FROM ledger.attempts WHERE job_id = $1", id), name)
	}
	w.verify()
}

// outputOf returns what the completion of a job's first attempt keeps of what the
// provider said.
func (w *world) outputOf(id string) string {
	w.t.Helper()
	s, err := w.js.Stream(w.ctx(), w.stream)
	require.NoError(w.t, err)
	msg, err := s.GetMsg(w.ctx(), uint64(w.number("SELECT seqs[array_length(seqs, 1)] FROM ledger.attempts WHERE job_id = $1 AND number = 1", id)))
	require.NoError(w.t, err)
	var entry struct{ Output string }
	require.NoError(w.t, json.Unmarshal(msg.Data, &entry))
	return entry.Output
}

// A bad input is turned away at every door that is ours, with its places, and by
// the worker where it came in past them.
func TestInputsAreCheckedAtTheDoors(t *testing.T) {
	t.Parallel()
	main, spare := newTeller(t, goodSummary), newTeller(t, goodSummary)
	w, c := contractWorld(t, main, spare)
	const bad = `{"text":7,"more":1}`
	a := c.submit("bad", asked("pure", bad)).is(http.StatusUnprocessableEntity, "invalid-input")
	require.Equal(t, "/more /text", strings.Join(sortedPointers(a), " "))
	reply, err := w.js.Conn().Request(w.prefix+".api.job.submit", []byte(`{"owner":"acme","key":"bad","kind":"pure","input":`+bad+`}`), patience)
	require.NoError(t, err)
	require.Equal(t, "422", reply.Header.Get("Nats-Service-Error-Code"))
	out := w.run("submit", "--owner", "acme", "--key", "bad", "--kind", "pure", "--input", bad).is(t, 4)
	require.Contains(t, out.stderr, "/text: got number, want string")
	require.Zero(t, w.number("SELECT count(*) FROM ledger.jobs"))

	// Plain publishing asks nobody.
	_, err = w.js.PublishMsg(w.ctx(), &nats.Msg{Subject: w.prefix + ".job.request", Data: []byte(`{"v":1,"owner":"acme","key":"plain","kind":"real","input":` + bad + `}`)})
	require.NoError(t, err)
	w.becomes(c.jobID("plain"), "failed")
	require.Equal(t, "invalid_input false", w.text("SELECT failure_class || ' ' || executed FROM ledger.attempts"))
	require.Empty(t, main.calls(), "no provider saw any of them")

	// A process whose file is older than what was applied lets inputs pass, and
	// its workers do not work on what they cannot judge.
	w.contract(strings.ReplaceAll(summaries, "properties: {text: {type: string}}", "properties: {text: {type: [string, integer]}, more: {type: integer}}"))
	w.apply()
	testenv.Eventually(t, patience, func() (bool, string) { // it looks once a second
		a := c.submit("newer", asked("pure", bad))
		return a.status == http.StatusCreated, string(a.raw)
	})
	id := c.jobID("newer")
	w.eventually(1, "SELECT count(*) FROM ledger.attempts WHERE job_id = $1 AND state = 'unsent' AND failure_class = 'contract_mismatch' AND number = 1", id)
	c.cancel(id)
	w.verify()
}

func sortedPointers(a answer) (list []string) {
	errors, _ := a.body["errors"].([]any)
	for _, e := range errors {
		list = append(list, e.(map[string]any)["pointer"].(string))
	}
	if len(list) == 2 && list[0] > list[1] {
		list[0], list[1] = list[1], list[0]
	}
	return list
}

// A provider takes over once it has proved that it keeps the contract, and no
// longer than that holds.
func TestFailoverAfterVerification(t *testing.T) {
	t.Parallel()
	main, spare := newTeller(t, "{}"), newTeller(t, `{"summary":"short","words":0}`)
	w, c := contractWorld(t, main, spare)
	main.tell(http.StatusUnauthorized, "{}")
	verify := func(args ...string) output {
		return w.run(append([]string{"provider", "verify", "spare", "--kind", "pure", "--runs", "2"}, args...)...)
	}
	waiting := func(key, why string) string {
		t.Helper()
		id := c.create(key, asked("pure", summarizeIt))
		w.becomes(id, "waiting failover-unverified")
		require.Equal(t, "spare: "+why, c.job(id).text("state_detail"))
		require.Contains(t, w.run("job", "get", id).is(t, 0).stdout, "spare: "+why)
		return id
	}
	first := waiting("never", "it was never verified")
	require.Contains(t, w.run("provider", "list").is(t, 0).stdout, "pure (none)")

	out := verify().is(t, 1)
	require.Contains(t, out.stdout, "spare for pure: failed. 2 of 4 calls kept the contract.")
	require.Contains(t, out.stdout, "result.words >= 1 is false")
	require.Contains(t, out.stdout, `it said: {"summary":"short","words":0}`)
	waiting("failed", "its last verification failed")
	require.Contains(t, w.run("provider", "list").is(t, 0).stdout, "pure (failed)")

	before := w.streamEnd()
	spare.tell(http.StatusTooManyRequests, "{}")
	require.Contains(t, verify("--runs", "1", "--concurrency", "2").is(t, 7).stderr, "nothing is recorded")
	w.caughtUp()
	require.Zero(t, w.number("SELECT count(*) FROM ledger.provider_verifications WHERE seq > $1", int64(before)))

	spare.tell(http.StatusOK, goodSummary)
	out = verify("-o", "json", "--expires", "1h").is(t, 0)
	var said struct {
		Contract string
		Report   struct {
			Verdict string
			Calls   int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &said), out.stdout)
	require.Equal(t, "passed", said.Report.Verdict)
	require.Equal(t, 4, said.Report.Calls)
	require.Equal(t, said.Contract, w.text("SELECT definition->>'contract' FROM ledger.kinds WHERE name = 'pure' ORDER BY seq DESC LIMIT 1"))
	require.Equal(t, "passed", w.text("SELECT report->>'verdict' FROM ledger.provider_verifications ORDER BY seq DESC LIMIT 1"))
	for _, key := range spare.calls() {
		require.True(t, strings.HasPrefix(key, "verify-"), "%s: no job was touched", key)
	}
	c.press(first, "now", `{"provider":"spare"}`).created()
	c.finished(first, "succeeded")
	c.finished(c.create("after", asked("pure", summarizeIt)), "succeeded")

	// The inputs of past jobs are asked, too: both have the same.
	out = verify("--from-jobs", "10", "--runs", "1").is(t, 0)
	require.Contains(t, out.stdout, "3 of 3 calls kept the contract")

	// Another contract is another proof.
	w.contract(summaries + "  - {name: third, input: {text: a third text}}\n")
	require.Contains(t, verify().is(t, 4).stderr, "kind apply first")
	require.Regexp(t, `pure differs: contract is "sha256:\w+" in the ledger and "sha256:\w+" in the configuration`, w.run("doctor").stdout)
	w.apply()
	w.processes[0].crash() // it reads the new contract
	waiting("changed", "the contract has changed since its proof")
	require.Contains(t, w.run("provider", "list").is(t, 0).stdout, "pure (contract changed)")
	w.verify()
}

// What cannot or must not be verified is refused before any call.
func TestVerificationsThatAreRefused(t *testing.T) {
	t.Parallel()
	main, spare := newTeller(t, goodSummary), newTeller(t, goodSummary)
	w, _ := contractWorld(t, main, spare)
	for want, args := range map[string][]string{
		"--allow-effects":          {"spare", "--kind", "real"},
		"has no provider other":    {"other", "--kind", "real"},
		"has no kind other":        {"spare", "--kind", "other"},
		"needs NATS":               {"spare", "--kind", "pure", "--api", "http://127.0.0.1:9"},
		"--runs is 0":              {"spare", "--kind", "pure", "--runs", "0"},
		"--expires is -1h0m0s":     {"spare", "--kind", "pure", "--expires", "-1h"},
		"--from-jobs is 1000000":   {"spare", "--kind", "pure", "--from-jobs", "1000000"},
		"are 200000 calls":         {"spare", "--kind", "pure", "--runs", "100000"},
		`required flag(s) "kind"`:  {"spare"},
		"--concurrency is 1000000": {"spare", "--kind", "pure", "--concurrency", "1000000"},
	} {
		out := w.run(append([]string{"provider", "verify"}, args...)...)
		require.NotZero(t, out.code, args)
		require.Contains(t, out.stderr, want)
	}
	require.Empty(t, spare.calls())
	w.run("provider", "verify", "spare", "--kind", "real", "--allow-effects", "--runs", "1").is(t, 0)
	require.Len(t, spare.calls(), 2)

	// A definition that is not the ledger's is not what was proved.
	text, err := os.ReadFile(w.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.config, []byte(strings.ReplaceAll(string(text), spare.url, spare.url+"/v2")), 0o600))
	require.Contains(t, w.run("provider", "verify", "spare", "--kind", "pure").is(t, 4).stderr, "kind apply first")
	w.apply()
	w.eventually(1, "SELECT count(*) FROM ledger.providers WHERE name = 'spare' AND definition->>'url' LIKE '%/v2'")
	require.Contains(t, w.run("provider", "list").is(t, 0).stdout, "real (provider changed)")
}

// A result that a look-up finds is judged as one that came by itself.
func TestFoundResultsKeepTheContract(t *testing.T) {
	t.Parallel()
	main := newTeller(t, "{}")
	found := newTeller(t, `{"attempt":1,"status":"succeeded","result":{"summary":"short","words":"one"}}`)
	w := newWorld(t, setup{yaml: "kinds:\n  real: {providers: [main], contract: contracts/summarize.yaml}\n" +
		"providers:\n  main: {type: http, url: \"" + main.url + "\", reconcile: {lookup: \"" + found.url + "/{job_id}\", backoff: {initial: 50ms, max: 50ms}}}\n"})
	w.contract(summaries)
	p := w.serve("api,projector,worker,reconciler")
	w.apply()
	main.tell(http.StatusInternalServerError, "{}")
	id := p.client("acme").create("lost", asked("real", summarizeIt))
	a := p.client("acme").finished(id, "failed")
	require.Equal(t, "contract true", a.text("failure.class")+" "+a.text("failure.executed"))
	require.Contains(t, a.text("failure.message"), "/words")
	found.tell(http.StatusOK, `{"attempt":1,"status":"succeeded","result":`+goodSummary+`}`)
	require.JSONEq(t, goodSummary, p.client("acme").finished(p.client("acme").create("found", asked("real", summarizeIt)), "succeeded").text("result"))
	w.verify()
}
