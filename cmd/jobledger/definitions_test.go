package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/config"
	"jobledger/ledger"
	"jobledger/workers/contract"
)

// TestProviderMeaningIsPinned: verifications refer to the digest of these bytes,
// so what is written today has to be written tomorrow.
func TestProviderMeaningIsPinned(t *testing.T) {
	t.Parallel()
	for meaning, spec := range map[string]config.ProviderSpec{
		`{"url":"http://x/","idempotency_key":"job"}`: config.HTTP{URL: "http://x/", IdempotencyKey: config.KeyPerJob},
		`{"url":"http://x/","headers_env":{"A":"B"},"known_failures":[500],"idempotency_key":"attempt","reconcile":{"lookup":"http://x/{job_id}","not_found":"unknown"}}`: config.HTTP{
			URL: "http://x/", HeadersEnv: map[string]string{"A": "B"}, KnownFailures: []int{500}, IdempotencyKey: config.KeyPerAttempt,
			Reconcile: config.Reconcile{Lookup: "http://x/{job_id}", NotFound: config.NotFoundUnknown},
		},
		`{}`:                  config.Own{},
		`{"version":"3"}`:     config.Own{Version: "3"},
		`{"command":["cat"]}`: config.Exec{Command: []string{"cat"}},
		`{"command":["a","b"],"dir":"/tmp","env_pass":["HOME"]}`: config.Exec{Command: []string{"a", "b"}, Dir: "/tmp", EnvPass: []string{"HOME"}},
		`{"base_url":"https://h/v1","model":"m","idempotency_key":"job"}`: config.Model{
			API: config.APIOpenAI, BaseURL: "https://h/v1", Model: "m", APIKeyEnv: "KEY", IdempotencyKey: config.KeyPerJob,
		},
		`{"base_url":"https://h","model":"m","stream":true,"known_failures":[529],"idempotency_key":"attempt"}`: config.Model{
			API: config.APIAnthropic, BaseURL: "https://h", Model: "m", Stream: true, KnownFailures: []int{529}, IdempotencyKey: config.KeyPerAttempt,
		},
	} {
		got, err := providerMeaning(config.Provider{Name: "p", Concurrency: 7, Spec: spec})
		require.NoError(t, err)
		require.Equal(t, meaning, string(got))
	}
}

func TestKindDefinition(t *testing.T) {
	t.Parallel()
	kind := config.Dev([]string{"cat"}).Kinds["echo"]
	kind.StartTimeout, kind.HeartbeatTimeout = time.Second, 2*time.Second
	got, err := kindDefinition(kind, nil)
	require.NoError(t, err)
	want := ledger.DefaultKind()
	want.Name, want.Providers, want.Effects = "echo", []string{"echo"}, ledger.EffectsNone
	want.StartTimeoutMS, want.HeartbeatTimeoutMS = 1000, 2000
	require.Equal(t, want, got, "the configuration's defaults are the ledger's")

	c, err := contract.New(contract.Spec{Result: []byte(`{"type":"object"}`)})
	require.NoError(t, err)
	got, err = kindDefinition(kind, c)
	require.NoError(t, err)
	require.Equal(t, c.Digest(), got.Contract)
}

func TestHeadersFromEnvironment(t *testing.T) {
	t.Setenv("JOBLEDGER_TEST_SECRET", "s3cret")
	headers, err := headersFromEnvironment(map[string]string{"Authorization": "JOBLEDGER_TEST_SECRET"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"Authorization": "s3cret"}, headers)
	_, err = headersFromEnvironment(map[string]string{"Authorization": "JOBLEDGER_TEST_MISSING"})
	require.ErrorContains(t, err, "JOBLEDGER_TEST_MISSING")
}
