package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// jobRow is everything that the tables say of a job and its attempts.
func (w *world) jobRow(id string) string {
	w.t.Helper()
	return w.text(`SELECT row_to_json(j)::text FROM ledger.jobs AS j WHERE id = $1`, id) +
		w.text(`SELECT json_agg(a ORDER BY number)::text FROM ledger.attempts AS a WHERE job_id = $1`, id)
}

// conflicts counts the rejections that say that the job's key was used twice.
func (w *world) conflicts(id string) int {
	w.t.Helper()
	return w.number("SELECT count(*) FROM ledger.rejections WHERE job_id = $1 AND decision = 'conflict' AND reason = 'idempotency_conflict'", id)
}

func TestAnotherIntentUnderTheSameKey(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind("", main)})
	w.attach(main)
	api, rest := w.serve("api"), w.serve("projector,worker")
	w.apply()
	c := api.client("acme")

	mine := pay(`"stall"`)
	id := c.create("order", mine)
	conflicts := 0
	// refused posts an intent that the ledger has not seen yet, and one that it
	// has seen; neither may change anything.
	refused := func(when string) {
		before := w.jobRow(id)
		conflicts++
		for _, body := range []string{pay(fmt.Sprintf(`"another, %s"`, when)), pay(`"another, while it runs"`)} {
			a := c.submit("order", body).is(http.StatusConflict, "idempotency-conflict")
			require.Equal(t, id, a.text("job_id"))
			require.Equal(t, id, a.header.Get("Ledger-Job-Id"))
			require.Contains(t, a.text("detail"), "/attempts")
		}
		same := c.submit("order", mine).replayed()
		require.Equal(t, id, same.text("id"))
		require.Equal(t, before, w.jobRow(id), when)
		require.GreaterOrEqual(t, w.conflicts(id), conflicts, when)
	}
	main.arrived(id, 1)
	refused("while it runs")
	main.release(id)
	c.finished(id, "succeeded")
	refused("after it has finished")

	d := w.publish("job.request", body{"owner": "acme", "key": "order", "kind": "pay", "input": body{"do": "another, without an id"}})
	w.is(d, "conflict", "idempotency_conflict")
	conflicts++
	d = w.publish("job.request", body{"owner": "acme", "key": "order", "kind": "pay", "input": body{"do": "stall"}})
	w.is(d, "duplicate", "")

	w.forgetMessageIDs(func() { c.submit("order", mine).replayed() }, func() { refused("after the duplicate window") })
	rest.restart()
	api.restart()
	refused("after a restart")
	require.Equal(t, 1, main.count(id))
	require.Equal(t, 1, w.number("SELECT count(*) FROM ledger.jobs"))
	w.verify()
}

// forgetMessageIDs shortens the duplicate window, does something once the server
// has forgotten the message ids of before, and restores the window. probe
// appends an entry that was appended before.
func (w *world) forgetMessageIDs(probe, then func()) {
	w.t.Helper()
	s, err := w.js.Stream(w.ctx(), w.stream)
	require.NoError(w.t, err)
	cfg := s.CachedInfo().Config
	window := cfg.Duplicates
	cfg.Duplicates = 100 * time.Millisecond
	_, err = w.js.UpdateStream(w.ctx(), cfg)
	require.NoError(w.t, err)
	testenv.Eventually(w.t, patience, func() (bool, string) {
		before := w.requests()
		probe()
		return w.requests() > before, "the server still remembers the message ids"
	})
	then()
	cfg.Duplicates = window
	_, err = w.js.UpdateStream(w.ctx(), cfg)
	require.NoError(w.t, err)
}

// requests counts the job requests in the stream.
func (w *world) requests() uint64 {
	w.t.Helper()
	s, err := w.js.Stream(w.ctx(), w.stream)
	require.NoError(w.t, err)
	subject := w.prefix + ".job.request"
	info, err := s.Info(w.ctx(), jetstream.WithSubjectFilter(subject))
	require.NoError(w.t, err)
	return info.State.Subjects[subject]
}

// input is a request for the kind pay with this input.
func input(text string) string { return `{"kind":"pay","input":` + text + `}` }

// samePairs are inputs that mean the same, and conflictPairs inputs that do not.
var samePairs = map[string][2]string{
	"member order":                {`{"a":1,"b":{"c":[{"d":1,"e":2}],"f":3}}`, `{"b":{"f":3,"c":[{"e":2,"d":1}]},"a":1}`},
	"white space":                 {`{"a":[1,2]}`, " { \"a\" :\r\n [ 1 ,\t2 ] } "},
	"an escaped letter":           {`"é"`, `"\u00e9"`},
	"an escaped slash":            {`"/"`, `"\/"`},
	"a surrogate pair":            {`"\ud83d\ude00"`, `"😀"`},
	"one and one point nought":    {`1`, `1.0`},
	"one and one with exponent":   {`1`, `1e0`},
	"one and ten tenths":          {`1`, `10e-1`},
	"nought and minus nought":     {`0`, `-0`},
	"digits after the point":      {`1.10`, `1.1`},
	"an escaped member name":      {`{"\u0061":1}`, `{"a":1}`},
	"numbers deep in the request": {`{"a":[{"b":1e2}]}`, `{"a":[{"b":100.00}]}`},
}

var conflictPairs = map[string][2]string{
	"order of a list":            {`[1,2]`, `[2,1]`},
	"composed and decomposed":    {"\"\u00e9\"", "\"e\u0301\""},
	"beyond double precision":    {`9007199254740992`, `9007199254740993`},
	"null and absent":            {`{"a":null}`, `{}`},
	"a text and a number":        {`"1"`, `1`},
	"true and its name":          {`true`, `"true"`},
	"an object and a list":       {`{"a":{}}`, `{"a":[]}`},
	"case":                       {`"a"`, `"A"`},
	"a trailing space in text":   {`"a"`, `"a "`},
	"a member named differently": {`{"a":1}`, `{"b":1}`},
}

// conflictRequests are requests that differ from each other outside the input.
var conflictRequests = map[string][2]string{
	"kind":     {`{"kind":"pay","input":1}`, `{"kind":"other","input":1}`},
	"provider": {`{"kind":"pay","input":1}`, `{"kind":"pay","input":1,"provider":"main"}`},
	"run_at":   {`{"kind":"pay","input":1}`, `{"kind":"pay","input":1,"run_at":"` + time.Now().Add(48*time.Hour).UTC().Format(time.RFC3339) + `"}`},
	"delay":    {`{"kind":"pay","input":1,"delay":"10m"}`, `{"kind":"pay","input":1,"delay":"11m"}`},
}

// refusedInputs are inputs that nothing may be stored of.
var refusedInputs = map[string]string{
	"a member twice":             `{"a":1,"a":1}`,
	"a member twice, escaped":    `{"a":1,"\u0061":1}`,
	"a member twice, deep":       `[{"b":{"a":1,"a":2}}]`,
	"a lone high surrogate":      `{"a":"\ud800"}`,
	"a lone low surrogate":       `"\udc00"`,
	"a lone surrogate in a name": `{"\ud800":1}`,
	"a nul":                      `"\u0000"`,
	"depth":                      strings.Repeat("[", 129) + strings.Repeat("]", 129),
	"a large exponent":           `1e1001`,
	"a small exponent":           `1e-1001`,
	"not a number":               `NaN`,
	"infinity":                   `-Infinity`,
	"invalid UTF-8":              "\"\xff\"",
	"an encoded surrogate":       "\"\xed\xa0\x80\"",
	"half a value":               `{"a":`,
	"a leading nought":           `01`,
}

// refusedBodies are bodies whose fault is not in the input.
var refusedBodies = map[string]string{
	"something after the value": input(`1`) + `{}`,
	"a byte order mark":         "\ufeff" + input(`1`),
	"a member twice":            `{"kind":"pay","input":1,"input":1}`,
	"an unknown member":         `{"kind":"pay","input":1,"inputs":1}`,
	"an unknown kind":           `{"kind":"nothing","input":1}`,
	"no kind":                   `{"input":1}`,
	"no input":                  `{"kind":"pay"}`,
	"a list":                    `[]`,
	"nothing":                   ``,
}

func TestRequestsAreComparedAndChecked(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	w := newWorld(t, setup{yaml: oneKind("", main)})
	c := w.serve("api,projector").client("acme") // without a worker: nothing moves by itself
	w.apply()
	w.publishKind("other", "main")

	for name, pair := range samePairs {
		c.create("same "+name, input(pair[0]))
		require.Equal(t, c.jobID("same "+name), c.submit("same "+name, input(pair[1])).replayed().text("id"), name)
	}
	for name, pair := range conflictPairs {
		c.create("conflict "+name, input(pair[0]))
		c.submit("conflict "+name, input(pair[1])).is(http.StatusConflict, "idempotency-conflict")
		require.Equal(t, 1, w.conflicts(c.jobID("conflict "+name)), name)
	}
	for name, pair := range conflictRequests {
		c.create("request "+name, pair[0])
		c.submit("request "+name, pair[1]).is(http.StatusConflict, "idempotency-conflict")
		require.Equal(t, 1, w.conflicts(c.jobID("request "+name)), name)
	}
	for name, text := range refusedInputs {
		w.requireRefused(c, "refused "+name, input(text))
	}
	for name, text := range refusedBodies {
		w.requireRefused(c, "body "+name, text)
	}
	w.refusesKeysAndSizes(c)
	w.verify()
}

// requireRefused: the request is answered 400, leaves no job, and its key can
// still be used. An unknown kind is the fold's to find, so that is stored.
func (w *world) requireRefused(c *client, key, text string) {
	w.t.Helper()
	before := w.requests()
	a := c.submit(key, text).is(http.StatusBadRequest)
	require.NotEmpty(w.t, a.text("detail"))
	if a.text("type") != "urn:jobledger:problem:unknown-kind" {
		require.Equal(w.t, before, w.requests(), "%s: something was stored", key)
	}
	require.Zero(w.t, w.number("SELECT count(*) FROM ledger.jobs WHERE idempotency_key = $1", key))
	c.create(key, input(`"what was meant"`))
}

// publishKind defines a kind by hand.
func (w *world) publishKind(name, provider string) {
	w.t.Helper()
	kind := ledger.Kind{
		Name: name, Providers: []string{provider}, Effects: "external", Mode: "exclusive", AttemptTimeoutMS: 60_000, MaxAttempts: 4,
		Backoff: ledger.BackoffPolicy{InitialMS: 1000, MaxMS: 60_000, FactorMilli: 2000}, Failover: "verified",
	}
	m := (&ledger.KindDefinition{Kind: kind}).Message()
	_, err := w.js.Publish(w.ctx(), w.prefix+"."+m.Subject, m.Data)
	require.NoError(w.t, err)
	w.eventually(1, "SELECT count(*) FROM ledger.kinds WHERE name = $1", name)
}

// refusesKeysAndSizes: nothing is stored under keys that are none, and of bodies
// that are too large.
func (w *world) refusesKeysAndSizes(c *client) {
	w.t.Helper()
	before := w.requests()
	for _, key := range []string{"", " a", "a ", "é", "a\tb", strings.Repeat("k", ledger.MaxIdentBytes+1)} {
		a, err := c.try("POST", "/v1/jobs", input(`1`), "Idempotency-Key", key)
		if err == nil && strings.TrimSpace(key) == key { // Go's server trims the rest
			a.is(http.StatusBadRequest, "bad-idempotency-key")
		}
	}
	big := func(size int) string {
		return input(`"` + strings.Repeat("x", size-len(input(`""`))) + `"`)
	}
	c.submit("big", big(ledger.MaxRequestBytes+1)).is(http.StatusRequestEntityTooLarge, "too-large")
	c.submit("big", input(`1`)+strings.Repeat(" ", ledger.MaxRequestBytes)).is(http.StatusRequestEntityTooLarge, "too-large")
	require.LessOrEqual(w.t, w.requests(), before+2) // the trimmed keys
	c.create("big", input(`1`))
	c.create(`"quoted" key`, input(`1`))
	c.create(strings.Repeat("k", ledger.MaxIdentBytes), input(`1`))
}
