package httpapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
	"jobledger/publisher"
	"jobledger/publisher/httpapi"
)

// anySize is a limit for answers that none of them reaches.
const anySize = 1 << 20

// call calls an operation; the answer is that of HTTP.
func (w *world) call(op httpapi.Operation, body string) answer {
	return w.callWithin(op, body, anySize)
}

func (w *world) callWithin(op httpapi.Operation, body string, limit int) answer {
	w.t.Helper()
	r := w.api.Call(w.t.Context(), op, []byte(body), limit, nil)
	require.LessOrEqual(w.t, len(r.Body), limit)
	a := answer{t: w.t, status: r.Status, header: http.Header{}}
	for _, h := range r.Headers {
		a.header.Add(h[0], h[1])
	}
	require.NoError(w.t, json.Unmarshal(r.Body, &a.body), "%s", r.Body)
	a.header.Set("Content-Type", "application/json")
	if r.Status >= http.StatusBadRequest {
		a.header.Set("Content-Type", "application/problem+json")
		require.Equal(w.t, a.body["detail"], r.Detail)
	}
	return a
}

// said makes a body of what follows the owner and the key.
func said(rest string) string { return `{"owner":"acme","key":"order-17",` + rest + `}` }

const echoed = `"kind":"echo","input":{"n":1}`

func TestCallSubmit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.call(httpapi.JobSubmit, said(echoed)).is(http.StatusCreated)
	require.Equal(t, order17, first.body["id"])
	require.Equal(t, order17, first.header.Get("Ledger-Job-Id"))
	require.Equal(t, "/v1/jobs/"+order17, first.header.Get("Location"))
	again := w.call(httpapi.JobSubmit, said(echoed)).is(http.StatusOK)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))

	// Both doors lead to the same job, and give the same verdict. Whoever says
	// it is no part of the intent.
	w.submit("order-17", simple).do().is(http.StatusOK)
	w.call(httpapi.JobSubmit, said(echoed+`,"actor":"alice"`)).is(http.StatusOK)
	other := `"kind":"echo","input":{"n":2}`
	overHTTP := w.submit("order-17", "{"+other+"}").do().is(http.StatusConflict, "idempotency-conflict")
	require.Equal(t, overHTTP.body, w.call(httpapi.JobSubmit, said(other)).is(http.StatusConflict, "idempotency-conflict").body)

	// A key need not fit a header.
	a := w.call(httpapi.JobSubmit, `{"owner":"é","key":"x y",`+echoed+`}`).is(http.StatusCreated)
	require.Equal(t, "baba3ee4-4223-54c7-a329-15c54a63cc55", a.body["id"])
}

func TestCallsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct {
		op          httpapi.Operation
		body        string
		status      int
		is, pointer string
	}{
		"nothing":               {httpapi.JobSubmit, "", 401, "unauthorized", "/owner"},
		"no owner":              {httpapi.JobGet, `{"key":"order-17"}`, 401, "unauthorized", "/owner"},
		"an empty owner":        {httpapi.JobGet, `{"owner":"","key":"k"}`, 401, "unauthorized", "/owner"},
		"a bad owner":           {httpapi.JobGet, `{"owner":" a","key":"k"}`, 400, "bad-owner", "/owner"},
		"an owner of no text":   {httpapi.JobGet, `{"owner":1,"key":"k"}`, 400, "bad-request", "/owner"},
		"an owner of null":      {httpapi.JobGet, `{"owner":null,"key":"k"}`, 400, "bad-request", "/owner"},
		"an array":              {httpapi.JobSubmit, "[]", 400, "malformed-json", ""},
		"cut":                   {httpapi.JobSubmit, `{"owner":"acme","input":{"a"`, 400, "malformed-json", "/input"},
		"a member twice":        {httpapi.JobSubmit, said(echoed + `,"kind":"echo"`), 400, "malformed-json", "/kind"},
		"a misspelt member":     {httpapi.JobSubmit, said(echoed + `,"dely":"1m"`), 400, "malformed-json", "/dely"},
		"another's member":      {httpapi.JobSubmit, said(echoed + `,"job":"` + order17 + `"`), 400, "malformed-json", "/job"},
		"inside the input":      {httpapi.JobSubmit, said(`"kind":"echo","input":{"a":{"b":1,"b":2}}`), 400, "malformed-json", "/input/a/b"},
		"no kind":               {httpapi.JobSubmit, said(`"input":1`), 400, "bad-request", "/kind"},
		"no key":                {httpapi.JobSubmit, `{"owner":"acme",` + echoed + `}`, 400, "bad-idempotency-key", "/key"},
		"a bad key":             {httpapi.JobSubmit, `{"owner":"acme","key":"a\tb",` + echoed + `}`, 400, "bad-idempotency-key", "/key"},
		"an actor with a NUL":   {httpapi.JobSubmit, said(echoed + `,"actor":"\u0000"`), 400, "malformed-json", "/actor"},
		"an actor without end":  {httpapi.JobSubmit, said(echoed + `,"actor":"` + strings.Repeat("a", 5000) + `"`), 400, "bad-request", "/actor"},
		"an unknown kind":       {httpapi.JobSubmit, said(`"kind":"other","input":1`), 400, "unknown-kind", ""},
		"too large":             {httpapi.JobSubmit, said(echoed) + strings.Repeat(" ", ledger.MaxRequestBytes), 413, "too-large", ""},
		"which job":             {httpapi.JobGet, `{"owner":"acme"}`, 400, "bad-request", "/job"},
		"two jobs":              {httpapi.JobGet, said(`"job":"` + order17 + `"`), 400, "bad-request", "/job"},
		"no job's id":           {httpapi.JobCancel, `{"owner":"acme","job":"17"}`, 400, "bad-request", "/job"},
		"no such job":           {httpapi.JobGet, said(`"wait":"0s"`), 404, "not-found", ""},
		"how long":              {httpapi.JobGet, said(`"wait":"soon"`), 400, "bad-query", ""},
		"until when":            {httpapi.JobGet, said(`"until":"soon"`), 400, "bad-query", ""},
		"a start of no job":     {httpapi.AttemptStart, `{"owner":"acme","key":"k"}`, 400, "bad-request", "/job"},
		"a start without key":   {httpapi.AttemptStart, `{"owner":"acme","job":"` + order17 + `"}`, 400, "bad-idempotency-key", "/key"},
		"no attempt":            {httpapi.AttemptResolve, said(`"as":"failed","reason":"r"`), 400, "bad-request", "/attempt"},
		"an attempt of no size": {httpapi.AttemptResolve, said(`"attempt":1.5,"as":"failed","reason":"r"`), 400, "bad-request", "/attempt"},
		"an operation":          {"job.delete", said(`"a":1`), 404, "not-found", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := w.call(c.op, c.body).is(c.status, c.is)
			faults, _ := a.body["errors"].([]any)
			if c.pointer == "" && c.is != "malformed-json" {
				require.Empty(t, faults)
				return
			}
			require.Len(t, faults, 1, "%v", a.body)
			require.Equal(t, c.pointer, faults[0].(map[string]any)["pointer"], "%v", a.body)
		})
	}
}

func TestCallsSeeTheOwnersJobsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.call(httpapi.JobSubmit, said(echoed)).is(http.StatusCreated)
	w.completed(w.claimed(order17), ledger.OutcomeUnknown)
	before := w.appended()
	byID := func(rest string) string { return `{"owner":"beta","job":"` + order17 + `"` + rest + `}` }
	w.call(httpapi.JobGet, byID("")).is(http.StatusNotFound, "not-found")
	w.call(httpapi.AttemptResolve, byID(`,"attempt":1,"as":"cancelled","reason":"r"`)).is(http.StatusNotFound, "not-found")
	require.Equal(t, before, w.appended())
	w.call(httpapi.JobCancel, byID("")).is(http.StatusNotFound, "not-found")
	w.call(httpapi.AttemptStart, byID(`,"key":"k"`)).is(http.StatusNotFound, "not-found")
	j := w.call(httpapi.JobGet, `{"owner":"acme","job":"`+order17+`"}`).is(http.StatusOK)
	require.Equal(t, "unknown", j.body["state"])
}

func TestCallsMoveAJobToItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.call(httpapi.JobSubmit, said(echoed)).is(http.StatusCreated)
	start := func(rest string) string { return `{"owner":"acme","job":"` + order17 + `","key":"click"` + rest + `}` }
	busy := w.call(httpapi.AttemptStart, start("")).is(http.StatusConflict, "attempt-in-flight")
	require.Equal(t, "starting", busy.body["state"])
	w.completed(w.claimed(order17), ledger.OutcomeUnknown)

	w.call(httpapi.AttemptResolve, said(`"attempt":2,"as":"cancelled","reason":"r"`)).is(http.StatusNotFound, "not-found")
	j := w.call(httpapi.AttemptResolve, said(`"attempt":1,"as":"cancelled","reason":"looked","actor":"alice"`)).is(http.StatusOK)
	at := j.body["attempts"].([]any)[0].(map[string]any)
	require.Equal(t, "nats:alice", at["resolved_by"])
	require.Equal(t, "looked", at["resolution_reason"])

	before := w.appended()
	forced := w.call(httpapi.AttemptStart, start(`,"provider":"fallback","force":true`)).is(http.StatusForbidden, "forbidden")
	require.Contains(t, forced.body["detail"], "jobledger attempt start --force")
	require.Equal(t, before, w.appended())
	second := w.call(httpapi.AttemptStart, start("")).is(http.StatusCreated)
	require.EqualValues(t, 2, second.body["number"])
	require.Equal(t, "/v1/jobs/"+order17+"/attempts/2", second.header.Get("Location"))
	w.call(httpapi.AttemptStart, start("")).is(http.StatusOK)

	w.call(httpapi.JobCancel, said(`"reason":"enough"`)).is(http.StatusOK)
	require.Equal(t, "cancelled", w.call(httpapi.JobGet, said(`"wait":"30s","until":"terminal"`)).is(http.StatusOK).body["state"])
	w.call(httpapi.AttemptStart, `{"owner":"acme","job":"`+order17+`","key":"later"}`).is(http.StatusConflict, "job-finished")
}

func TestCallGetWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.call(httpapi.JobSubmit, said(echoed)).is(http.StatusCreated)
	claim := w.claimed(order17)
	answered := make(chan answer, 1)
	reads := func() int { w.mu.Lock(); defer w.mu.Unlock(); return w.reads }
	before := reads()
	go func() { answered <- w.call(httpapi.JobGet, said(`"wait":"30s"`)) }()
	require.Eventually(t, func() bool { return reads() > before+1 }, 10*time.Second, time.Millisecond)
	w.completed(claim, ledger.OutcomeSucceeded)
	require.Equal(t, "succeeded", (<-answered).is(http.StatusOK).body["state"])
}

func TestCallWithoutADecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.silent, w.frozen = true, true
	a := w.call(httpapi.JobSubmit, said(echoed)).is(http.StatusAccepted)
	require.Equal(t, map[string]any{"id": order17, "seq": 4.0}, a.body)
	w.set(func() { w.silent, w.frozen, w.fault = false, false, &publisher.AppendError{Cause: publisher.ErrClosed} })
	w.call(httpapi.JobSubmit, said(echoed)).is(http.StatusServiceUnavailable, "not-appended")
	w.set(func() { w.fault = errors.New("secret") })
	require.NotContains(t, w.call(httpapi.JobSubmit, said(echoed)).is(http.StatusServiceUnavailable, "unavailable").body["detail"], "secret")
}

func TestAnswersFitTheDoor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const limit = 4 << 10
	long := strings.Repeat("x", limit)
	a := w.callWithin(httpapi.JobSubmit, said(`"kind":"echo","input":"`+long+`"`), limit).is(http.StatusCreated)
	require.Equal(t, "input", a.header.Get("Ledger-Left-Out"))
	require.NotContains(t, a.body, "input", "null would be a value")
	require.Contains(t, a.body, "result")

	claim := w.claimed(order17)
	done := &ledger.Completion{Job: claim.Job, Attempt: claim.Attempt, JobVersion: claim.JobVersion, Provider: claim.Provider,
		Claim: claim.Claim, Outcome: ledger.OutcomeSucceeded, Result: []byte(`"` + long + `"`)}
	require.Equal(t, ledger.Accepted, w.append(done.Message()).Decision)
	a = w.callWithin(httpapi.JobGet, said(`"wait":"0s"`), limit).is(http.StatusOK)
	require.Equal(t, "input, result", a.header.Get("Ledger-Left-Out"))
	require.NotContains(t, a.body, "result")
	require.Equal(t, "succeeded", a.body["state"])

	tiny := w.callWithin(httpapi.JobGet, said(`"wait":"0s"`), 500).is(http.StatusInternalServerError, "answer-too-large")
	require.Contains(t, tiny.body["detail"], "GET /v1/jobs/"+order17)

	faulty := w.callWithin(httpapi.JobSubmit, said(`"`+strings.Repeat("y", 16<<10)+`":1`), limit+500).is(http.StatusBadRequest, "malformed-json")
	require.NotContains(t, faulty.body, "errors")
}

func TestSchemasNameWhatCallsTake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, op := range httpapi.Operations() {
		s, err := httpapi.SchemasOf(op)
		require.NoError(t, err)
		var request struct {
			Properties map[string]any
			Required   []string
		}
		require.NoError(t, json.Unmarshal([]byte(s.Request), &request))
		// A body with one member more than is known is refused, and says which
		// are known.
		a := w.call(op, `{"":1}`).is(http.StatusBadRequest, "malformed-json")
		_, known, _ := strings.Cut(a.body["detail"].(string), "known are ")
		require.Equal(t, slices.Sorted(slices.Values(strings.Split(known, ", "))), slices.Sorted(maps.Keys(request.Properties)), op)
		require.Contains(t, request.Required, "owner")
		require.Contains(t, s.Problem, "#/$defs/Problem")
	}
	_, err := httpapi.SchemasOf("job.delete")
	require.Error(t, err)

	s, err := httpapi.SchemasOf(httpapi.JobGet)
	require.NoError(t, err)
	var response struct {
		Defs map[string]struct{ Properties map[string]any } `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.Response), &response))
	body := w.call(httpapi.JobSubmit, said(echoed)).is(http.StatusCreated).body
	require.Equal(t, slices.Sorted(maps.Keys(body)), slices.Sorted(maps.Keys(response.Defs["JobView"].Properties)))
	attempt := body["attempts"].([]any)[0].(map[string]any)
	require.Equal(t, slices.Sorted(maps.Keys(attempt)), slices.Sorted(maps.Keys(response.Defs["AttemptView"].Properties)))
}

// TestAWaitingCallHoldsNothing: neither a place of whoever bounds the calls that
// are served, nor its body, nor the room for it.
func TestAWaitingCallHoldsNothing(t *testing.T) {
	t.Parallel()
	const waiters = 300 // whose bodies would be more than there is room for
	w := newWorld(t, func(o *httpapi.Options) { o.MaxWaiters = waiters })
	w.call(httpapi.JobSubmit, said(echoed)).is(http.StatusCreated)
	claim := w.claimed(order17)
	waiting, answers := make(chan weak.Pointer[byte], waiters), make(chan httpapi.Response, waiters)
	get := func(body []byte) {
		first := weak.Make(&body[0])
		answers <- w.api.Call(w.t.Context(), httpapi.JobGet, body, anySize, func() { waiting <- first })
	}
	for i := range waiters {
		body := []byte(said(`"wait":"1m"`))
		go get(append(body, bytes.Repeat([]byte(" "), ledger.MaxRequestBytes-len(body))...))
		var first weak.Pointer[byte]
		select {
		case first = <-waiting:
		case a := <-answers:
			t.Fatalf("%d after %d have begun to wait: %s", a.Status, i, a.Body)
		}
		if i%20 > 0 {
			continue
		}
		testenv.Eventually(t, time.Minute, func() (bool, string) {
			runtime.GC()
			return first.Value() == nil, "the body is still there"
		})
	}
	neverWaits := func() { t.Error("it does not wait") }
	refused := w.api.Call(w.t.Context(), httpapi.JobGet, []byte(said(`"wait":"1m"`)), anySize, neverWaits)
	require.Equal(t, http.StatusServiceUnavailable, refused.Status)
	require.Equal(t, http.StatusOK, w.api.Call(w.t.Context(), httpapi.JobGet, []byte(said(`"wait":"0s"`)), anySize, neverWaits).Status)
	w.call(httpapi.JobSubmit, said(echoed)).is(http.StatusOK)
	w.completed(claim, ledger.OutcomeSucceeded)
	for range waiters {
		require.Equal(t, http.StatusOK, (<-answers).Status)
	}
	require.Equal(t, http.StatusOK, w.api.Call(w.t.Context(), httpapi.JobGet, []byte(said(`"wait":"1m"`)), anySize, neverWaits).Status)
}
