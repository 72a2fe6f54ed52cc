package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/internal/config"
	"jobledger/workers"
	"jobledger/workers/contract"
)

func TestModelProvidersAreMadeFromTheConfiguration(t *testing.T) {
	asking, err := contract.New(contract.Spec{
		Prompt: &contract.Prompt{User: "{{json .}}"},
		Cases:  []contract.Case{{Name: "one", Input: json.RawMessage(`1`), Instructions: true}},
	})
	require.NoError(t, err)
	silent, err := contract.New(contract.Spec{})
	require.NoError(t, err)
	contracts := map[string]*contract.Contract{"ask": asking, "hash": silent}
	answers := map[config.ModelAPI]string{
		config.APIOpenAI:    `{"choices":[{"finish_reason":"stop","message":{"content":"{}"}}]}`,
		config.APIAnthropic: `{"content":[{"type":"text","text":"{}"}],"stop_reason":"end_turn"}`,
	}
	t.Setenv("MODEL_TEST_KEY", "sk-0123456789abcdef0123\n")
	for api, answer := range answers {
		var keys []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(answer))
		}))
		p := config.Provider{Name: "p", Concurrency: 1, Spec: config.Model{
			API: api, BaseURL: server.URL, Model: "m", APIKeyEnv: "MODEL_TEST_KEY", IdempotencyKey: config.KeyPerAttempt,
		}}
		impl, perAttempt, err := implementation(p, contracts)
		require.NoError(t, err)
		require.True(t, perAttempt)
		result, err := impl.Call(t.Context(), workers.Call{JobID: uuid.New(), Attempt: 1, Kind: "ask", Input: []byte(`1`), IdempotencyKey: "k"})
		require.NoError(t, err)
		require.JSONEq(t, `{}`, string(result.Body))
		_, err = impl.Call(t.Context(), workers.Call{JobID: uuid.New(), Attempt: 1, Kind: "hash", Input: []byte(`1`), IdempotencyKey: "k"})
		require.ErrorContains(t, err, "no contract for the kind hash")
		require.Len(t, keys, 1)
		require.Contains(t, keys[0], "sk-0123456789abcdef0123")
		impl.(interface{ Close() }).Close()
		server.Close()
	}
}

func TestAModelsKeyHasToBeThere(t *testing.T) {
	t.Parallel()
	_, _, err := implementation(config.Provider{Name: "p", Spec: config.Model{
		API: config.APIOpenAI, BaseURL: "http://127.0.0.1:1", Model: "m", APIKeyEnv: "NO_SUCH_KEY_HERE",
	}}, nil)
	require.ErrorContains(t, err, "the environment has no NO_SUCH_KEY_HERE")
}
