package httpapi_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
	"jobledger/publisher"
)

// ProviderStates makes of the entries what the tables would show. Frozen tables
// know of no brake.
func (w *world) ProviderStates(context.Context) ([]*ledger.ProviderState, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []*ledger.ProviderState
	byName := map[string]*ledger.ProviderState{}
	for i, m := range w.entries {
		e := ledger.Decode(uint64(i+1), w.now, m.Subject, m.Data)
		switch b := e.Body.(type) {
		case *ledger.ProviderDefinition:
			digest, err := ledger.ProviderDigest(b.Type, b.Definition)
			require.NoError(w.t, err)
			row := ledger.ProviderRow{Seq: e.Seq, At: w.now, Name: b.Name, Type: b.Type, Definition: b.Definition, Digest: digest, Actor: b.Actor}
			byName[b.Name] = &ledger.ProviderState{ProviderRow: row, DefinedAt: w.now, DefinedBy: b.Actor}
			list = append(list, byName[b.Name])
		case *ledger.ProviderBrake:
			if s := byName[b.Name]; s != nil && !w.frozen && s.Paused != b.Paused {
				s.Seq, s.Paused, s.PauseReason, s.Actor = e.Seq, b.Paused, b.Reason, b.Actor
			}
		case *ledger.Verification:
			s := byName[b.Provider]
			s.Proofs = append(s.Proofs, ledger.ProviderProof{VerificationRow: ledger.VerificationRow{Seq: e.Seq, At: w.now, Verification: *b}, KindContract: "c1"})
		}
	}
	return list, w.readFault
}

// Candidates is what the test says.
func (w *world) Candidates(context.Context, *ledger.Job, time.Time) ([]ledger.Candidate, error) {
	return w.candidates, w.readFault
}

// TestWhyAJobWaits: a job that waits for a proof says of each provider why it does
// not take over.
func TestWhyAJobWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.submit("order-17", simple).do().is(http.StatusCreated)
	id := a.body["id"].(string)
	detail := func() any {
		return w.get("/v1/jobs/" + id).do().is(http.StatusOK).body["state_detail"]
	}
	w.candidates = []ledger.Candidate{{Provider: "spare", Lapsed: "none"}, {Provider: "third", Lapsed: "contract changed"}}
	require.Nil(t, detail(), "it does not wait")
	c := w.claimed(id)
	w.append((&ledger.Completion{
		Job: c.Job, Attempt: 1, JobVersion: c.JobVersion, Provider: c.Provider, Claim: c.Claim, Outcome: ledger.OutcomeFailed,
		Failure: ledger.Failure{Class: "http_401", Message: "no", Reach: ledger.ReachProvider},
	}).Message())
	require.Equal(t, "spare: it was never verified; third: the contract has changed since its proof", detail())
	w.candidates = nil
	require.Equal(t, "the kind has no other provider", detail())
}

func (w *world) brake(name, what, body string) *call {
	return w.request("POST", "/v1/providers/"+name+"/"+what, body).as("o-root")
}

func TestProviderBrake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.brake("main", "pause", `{"reason":"bad answers"}`).do().is(http.StatusOK)
	require.Equal(t, true, a.body["paused"])
	require.Equal(t, "bad answers", a.body["pause_reason"])
	require.Equal(t, "operator:root", a.body["changed_by"])
	require.Empty(t, a.header.Get("Ledger-Job-Id"))
	require.Empty(t, a.header.Get("Idempotent-Replayed"))

	// The fold sees it: a job waits.
	job := w.submit("order-17", simple).do().is(http.StatusCreated)
	require.Equal(t, "provider-paused", job.body["state_reason"])

	// Once more changes nothing, in whatever words.
	again := w.brake("main", "pause", `{"reason":"other"}`).do().is(http.StatusOK)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, "bad answers", again.body["pause_reason"])

	a = w.brake("main", "resume", "").do().is(http.StatusOK)
	require.Equal(t, false, a.body["paused"])
	require.Nil(t, a.body["pause_reason"])
}

func TestProviderBrakeRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.appended()
	w.brake("main", "pause", "nonsense").as("p-acme").do().is(http.StatusForbidden, "forbidden")
	w.brake("main", "resume", "").as("p-acme").do().is(http.StatusForbidden, "forbidden")
	w.brake("main", "pause", "").without("Authorization").do().is(http.StatusUnauthorized, "unauthorized")
	w.brake("main", "pause", `{"reason":7}`).do().is(http.StatusBadRequest, "bad-request")
	w.brake("main", "pause", `{"why":"x"}`).do().is(http.StatusBadRequest, "malformed-json")
	w.brake("Main", "pause", "").do().is(http.StatusNotFound, "not-found")
	require.Equal(t, before, w.appended(), "nothing of that is appended")
	w.brake("nobody", "pause", "").do().is(http.StatusNotFound, "not-found")
	w.brake("main", "stop", "").do().is(http.StatusNotFound, "not-found")
	w.request("GET", "/v1/providers/main/pause", "").do().is(http.StatusMethodNotAllowed, "method-not-allowed")
}

// What is not known of a brake is not claimed.
func TestProviderBrakeUndecided(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(func() { w.silent = true })
	a := w.brake("main", "pause", "").do().is(http.StatusAccepted)
	require.NotZero(t, a.body["seq"])
	w.set(func() { w.silent, w.frozen = false, true })
	w.brake("main", "resume", "").do().is(http.StatusAccepted) // decided, but the tables do not show it
	w.set(func() { w.fault = &publisher.AppendError{Unconfirmed: true, Cause: context.DeadlineExceeded} })
	w.brake("main", "pause", "").do().is(http.StatusServiceUnavailable, "append-unconfirmed")
	w.set(func() { w.fault = &publisher.AppendError{Cause: context.DeadlineExceeded} })
	w.brake("main", "pause", "").do().is(http.StatusServiceUnavailable, "not-appended")
}

func TestListProviders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	digest, err := ledger.ProviderDigest("http", []byte(`{}`))
	require.NoError(t, err)
	proof := func(kind, contract, digest string, passed bool, lasts time.Duration) {
		w.append((&ledger.Verification{Provider: "main", Kind: kind, Contract: contract, ProviderDigest: digest, Passed: passed,
			ExpiresAt: time.Now().Add(lasts)}).Message())
	}
	other, err := ledger.ProviderDigest("exec", []byte(`{}`))
	require.NoError(t, err)
	proof("good", "c1", digest.String(), true, time.Hour)
	proof("old", "c1", digest.String(), true, -time.Hour)
	proof("failed", "c1", digest.String(), false, time.Hour)
	proof("contract", "c0", digest.String(), true, time.Hour)
	proof("provider", "c1", other.String(), true, time.Hour)

	a := w.get("/v1/providers").as("o-root").do().is(http.StatusOK)
	list := a.body["providers"].([]any)
	require.Len(t, list, 2)
	main := list[0].(map[string]any)
	require.Equal(t, "main", main["name"])
	require.Equal(t, "http", main["type"])
	require.Equal(t, digest.String(), main["digest"])
	require.Equal(t, false, main["paused"])
	require.NotEmpty(t, main["defined_at"])
	require.Equal(t, map[string]any{}, main["definition"])
	lapsed := map[string]any{}
	for _, v := range main["verifications"].([]any) {
		v := v.(map[string]any)
		lapsed[v["kind"].(string)] = v["lapsed"]
		require.Equal(t, v["lapsed"] == nil, v["valid"])
	}
	require.Equal(t, map[string]any{
		"good": nil, "old": "expired", "failed": "failed", "contract": "contract changed", "provider": "provider changed",
	}, lapsed)

	// Whoever is no operator does not see how it is reached.
	a = w.get("/v1/providers").do().is(http.StatusOK)
	require.Nil(t, a.body["providers"].([]any)[0].(map[string]any)["definition"])
	w.get("/v1/providers?name=main").do().is(http.StatusBadRequest, "bad-query")
	w.get("/v1/providers").without("Authorization").do().is(http.StatusUnauthorized, "unauthorized")
	w.set(func() { w.readFault = context.DeadlineExceeded })
	w.get("/v1/providers").do().is(http.StatusServiceUnavailable, "unavailable")
}
