package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"jobledger/workers/contract"
)

// Model is a provider of type openai or anthropic: a language model, at the vendor
// or at any server that speaks the vendor's API.
type Model struct {
	// API is the type, and so which API the server speaks.
	API ModelAPI
	// BaseURL is where the API is: http or https, without credentials and query.
	// Default: the vendor's own.
	BaseURL string
	// Model is the model's name, as the server calls it.
	Model string
	// APIKeyEnv names the environment variable that holds the key; empty: the
	// server needs none.
	APIKeyEnv string
	// Stream asks for answers as streams of events. Default false.
	Stream bool
	// IdempotencyKey says what the Idempotency-Key header holds.
	IdempotencyKey KeyScope
	// KnownFailures are the statuses, ascending, that this server answers only
	// when nothing was done; nil: none beyond the API's own.
	KnownFailures []int
}

// ModelAPI is one of the APIs that servers of models speak.
type ModelAPI string

// The values of [ModelAPI].
const (
	APIOpenAI    ModelAPI = "openai"    // chat completions
	APIAnthropic ModelAPI = "anthropic" // messages
)

// vendorURLs is where the vendors have their APIs.
var vendorURLs = map[ModelAPI]string{APIOpenAI: "https://api.openai.com/v1", APIAnthropic: "https://api.anthropic.com"}

func (m Model) providerType() string { return string(m.API) }

func readModel(api ModelAPI) func(o *object) ProviderSpec {
	return func(o *object) ProviderSpec {
		m := Model{API: api, BaseURL: vendorURLs[api], IdempotencyKey: KeyPerJob}
		set(o, "base_url", &m.BaseURL, baseURL(api))
		need(o, "model", &m.Model, "the model's name, as the server calls it", filledText)
		set(o, "api_key_env", &m.APIKeyEnv, environmentVariable)
		set(o, "stream", &m.Stream, boolean)
		set(o, "idempotency_key", &m.IdempotencyKey, oneOf(KeyPerJob, KeyPerAttempt))
		set(o, "known_failures", &m.KnownFailures,
			listOf(0, "a list of HTTP statuses", integer(minKnownFailure, maxKnownFailure)))
		slices.Sort(m.KnownFailures)
		return m
	}
}

// checkPrompts says which kinds name a model provider and have no prompt for it.
func (c *Config) checkPrompts(contracts map[string]*contract.Contract) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Kinds)) {
		own := contracts[name]
		if own != nil && own.Prompt() != nil {
			continue
		}
		found := "no contract"
		if own != nil {
			found = "the contract " + c.Kinds[name].Contract + " without prompt"
		}
		for _, p := range c.Kinds[name].Providers {
			if _, ok := c.Providers[p].Spec.(Model); ok {
				errs = append(errs, fmt.Errorf(
					"kind %s has %s, and its provider %s is of type %s; expected a contract with prompt: {system: …, user: …}, which says what the model is asked",
					name, found, p, c.Providers[p].Type()))
			}
		}
	}
	return errors.Join(errs...)
}
