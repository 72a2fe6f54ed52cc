package workers

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
	"jobledger/workers/contract"
)

func summaries(t testing.TB) *contract.Contract {
	t.Helper()
	c, err := contract.New(contract.Spec{
		Input:      json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`),
		Result:     json.RawMessage(`{"type":"object","properties":{"summary":{"type":"string"},"words":{"type":"integer"}},"required":["summary","words"]}`),
		Assertions: []contract.Assertion{{Name: "shorter", Expr: "size(result.summary) < size(input.text)", Message: "a summary is shorter than its text"}},
		Limits:     contract.Limits{ResultBytes: 2000},
	})
	require.NoError(t, err)
	return c
}

// under publishes the start of an attempt of a job that was accepted under a
// contract.
func (r *rig) under(key, digest, input string) {
	r.t.Helper()
	r.deliver(&ledger.Start{
		Job: ledger.JobID("acme", key), Attempt: 1, JobVersion: 1, Owner: "acme", Kind: "summarize", KindSeq: 1,
		Provider: testProvider, Input: []byte(input), TimeoutMS: r.timeoutMS, Contract: digest,
	})
}

func (r *rig) deliver(start *ledger.Start) {
	r.t.Helper()
	m := start.Message()
	_, err := r.js.Publish(context.Background(), r.prefix+"."+m.Subject, m.Data)
	require.NoError(r.t, err)
}

const longText = `{"text":"a text that is rather long for what it has to say"}`

// TestBrokenContracts: whatever way a result breaks the contract, the attempt has
// failed although the provider did the work, and what it said is kept.
func TestBrokenContracts(t *testing.T) {
	t.Parallel()
	c := summaries(t)
	for name, test := range map[string]struct{ said, message string }{
		"prose":          {"Here is your summary: a text.", "json: "},
		"fences":         {"```json\n{\"summary\":\"a\",\"words\":1}\n```", "json: "},
		"trailing prose": {`{"summary":"a","words":1} Hope that helps!`, "json: "},
		"nothing":        {"", "json: "},
		"no text":        {"\xff\x00", "json: "},
		"cut off":        {`{"summary":"a`, "json: "},
		"two values":     {`{"summary":"a","words":1}{"summary":"b","words":1}`, "json: "},
		"renamed member": {`{"Summary":"a","words":1}`, "/Summary: it is not declared"},
		"extra member":   {`{"summary":"a","words":1,"confidence":0.9}`, "/confidence: it is not declared"},
		"array":          {`[{"summary":"a","words":1}]`, "want object"},
		"text in text":   {`"{\"summary\":\"a\",\"words\":1}"`, "want object"},
		"null":           {`null`, "want object"},
		"wrong type":     {`{"summary":"a","words":"1"}`, "/words: "},
		"wrong meaning":  {`{"summary":"a text that is rather long for what it has to say","words":12}`, "shorter: a summary is shorter than its text"},
		"too large":      {`{"summary":"` + strings.Repeat("x", 2000) + `","words":1}`, "size: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 1, providerFunc(func(context.Context, Call) (Result, error) {
				return Result{Body: []byte(test.said), Usage: []byte(`{"output_tokens":7}`), ProviderRef: "req-1"}, nil
			}))
			r.w.o.Contracts = map[string]*contract.Contract{"summarize": c}
			r.start().under("k", c.Digest(), longText)
			got := r.completed(1)[0]
			require.Equal(t, ledger.OutcomeFailed, got.Outcome)
			require.Equal(t, "contract", got.Failure.Class)
			require.True(t, got.Failure.Executed)
			require.Equal(t, ledger.ReachTransient, got.Failure.Reach)
			require.Contains(t, got.Failure.Message, test.message)
			require.LessOrEqual(t, len(got.Failure.Message), ledger.MaxTextBytes)
			require.Equal(t, storable(test.said), got.Output)
			require.Nil(t, got.Result)
			require.JSONEq(t, `{"output_tokens":7}`, string(got.Usage), "what it cost is told all the same")
			require.Equal(t, "req-1", got.ProviderRef)
			r.settled()
		})
	}
}

// TestContractsAreKept: what fulfils the contract wins; an input that breaks it
// and a contract that is not the worker's end the attempt before any call.
func TestContractsAreKept(t *testing.T) {
	t.Parallel()
	c := summaries(t)
	for name, test := range map[string]struct {
		digest, input string
		own           map[string]*contract.Contract
		outcome       ledger.Outcome
		class         string
		reach         ledger.Reach
		calls         int32
	}{
		"kept":            {c.Digest(), longText, map[string]*contract.Contract{"summarize": c}, ledger.OutcomeSucceeded, "", "", 1},
		"bad input":       {c.Digest(), `{"texts":[]}`, map[string]*contract.Contract{"summarize": c}, ledger.OutcomeFailed, "invalid_input", ledger.ReachRequest, 0},
		"another one":     {"sha256:other", longText, map[string]*contract.Contract{"summarize": c}, ledger.OutcomeUnsent, "contract_mismatch", ledger.ReachTransient, 0},
		"none here":       {c.Digest(), longText, nil, ledger.OutcomeUnsent, "contract_mismatch", ledger.ReachTransient, 0},
		"none in the job": {"", `{"texts":[]}`, map[string]*contract.Contract{"summarize": c}, ledger.OutcomeSucceeded, "", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			r := newRig(t, 1, providerFunc(func(context.Context, Call) (Result, error) {
				calls.Add(1)
				return Result{Body: []byte(` {"summary":"a text","words":2}` + "\n")}, nil
			}))
			r.w.o.Contracts = test.own
			r.start().under("k", test.digest, test.input)
			got := r.completed(1)[0]
			require.Equal(t, test.outcome, got.Outcome, got.Failure.Message)
			require.Equal(t, test.class, got.Failure.Class)
			require.Equal(t, test.reach, got.Failure.Reach)
			require.False(t, got.Failure.Executed)
			require.Empty(t, got.Output)
			require.Equal(t, test.calls, calls.Load())
			r.settled()
		})
	}
}

// TestWhatWasProvedIsCalled: a start that rests on a proof is not carried out by
// a worker with another definition of the provider.
func TestWhatWasProvedIsCalled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		proved, own string
		outcome     ledger.Outcome
		calls       int32
	}{
		"the same":     {"0a0a", "0a0a", ledger.OutcomeSucceeded, 1},
		"another":      {"0a0a", "0b0b", ledger.OutcomeUnsent, 0},
		"no proof":     {"", "0b0b", ledger.OutcomeSucceeded, 1},
		"not compared": {"0a0a", "", ledger.OutcomeSucceeded, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			r := newRig(t, 1, providerFunc(func(context.Context, Call) (Result, error) {
				calls.Add(1)
				return Result{Body: []byte(`1`)}, nil
			}))
			r.w.o.ProviderDigest = test.own
			r.start().deliver(&ledger.Start{
				Job: ledger.JobID("acme", "k"), Attempt: 1, JobVersion: 1, Owner: "acme", Kind: "summarize", KindSeq: 1,
				Provider: testProvider, Input: []byte(`1`), TimeoutMS: r.timeoutMS, ProviderDigest: test.proved,
			})
			got := r.completed(1)[0]
			require.Equal(t, test.outcome, got.Outcome, got.Failure.Message)
			if test.outcome == ledger.OutcomeUnsent {
				require.Equal(t, "provider_mismatch", got.Failure.Class)
			}
			require.Equal(t, test.calls, calls.Load())
			r.settled()
		})
	}
}
