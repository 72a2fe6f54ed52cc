package projector

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

// TestProviderStates follows providers through definitions, brakes and proofs.
func TestProviderStates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	stop := w.project()
	defer stop()
	q := NewQueries(w.pool)
	states := func(seq uint64) map[string]*ledger.ProviderState {
		w.caughtUp(seq)
		list, err := q.ProviderStates(w.ctx())
		require.NoError(t, err)
		byName := map[string]*ledger.ProviderState{}
		for i, s := range list {
			require.True(t, i == 0 || list[i-1].Name < s.Name, "they come by name")
			byName[s.Name] = s
		}
		return byName
	}
	define := func(name, definition, actor string) uint64 {
		return w.append(&ledger.ProviderDefinition{Name: name, Type: "http", Definition: []byte(definition), Actor: actor})
	}
	w.append(echoKind(func(k *ledger.Kind) { k.Name, k.Contract = "strict", "y" }))
	require.Empty(t, states(w.append(echoKind(func(k *ledger.Kind) { k.Contract = "c1" }))))
	first := states(define("b", `{"url":"1"}`, "ann"))["b"]
	require.Equal(t, "ann", first.DefinedBy)
	require.Equal(t, first.At, first.DefinedAt)
	require.Empty(t, first.Proofs)

	// The brake leaves the definition's time and its author as they were.
	define("a", `{}`, "ann")
	found := states(w.append(&ledger.ProviderBrake{Name: "b", Paused: true, Reason: "slow", Actor: "bob"}))
	require.Len(t, found, 2)
	require.False(t, found["a"].Paused)
	b := found["b"]
	require.True(t, b.Paused)
	require.Equal(t, "slow", b.PauseReason)
	require.Equal(t, "bob", b.Actor)
	require.Greater(t, b.Seq, first.Seq)
	require.Equal(t, first.DefinedAt, b.DefinedAt)
	require.Equal(t, "ann", b.DefinedBy)
	require.Equal(t, first.Digest, b.Digest)

	// Another definition has a time of its own, and so has the first one when it
	// comes back.
	w.append(&ledger.ProviderBrake{Name: "b", Actor: "bob"})
	second := states(define("b", `{"url":"2"}`, "cy"))["b"]
	require.Equal(t, "cy", second.DefinedBy)
	require.True(t, second.DefinedAt.After(first.DefinedAt))
	require.False(t, second.Paused)
	third := states(define("b", `{"url":"1"}`, "di"))["b"]
	require.Equal(t, first.Digest, third.Digest)
	require.Equal(t, "di", third.DefinedBy)
	require.True(t, third.DefinedAt.After(second.DefinedAt))

	// What is proved for a kind is told of the contract that it has now; without
	// that, of the latest.
	proved := func(kind, contract string, passed bool) uint64 {
		return w.append(&ledger.Verification{Provider: "b", Kind: kind, Contract: contract, ProviderDigest: third.Digest.String(),
			Passed: passed, ExpiresAt: time.Now().Add(time.Hour)})
	}
	proved("echo", "c0", true)
	require.Equal(t, "c0", states(proved("strict", "x", false))["b"].Proofs[0].Contract)
	proved("echo", "c1", false)
	proved("echo", "c1", true)
	proofs := states(proved("echo", "c2", true))["b"].Proofs
	require.Len(t, proofs, 2)
	require.Equal(t, "echo", proofs[0].Kind)
	require.Equal(t, "c1", proofs[0].Contract)
	require.True(t, proofs[0].Passed)
	require.Empty(t, proofs[0].Lapsed(&third.ProviderRow, time.Now()))
	require.Equal(t, "expired", proofs[0].Lapsed(&third.ProviderRow, time.Now().Add(2*time.Hour)))
	require.Equal(t, "provider changed", proofs[0].Lapsed(&second.ProviderRow, time.Now()))
	require.Equal(t, "strict", proofs[1].Kind)
	require.Equal(t, "contract changed", proofs[1].Lapsed(&third.ProviderRow, time.Now()))

	// A kind that fails over wants proofs of its providers, also where there are
	// none.
	w.append(echoKind(func(k *ledger.Kind) { k.Name, k.Providers = "pay", []string{"a", "b", "c"} }))
	w.append(echoKind(func(k *ledger.Kind) {
		k.Name, k.Providers, k.Failover = "once", []string{"a", "b"}, ledger.FailoverNever
	}))
	found = states(w.append(echoKind(func(k *ledger.Kind) { k.Name, k.Providers = "alone", []string{"b"} })))
	require.Len(t, found["a"].Proofs, 1)
	var kinds []string
	for _, p := range found["b"].Proofs {
		kinds = append(kinds, p.Kind)
	}
	require.Equal(t, []string{"echo", "pay", "strict"}, kinds)
	require.Equal(t, "none", found["b"].Proofs[1].Lapsed(&third.ProviderRow, time.Now()))
	g, err := q.Gauges(w.ctx())
	require.NoError(t, err)
	require.Len(t, g.Proofs, 4)
	require.Equal(t, ProofGauge{Provider: "a", Kind: "pay", Lapsed: "none"}, g.Proofs[0])
	require.Empty(t, g.Proofs[1].Lapsed)
}

// TestCandidates: what holds is the kind as it was when the job was accepted.
func TestCandidates(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	stop := w.project()
	defer stop()
	q := NewQueries(w.pool)
	define := func(name string) {
		w.append(&ledger.ProviderDefinition{Name: name, Type: "http", Definition: []byte(`{}`)})
	}
	for _, name := range []string{"primary", "second", "third"} {
		define(name)
	}
	digest, err := ledger.ProviderDigest("http", []byte(`{}`))
	require.NoError(t, err)
	kind := func(contract string, providers ...string) {
		w.append(echoKind(func(k *ledger.Kind) { k.Contract, k.Providers = contract, providers }))
	}
	prove := func(provider, contract string) {
		w.append(&ledger.Verification{Provider: provider, Kind: "echo", Contract: contract, ProviderDigest: digest.String(), Passed: true, ExpiresAt: time.Now().Add(time.Hour)})
	}
	candidates := func(key string) []ledger.Candidate {
		w.caughtUp(w.last())
		list, err := q.Candidates(w.ctx(), w.job("acme", key), time.Now())
		require.NoError(t, err)
		return list
	}
	kind("c1", "primary", "second", "third", "missing")
	w.append(request("old"))
	named := request("named")
	named.Provider = "second"
	w.append(named)
	require.Equal(t, []ledger.Candidate{{Provider: "second", Lapsed: "none"}, {Provider: "third", Lapsed: "none"}, {Provider: "missing", Lapsed: "not defined"}}, candidates("old"))
	require.Equal(t, "primary", candidates("named")[0].Provider, "what a request names needs no proof")
	prove("second", "c1")
	kind("c2", "primary", "second")
	w.append(request("new"))
	prove("third", "c2")
	require.Equal(t, []ledger.Candidate{{Provider: "second"}, {Provider: "third", Lapsed: "contract changed"}, {Provider: "missing", Lapsed: "not defined"}}, candidates("old"))
	require.Equal(t, []ledger.Candidate{{Provider: "second", Lapsed: "contract changed"}}, candidates("new"))
}

// TestAttemptFilters finds attempts by the kind of their job and by when they
// started.
func TestAttemptFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	stop := w.project()
	defer stop()
	w.append(echoKind())
	w.append(echoKind(func(k *ledger.Kind) { k.Name = "other" }))
	other := request("two")
	other.Kind = "other"
	w.append(request("one"))
	w.append(other)
	w.append(request("three"))
	w.append(claimOf(ledger.JobID("acme", "one"), 1))
	w.caughtUp(w.append(claimOf(ledger.JobID("acme", "two"), 1)))
	first := w.job("acme", "one").Attempts[0].StartedAt
	second := w.job("acme", "two").Attempts[0].StartedAt
	find := func(f ledger.AttemptFilter) (keys []string) {
		list, err := NewQueries(w.pool).Attempts(w.ctx(), f)
		require.NoError(t, err)
		for _, a := range list {
			for _, key := range []string{"one", "two", "three"} {
				if a.Job == ledger.JobID("acme", key) {
					keys = append(keys, key)
				}
			}
		}
		return keys
	}
	require.Equal(t, []string{"one", "two", "three"}, find(ledger.AttemptFilter{}))
	require.Equal(t, []string{"one", "three"}, find(ledger.AttemptFilter{Kind: "echo"}))
	require.Equal(t, []string{"one", "two"}, find(ledger.AttemptFilter{StartedBefore: second.Add(time.Minute)}))
	require.Equal(t, []string{"one"}, find(ledger.AttemptFilter{StartedBefore: second}))
	require.Empty(t, find(ledger.AttemptFilter{StartedBefore: first}))
	require.Equal(t, []string{"two"}, find(ledger.AttemptFilter{Kind: "other", StartedBefore: second.Add(time.Minute), Provider: "primary"}))
}
