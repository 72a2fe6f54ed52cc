package tokens

import (
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/workers/contract"
)

func TestCountTokens(t *testing.T) {
	t.Parallel()
	compile := func(s contract.Spec) *contract.Contract {
		s.Cases = []contract.Case{{Name: "a", Input: []byte(`{"text":"x"}`), Instructions: true}}
		c, err := contract.New(s)
		require.NoError(t, err)
		return c
	}
	bare := compile(contract.Spec{Prompt: &contract.Prompt{User: "{{.text}}"}})
	told := compile(contract.Spec{Prompt: &contract.Prompt{System: "hello world", User: "{{.text}}"}, Result: []byte(`{}`)})
	input := []byte(`{"text":"hello world, hello world"}`)
	for _, test := range []struct {
		model string
		c     *contract.Contract
		want  int
	}{
		{"gpt-4o", bare, 5 + 4 + 3}, {"gpt-4o-2024-08-06", bare, 5 + 4 + 3}, {"gpt-4-turbo", bare, 5 + 4 + 3},
		{"ft:gpt-4o-mini-2024-07-18:acme::abc", bare, 5 + 4 + 3}, {"gpt-4-0125-preview", bare, 5 + 4 + 3}, {"o4-mini", bare, 5 + 4 + 3},
		{"gpt-4o", told, 2 + 4 + 5 + 4 + 3 + 1},
	} {
		n, err := New(test.model, test.c).CountTokens(t.Context(), "kind", input)
		require.NoError(t, err)
		require.Equal(t, test.want, n, test.model)
	}
	for _, model := range []string{"llama-3", "gpt-4-x-alpaca", "gpt-4o-mine", "o1-foo", "ft:gpt-4-mine:acme::abc", "gpt-4.5", ""} {
		_, err := New(model, bare).CountTokens(t.Context(), "kind", input)
		require.ErrorContains(t, err, "the vocabulary of the model "+model)
	}
}
