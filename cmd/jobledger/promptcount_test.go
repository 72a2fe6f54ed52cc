package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/config"
	"jobledger/workers/contract"
	"jobledger/workers/model"
)

// A model's name says what its vocabulary is only at the vendor's.
func TestPromptCounter(t *testing.T) {
	t.Parallel()
	c, err := contract.New(contract.Spec{
		Prompt: &contract.Prompt{User: "{{.text}}"},
		Cases:  []contract.Case{{Name: "a", Input: []byte(`{"text":"x"}`), Instructions: true}},
	})
	require.NoError(t, err)
	for _, test := range []struct{ url, name, why string }{
		{model.OpenAIURL, "gpt-4o", ""},
		{model.OpenAIURL + "/", "gpt-4o", ""},
		{model.OpenAIURL, "gpt-4-x-alpaca", "the vocabulary of the model gpt-4-x-alpaca"},
		{"http://127.0.0.1:8000/v1", "gpt-4o", "the models at http://127.0.0.1:8000/v1"},
	} {
		p := config.Provider{Spec: config.Model{API: config.APIOpenAI, BaseURL: test.url, Model: test.name}}
		n, err := promptCounter(p, nil, c).CountTokens(t.Context(), "kind", []byte(`{"text":"x"}`))
		if test.why == "" {
			require.NoError(t, err)
			require.Positive(t, n)
			continue
		}
		require.ErrorContains(t, err, test.why)
	}
}
