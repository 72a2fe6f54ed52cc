package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

const attemptsPath = "/v1/jobs/" + order17 + "/attempts"

// press presses the fallback button.
func (w *world) press(key, body string) *call {
	return w.request("POST", attemptsPath, body).with("Idempotency-Key", key)
}

func TestFallbackButton(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.press("b1", "{}").do().is(http.StatusNotFound, "not-found")
	w.submit("order-17", simple).do().is(http.StatusCreated)
	w.press("b1", "").without("Idempotency-Key").do().is(http.StatusBadRequest, "bad-idempotency-key")

	busy := w.press("b1", "").do().is(http.StatusConflict, "attempt-in-flight")
	require.EqualValues(t, 1, busy.body["attempt"])
	require.Equal(t, "starting", busy.body["state"])
	require.NotEmpty(t, busy.body["since"])
	require.Nil(t, busy.body["deadline"])

	claim := w.claimed(order17)
	busy = w.press("b2", "").do().is(http.StatusConflict, "attempt-in-flight")
	require.Equal(t, "running", busy.body["state"])
	require.NotEmpty(t, busy.body["deadline"])

	w.completed(claim, ledger.OutcomeUnknown)
	busy = w.press("b3", "").do().is(http.StatusConflict, "attempt-in-flight")
	require.Equal(t, "unknown", busy.body["state"])

	late := *claim
	w.completed(&late, ledger.OutcomeFailed)
	w.press("b4", `{"provider":"fallback"}`).do().is(http.StatusConflict, "provider-not-verified")
	w.press("b4", `{"provider":"nobody"}`).do().is(http.StatusBadRequest, "unknown-provider")
	w.press("b4", `{"provider":"fallback","force":true}`).do().is(http.StatusForbidden, "forbidden")

	forced := w.press("b4", `{"provider":"fallback","force":true}`).as("o-root").do().is(http.StatusCreated)
	require.Equal(t, attemptsPath+"/2", forced.header.Get("Location"))
	require.EqualValues(t, 2, forced.body["number"])
	require.Equal(t, "manual", forced.body["reason"])
	again := w.press("b4", `{"provider":"fallback","force":true}`).as("o-root").do().is(http.StatusOK)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.EqualValues(t, 2, again.body["number"])
	w.press("b4", `{"provider":"main"}`).do().is(http.StatusConflict, "idempotency-conflict")

	w.completed(w.claimed(order17), ledger.OutcomeSucceeded)
	w.press("b5", "").do().is(http.StatusConflict, "job-finished")
	w.press("b5", `{"providre":"main"}`).do().is(http.StatusBadRequest, "malformed-json")
}

func TestCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := "/v1/jobs/" + order17 + "/cancel"
	w.request("POST", path, "").do().is(http.StatusNotFound, "not-found")
	w.submit("order-17", simple).do().is(http.StatusCreated)
	w.request("POST", path, `{"reason":"typo"}`).as("p-other").do().is(http.StatusNotFound, "not-found")
	a := w.request("POST", path, `{"reason":"typo"}`).do().is(http.StatusOK)
	require.Equal(t, "cancelled", a.body["state"])
	a = w.request("POST", path, `{"reason":"typo"}`).do().is(http.StatusOK)
	require.Equal(t, "true", a.header.Get("Idempotent-Replayed"))

	done := ledger.JobID("acme", "done")
	w.submit("done", simple).do().is(http.StatusCreated)
	w.completed(w.claimed(done.String()), ledger.OutcomeSucceeded)
	w.request("POST", "/v1/jobs/"+done.String()+"/cancel", "").do().is(http.StatusConflict, "job-finished")
}

func TestResolve(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit("order-17", simple).do().is(http.StatusCreated)
	path := attemptsPath + "/1/resolve"
	truth := `{"as":"succeeded","result":{"found":1},"reason":"seen at the provider"}`
	w.request("POST", path, truth).do().is(http.StatusForbidden, "forbidden")
	w.request("POST", path, truth).as("o-root").do().is(http.StatusConflict, "attempt-not-claimed")
	w.completed(w.claimed(order17), ledger.OutcomeUnknown)
	for body, pointer := range map[string]string{
		`{"as":"succeeded","reason":"x"}`:                              "/result",
		`{"as":"failed","result":1,"reason":"x"}`:                      "/result",
		`{"as":"won","reason":"x"}`:                                    "/as",
		`{"as":"failed"}`:                                              "/reason",
		`{"as":"succeeded","result":{"a":NaN},"reason":"x"}`:           "/result/a",
		`{"as":"failed","reason":"` + strings.Repeat("x", 4097) + `"}`: "/reason",
	} {
		a := w.request("POST", path, body).as("o-root").do()
		require.Equal(t, http.StatusBadRequest, a.status, "%v", a.body)
		require.Equal(t, pointer, a.body["errors"].([]any)[0].(map[string]any)["pointer"], "%v", a.body)
	}
	a := w.request("POST", path, truth).as("o-root").do().is(http.StatusOK)
	require.Equal(t, "succeeded", a.body["state"])
	require.Equal(t, map[string]any{"found": 1.0}, a.body["result"])
	at := a.body["attempts"].([]any)[0].(map[string]any)
	require.Equal(t, "operator:root", at["resolved_by"])
	require.Equal(t, "seen at the provider", at["resolution_reason"])
	w.request("POST", path, truth).as("o-root").do().is(http.StatusOK)
	w.request("POST", path, `{"as":"failed","reason":"no"}`).as("o-root").do().is(http.StatusConflict, "attempt-ended")
	w.request("POST", attemptsPath+"/7/resolve", `{"as":"failed","reason":"no"}`).as("o-root").do().is(http.StatusNotFound, "not-found")
	w.request("POST", attemptsPath+"/x/resolve", `{"as":"failed","reason":"no"}`).as("o-root").do().is(http.StatusNotFound, "not-found")
}

func TestGetAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit("order-17", simple).do().is(http.StatusCreated)
	a := w.get(attemptsPath + "/1").do().is(http.StatusOK)
	require.EqualValues(t, 1, a.body["number"])
	w.get(attemptsPath+"/2").do().is(http.StatusNotFound, "not-found")
	w.get(attemptsPath+"/0").do().is(http.StatusNotFound, "not-found")
	w.get(attemptsPath+"/1").as("p-other").do().is(http.StatusNotFound, "not-found")
}

func TestListAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.submit("order-17", simple).do().is(http.StatusCreated)
	before := time.Now()
	a := w.get("/v1/attempts?state=unknown&provider=main&older_than=10m&limit=1").do().is(http.StatusOK)
	f := w.filterAttempts
	require.Equal(t, ledger.AttemptUnknown, f.State)
	require.Equal(t, "main", f.Provider)
	require.Equal(t, "acme", f.Owner)
	require.WithinDuration(t, before.Add(-10*time.Minute), f.RequestedBefore, time.Minute)
	listed := a.body["attempts"].([]any)[0].(map[string]any)
	require.Equal(t, order17, listed["job_id"])

	w.get("/v1/attempts?limit=1&cursor=" + a.body["next_cursor"].(string)).as("o-root").do().is(http.StatusOK)
	require.Equal(t, uuid.MustParse(order17), w.filterAttempts.After.Job)
	require.Equal(t, 1, w.filterAttempts.After.Attempt)
	require.False(t, w.filterAttempts.After.At.IsZero())
	require.Empty(t, w.filterAttempts.Owner)
	w.get("/v1/attempts?kind=echo&started_before=2026-01-31T12:00:00%2B01:00").do().is(http.StatusOK)
	require.Equal(t, "echo", w.filterAttempts.Kind)
	require.Equal(t, "2026-01-31T11:00:00Z", w.filterAttempts.StartedBefore.UTC().Format(time.RFC3339))
	require.True(t, w.filterAttempts.RequestedBefore.IsZero())
	w.get("/v1/attempts?started_before=yesterday").do().is(http.StatusBadRequest, "bad-query")
	w.get("/v1/attempts?older_than=old").do().is(http.StatusBadRequest, "bad-query")
	w.get("/v1/attempts?state=lost").do().is(http.StatusBadRequest, "bad-query")
}

func TestListJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 3 {
		w.submit(fmt.Sprint(i), simple).do().is(http.StatusCreated)
	}
	a := w.get("/v1/jobs?state=running&kind=echo&provider=main&key=k&limit=2").do().is(http.StatusOK)
	require.Equal(t, ledger.JobFilter{State: "running", Kind: "echo", Provider: "main", Owner: "acme", Key: "k", Limit: 2}, w.filterJobs)
	require.Len(t, a.body["jobs"], 2)
	last := a.body["jobs"].([]any)[1].(map[string]any)
	cursor := a.body["next_cursor"].(string)
	w.get("/v1/jobs?cursor=" + cursor).do().is(http.StatusOK)
	require.Equal(t, last["id"], w.filterJobs.After.Job.String())
	require.Equal(t, last["created_at"], w.filterJobs.After.At.Format(time.RFC3339Nano))

	all := w.get("/v1/jobs").do().is(http.StatusOK)
	require.Len(t, all.body["jobs"], 3)
	require.Nil(t, all.body["next_cursor"])
	require.Contains(t, all.body, "next_cursor")
	require.Empty(t, w.get("/v1/jobs").as("p-other").do().is(http.StatusOK).body["jobs"])
	require.Empty(t, w.get("/v1/jobs?owner=acme").as("p-other").do().is(http.StatusOK).body["jobs"])
	require.Len(t, w.get("/v1/jobs?owner=acme").as("o-root").do().is(http.StatusOK).body["jobs"], 3)
	for _, query := range []string{"state=lost", "limit=0", "limit=501", "limit=x", "cursor=x", "cursor=" + cursor + "A",
		"sate=running", "state=running&state=failed", "%zz"} {
		w.get("/v1/jobs?"+query).do().is(http.StatusBadRequest, "bad-query")
	}
	w.get("/v1/attempts?cursor="+cursor).do().is(http.StatusBadRequest, "bad-query")
}
