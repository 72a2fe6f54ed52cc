package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
	"jobledger/publisher"
	"jobledger/publisher/httpapi"
)

func TestSubmitAndReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.submit("order-17", simple).do().is(http.StatusCreated)
	require.Equal(t, order17, first.body["id"])
	require.Equal(t, order17, first.header.Get("Ledger-Job-Id"))
	require.Equal(t, "/v1/jobs/"+order17, first.header.Get("Location"))
	require.Empty(t, first.header.Get("Idempotent-Replayed"))
	require.NotEmpty(t, first.header.Get("Ledger-Request-Id"))

	// The same bytes: the server knows the message id. Other bytes that mean
	// the same: the fold knows the fingerprint.
	for _, body := range []string{simple, ` {"input" : {"n":1.0}, "kind":"ech\u006f"} `} {
		again := w.submit("order-17", body).do().is(http.StatusOK)
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
		require.Equal(t, order17, again.body["id"])
	}
}

func TestSubmitConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit("order-17", simple).do().is(http.StatusCreated)
	other := `{"kind":"echo","input":{"n":2}}`
	for range 2 { // folded, and then found by its id
		a := w.submit("order-17", other).do().is(http.StatusConflict, "idempotency-conflict")
		require.Equal(t, order17, a.body["job_id"])
		require.Contains(t, a.body["detail"], "POST /v1/jobs/"+order17+"/attempts")
	}
}

func TestAnswersHaveExactlyTheContractsMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.submit("order-17", simple).do().is(http.StatusCreated)
	require.ElementsMatch(t, strings.Fields("id owner key kind state state_reason state_detail version provider input result failure fingerprint completed_by run_at created_at updated_at completed_at attempts"), keys(a.body))
	attempt := a.body["attempts"].([]any)[0].(map[string]any)
	require.ElementsMatch(t, strings.Fields("number provider state reason worker started_at finished_at deadline failure provider_ref usage resolved_by resolution_reason"), keys(attempt))
	require.Nil(t, a.body["result"])
	require.Nil(t, a.body["failure"])
	require.Equal(t, map[string]any{"n": 1.0}, a.body["input"])
	require.Equal(t, "running", a.body["state"])

	w.completed(w.claimed(order17), ledger.OutcomeUnknown)
	a = w.get("/v1/jobs/" + order17).do().is(http.StatusOK)
	attempt = a.body["attempts"].([]any)[0].(map[string]any)
	require.Equal(t, map[string]any{"class": "timeout", "message": "no answer", "executed": true}, attempt["failure"])
}

func keys(m map[string]any) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}

func TestRefusedRequestMaySucceedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := `{"kind":"later","input":1}`
	w.submit("k", body).do().is(http.StatusBadRequest, "unknown-kind")
	kind := ledger.DefaultKind()
	kind.Name, kind.Providers = "later", []string{"main"}
	w.append((&ledger.KindDefinition{Kind: kind}).Message())
	w.submit("k", body).do().is(http.StatusCreated)
	w.submit("k2", `{"kind":"later","input":1,"provider":"fallback"}`).do().is(http.StatusBadRequest, "unknown-provider")
}

func TestHundredClicksAreOneJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var wg sync.WaitGroup
	var statuses [100]int
	for i := range statuses {
		wg.Go(func() { statuses[i] = w.submit("order-17", simple).do().status })
	}
	wg.Wait()
	slices.Sort(statuses[:])
	require.Equal(t, http.StatusOK, statuses[0])
	require.Equal(t, http.StatusOK, statuses[98])
	require.Equal(t, http.StatusCreated, statuses[99])
}

func TestSubmitWithoutADecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.silent, w.frozen = true, true
	a := w.submit("order-17", simple).do().is(http.StatusAccepted)
	require.Equal(t, map[string]any{"id": order17, "seq": 4.0}, a.body)
	require.Equal(t, order17, a.header.Get("Ledger-Job-Id"))
	w.set(func() { w.silent, w.frozen = false, false })
	w.submit("order-17", simple).do().is(http.StatusOK)
}

func TestReplayWaitsForTheTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *httpapi.Options) { o.DecisionWait = 100 * time.Millisecond })
	w.submit("order-17", simple).do().is(http.StatusCreated)
	w.set(func() { w.frozen = true })
	w.submit("order-17", simple).do().is(http.StatusAccepted)
}

func TestAppendFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		fault  error
		status int
		is     string
	}{
		{"not stored", &publisher.AppendError{Cause: publisher.ErrClosed}, 503, "not-appended"},
		{"may be stored", &publisher.AppendError{Unconfirmed: true, Cause: publisher.ErrClosed}, 503, "append-unconfirmed"},
		{"too large for the server", &publisher.AppendError{Cause: &publisher.TooLargeError{Bytes: 2, Limit: 1}}, 413, "too-large"},
		{"anything else", errors.New("secret"), 503, "unavailable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.fault = c.fault
			a := w.submit("order-17", simple).do().is(c.status, c.is)
			require.NotContains(t, fmt.Sprint(a.body), "secret")
		})
	}
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit("k", simple).without("Idempotency-Key").do().is(http.StatusBadRequest, "bad-idempotency-key")
	twice := w.submit("k", simple)
	twice.req.Header.Add("Idempotency-Key", "k")
	twice.do().is(http.StatusBadRequest, "bad-idempotency-key")
	for _, key := range []string{"", " ", "a ", "é", "a\tb", "a\x7f", strings.Repeat("k", 256)} {
		w.submit(key, simple).do().is(http.StatusBadRequest, "bad-idempotency-key")
	}
	require.Equal(t, 3, w.appended(), "nothing may be appended")
	for _, key := range []string{`"quoted"`, "quoted", "in ner", "a.b", "*", ">", "K1", "k1", strings.Repeat("k", 255)} {
		a := w.submit(key, simple).do().is(http.StatusCreated)
		require.Equal(t, key, a.body["key"])
	}
}

func TestMalformedBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, c := range map[string]struct{ body, pointer string }{
		"empty":                  {"", "/kind"},
		"an array":               {"[]", ""},
		"cut":                    {`{"kind":"echo","input":{"a"`, "/input"},
		"byte order mark":        {"\ufeff" + simple, ""},
		"trailing data":          {simple + " 1", ""},
		"two values":             {simple + simple, ""},
		"duplicate name":         {`{"kind":"echo","kind":"echo","input":1}`, "/kind"},
		"duplicate name inside":  {`{"kind":"echo","input":{"a":{"b":1,"b":2}}}`, "/input/a/b"},
		"duplicate by escape":    {`{"kind":"echo","input":{"b":1,"\u0062":2}}`, "/input/b"},
		"lone surrogate":         {`{"kind":"echo","input":{"a":"\ud800"}}`, "/input/a"},
		"lone surrogate in name": {`{"kind":"echo","input":{"\udc00":1}}`, "/input"},
		"invalid UTF-8":          {"{\"kind\":\"echo\",\"input\":{\"a\":\"\xff\"}}", "/input/a"},
		"NUL":                    {`{"kind":"echo","input":{"a":"\u0000"}}`, "/input/a"},
		"NaN":                    {`{"kind":"echo","input":{"a":NaN}}`, "/input/a"},
		"exponent":               {`{"kind":"echo","input":[1,1e1001]}`, "/input/1"},
		"too deep":               {`{"kind":"echo","input":` + deep(129) + `}`, "/input" + strings.Repeat("/0", 128)},
		"far too deep":           {`{"kind":"echo","input":` + deep(200000) + `}`, "/input" + strings.Repeat("/0", 128)},
		"unknown member":         {`{"kind":"echo","input":1,"inputs":2}`, "/inputs"},
		"the server's member":    {`{"kind":"echo","input":1,"owner":"evil"}`, "/owner"},
		"an actor":               {`{"kind":"echo","input":1,"actor":"evil"}`, "/actor"},
		"no kind":                {`{"input":1}`, "/kind"},
		"no input":               {`{"kind":"echo"}`, "/input"},
		"kind of another type":   {`{"kind":7,"input":1}`, "/kind"},
		"kind with a bad name":   {`{"kind":"Echo","input":1}`, "/kind"},
		"run_at and delay":       {`{"kind":"echo","input":1,"run_at":"2030-01-01T00:00:00Z","delay":"1m"}`, "/delay"},
		"delay":                  {`{"kind":"echo","input":1,"delay":"soon"}`, "/delay"},
		"run_at":                 {`{"kind":"echo","input":1,"run_at":"tomorrow"}`, "/run_at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := w.submit("k", c.body).do()
			require.Equal(t, http.StatusBadRequest, a.status, "%v", a.body)
			faults, _ := a.body["errors"].([]any)
			require.Len(t, faults, 1, "%v", a.body)
			fault := faults[0].(map[string]any)
			require.Equal(t, c.pointer, fault["pointer"], "%v", a.body)
			require.NotEmpty(t, fault["detail"])
		})
	}
	t.Cleanup(func() { require.Equal(t, 3, w.appended(), "nothing may be appended") })
}

func TestTheOffsetCountsInTheBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	body := `{"kind":"echo", "input": {"a":1, "b": tru}}`
	a := w.submit("k", body).do().is(http.StatusBadRequest, "malformed-json")
	fault := a.body["errors"].([]any)[0].(map[string]any)
	require.Contains(t, fault["detail"], fmt.Sprintf("at byte %d", strings.Index(body, "tru")), "%v", fault)
}

func TestDepthLimitIsTheInputsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	deep := strings.Repeat("[", ledger.MaxDepth) + strings.Repeat("]", ledger.MaxDepth)
	w.submit("k", `{"kind":"echo","input":`+deep+`}`).do().is(http.StatusCreated)
}

func TestSizes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// entry is a body whose entry has the given size, with room before it.
	const frame = `{"v":1,"owner":"acme","key":"k","kind":"echo","input":"","actor":"producer:acme"}`
	entry := func(size int) string {
		return `{"kind":"echo","input":"` + strings.Repeat("x", size-len(frame)) + `"}`
	}
	w.submit("k", entry(ledger.MaxRequestBytes+1)).do().is(http.StatusRequestEntityTooLarge, "too-large")
	w.submit("k", entry(ledger.MaxRequestBytes)).do().is(http.StatusCreated)

	pad := func(size int) string { return simple + strings.Repeat(" ", size-len(simple)) }
	w.submit("a", pad(ledger.MaxRequestBytes-1)).do().is(http.StatusCreated)
	w.submit("b", pad(ledger.MaxRequestBytes)).do().is(http.StatusCreated)
	for _, known := range []bool{true, false} {
		over := w.submit("c", pad(ledger.MaxRequestBytes+1))
		if !known {
			over.req.ContentLength = -1
		}
		over.do().is(http.StatusRequestEntityTooLarge, "too-large")
	}
	w.submit("c", simple).do().is(http.StatusCreated)
}

type strict struct{}

func (strict) CheckInput(_ context.Context, kind string, input []byte) []httpapi.Detail {
	if kind == "echo" && string(input) == "1" {
		return []httpapi.Detail{{Detail: "1; expected an object", Pointer: ""}}
	}
	return nil
}

func TestInputAgainstTheSchema(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *httpapi.Options) { o.Inputs = strict{} })
	a := w.submit("k", `{"kind":"echo","input":1}`).do().is(http.StatusUnprocessableEntity, "invalid-input")
	require.Len(t, a.body["errors"], 1)
	w.submit("k", simple).do().is(http.StatusCreated)

	// A job that was accepted before the schema came is found, whatever that says.
	lax := false
	w = newWorld(t, func(o *httpapi.Options) { o.Inputs = checkerFunc(func() bool { return lax }) })
	lax = true
	w.submit("k", `{"kind":"echo","input":1}`).do().is(http.StatusCreated)
	lax = false
	a = w.submit("k", `{"kind":"echo","input":1}`).do().is(http.StatusOK)
	require.Equal(t, "true", a.header.Get("Idempotent-Replayed"))
	w.submit("k", `{"kind":"echo","input":2}`).do().is(http.StatusConflict, "idempotency-conflict")
	w.submit("new", `{"kind":"echo","input":1}`).do().is(http.StatusUnprocessableEntity, "invalid-input")
}

// A checkerFunc lets every input pass, or none.
type checkerFunc func() bool

func (f checkerFunc) CheckInput(context.Context, string, []byte) []httpapi.Detail {
	if f() {
		return nil
	}
	return []httpapi.Detail{{Detail: "no"}}
}

func TestAFullStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit("before", simple).do().is(http.StatusCreated)
	full := &publisher.FullError{What: "the stream LEDGER", Bytes: 95, Limit: 100}
	for _, cause := range []error{full, &publisher.ServerError{Code: 10077, Description: "maximum bytes exceeded"}} {
		w.fault = &publisher.AppendError{Subject: "job.request", Cause: cause}
		a := w.submit("new", simple).do().is(http.StatusServiceUnavailable, "stream-full")
		require.Equal(t, "30", a.header.Get("Retry-After"))
		require.Contains(t, a.body["detail"], "operator")

		// What is in the tables already is found without room in the stream.
		a = w.submit("before", simple).do().is(http.StatusOK)
		require.Equal(t, "true", a.header.Get("Idempotent-Replayed"))
		w.submit("before", `{"kind":"echo","input":"other"}`).do().is(http.StatusConflict, "idempotency-conflict")
	}
	w.fault = &publisher.AppendError{Subject: "job.request", Unconfirmed: true, Cause: &publisher.ServerError{Code: 10023}}
	w.submit("new", simple).do().is(http.StatusServiceUnavailable, "append-unconfirmed")
}
