package main

import (
	"fmt"
	"os"
	"strings"

	"jobledger/internal/config"
	"jobledger/workers/contract"
	"jobledger/workers/model"
)

// modelProvider makes a provider of type openai or anthropic. It gets the contracts
// with a prompt: there is nothing to ask a model for the other kinds.
func modelProvider(spec config.Model, contracts map[string]*contract.Contract) (*model.Provider, error) {
	key, err := keyFromEnvironment(spec.APIKeyEnv)
	if err != nil {
		return nil, err
	}
	o := model.Options{
		BaseURL: spec.BaseURL, Model: spec.Model, APIKey: key, Stream: spec.Stream, KnownFailures: spec.KnownFailures,
		Contracts: map[string]*contract.Contract{},
	}
	for kind, c := range contracts {
		if c.Prompt() != nil {
			o.Contracts[kind] = c
		}
	}
	if spec.API == config.APIAnthropic {
		return model.NewAnthropic(o)
	}
	return model.NewOpenAI(o)
}

// keyFromEnvironment reads the API key from the variable that holds it; "" for none.
// It stands in no error.
func keyFromEnvironment(variable string) (string, error) {
	if variable == "" {
		return "", nil
	}
	key := strings.TrimSpace(os.Getenv(variable))
	if key == "" {
		return "", fmt.Errorf("the environment has no %s, or nothing in it; it is to hold the API key (api_key_env)", variable)
	}
	return key, nil
}
