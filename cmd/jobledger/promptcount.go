package main

import (
	"context"
	"fmt"
	"strings"

	"jobledger/internal/config"
	"jobledger/workers"
	"jobledger/workers/contract"
	"jobledger/workers/model"
	"jobledger/workers/proof"
	"jobledger/workers/proof/tokens"
)

// promptCounter is what counts the tokens of a provider's prompts: the provider
// itself, if it can ask its server; for OpenAI's models at OpenAI their vocabulary.
// Another server may call anything by these names. For all others it says why
// nobody can.
func promptCounter(p config.Provider, impl workers.Provider, c *contract.Contract) proof.Counter {
	spec, isModel := p.Spec.(config.Model)
	if isModel && spec.API == config.APIOpenAI {
		if strings.TrimSuffix(spec.BaseURL, "/") != model.OpenAIURL {
			return uncountable("nobody knows the vocabulary of the models at " + spec.BaseURL)
		}
		return tokens.New(spec.Model, c)
	}
	if counter, ok := impl.(proof.Counter); ok {
		return counter
	}
	return uncountable("a provider of type " + p.Type() + " makes its own prompts, whose tokens nobody can count")
}

// uncountable says why nobody can count.
type uncountable string

// CountTokens implements proof.Counter.
func (u uncountable) CountTokens(context.Context, string, []byte) (int, error) {
	return 0, fmt.Errorf("%s", string(u))
}
