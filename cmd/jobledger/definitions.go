package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"jobledger/internal/config"
	"jobledger/ledger"
	"jobledger/publisher"
	"jobledger/workers/contract"
)

// decisionWait bounds the wait for one entry's decision.
const decisionWait = 15 * time.Second

// decide appends an entry and returns the decision on it.
func decide(ctx context.Context, c *publisher.Client, m ledger.Message) (ledger.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, decisionWait)
	defer cancel()
	return c.Decide(ctx, m)
}

// A definition is a kind or a provider, ready to be appended.
type definition struct {
	What string // kind or provider
	Name string
	body ledger.Body
}

// An applied definition is one that the fold has decided about.
type appliedDefinition struct {
	What     string          `json:"what"`
	Name     string          `json:"name"`
	Decision ledger.Decision `json:"decision"`
	Reason   ledger.Reason   `json:"reason,omitempty"`
	Detail   string          `json:"detail,omitempty"`
	Seq      uint64          `json:"seq"`
}

// definitions returns what a configuration defines: providers first, so that
// kinds find what they name. It reads the kinds' contracts.
func definitions(cfg *config.Config, actor string) ([]definition, error) {
	contracts, err := cfg.Contracts()
	if err != nil {
		return nil, err
	}
	var list []definition
	for _, name := range slices.Sorted(maps.Keys(cfg.Providers)) {
		p := cfg.Providers[name]
		meaning, err := providerMeaning(p)
		if err != nil {
			return nil, err
		}
		list = append(list, definition{"provider", name, &ledger.ProviderDefinition{
			Name: name, Type: p.Type(), Definition: meaning, Actor: actor,
		}})
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Kinds)) {
		k, err := kindDefinition(cfg.Kinds[name], contracts[name])
		if err != nil {
			return nil, err
		}
		list = append(list, definition{"kind", name, &ledger.KindDefinition{Kind: k, Actor: actor}})
	}
	return list, nil
}

// applyDefinitions appends definitions one after the other and awaits the
// decisions. It goes on after a refusal, and stops when the ledger cannot be
// reached.
func applyDefinitions(ctx context.Context, c *publisher.Client, list []definition) ([]appliedDefinition, error) {
	applied := make([]appliedDefinition, 0, len(list))
	for _, d := range list {
		a, err := decide(ctx, c, d.body.Message())
		if err != nil {
			return applied, fmt.Errorf("define the %s %s: %w", d.What, d.Name, err)
		}
		applied = append(applied, appliedDefinition{d.What, d.Name, a.Decision, a.Reason, a.Detail, a.Seq})
	}
	return applied, nil
}

// kindDefinition converts a configured kind with its contract, nil for none.
func kindDefinition(k config.Kind, c *contract.Contract) (ledger.Kind, error) {
	d := ledger.Kind{
		Name:               k.Name,
		Providers:          k.Providers,
		Effects:            ledger.Effects(k.Effects),
		Mode:               ledger.Mode(k.Mode),
		HedgeAfterMS:       k.HedgeAfter.Milliseconds(),
		StartTimeoutMS:     k.StartTimeout.Milliseconds(),
		AttemptTimeoutMS:   k.AttemptTimeout.Milliseconds(),
		HeartbeatTimeoutMS: k.HeartbeatTimeout.Milliseconds(),
		MaxAttempts:        k.MaxAttempts,
		Backoff: ledger.BackoffPolicy{
			InitialMS:   k.Backoff.Initial.Milliseconds(),
			MaxMS:       k.Backoff.Max.Milliseconds(),
			FactorMilli: k.Backoff.FactorMilli,
		},
		Failover: ledger.FailoverRule(k.Failover),
	}
	if c != nil {
		d.Contract = c.Digest()
	}
	if err := d.Check(); err != nil {
		return ledger.Kind{}, fmt.Errorf("kind %s: %w", k.Name, err)
	}
	return d, nil
}

// The meaning of a provider: what decides about the results that it gives.
// Neither secrets nor what is a worker's own business (concurrency) are part of
// it. Verifications refer to its digest, so members only grow, as omitempty.
type httpMeaning struct {
	URL            string            `json:"url"`
	HeadersEnv     map[string]string `json:"headers_env,omitempty"`
	KnownFailures  []int             `json:"known_failures,omitempty"`
	IdempotencyKey config.KeyScope   `json:"idempotency_key"`
	Reconcile      *reconcileMeaning `json:"reconcile,omitempty"`
}

type reconcileMeaning struct {
	Lookup   string          `json:"lookup,omitempty"`
	Replay   bool            `json:"replay,omitempty"`
	NotFound config.NotFound `json:"not_found,omitempty"`
}

type execMeaning struct {
	Command []string `json:"command"`
	Dir     string   `json:"dir,omitempty"`
	EnvPass []string `json:"env_pass,omitempty"`
}

type ownMeaning struct {
	Version string `json:"version,omitempty"`
}

// modelMeaning has the model's API in the definition's type. Where the key is kept
// is left out: it says nothing of the answers.
type modelMeaning struct {
	BaseURL        string          `json:"base_url"`
	Model          string          `json:"model"`
	Stream         bool            `json:"stream,omitempty"`
	KnownFailures  []int           `json:"known_failures,omitempty"`
	IdempotencyKey config.KeyScope `json:"idempotency_key"`
}

func providerMeaning(p config.Provider) ([]byte, error) {
	switch spec := p.Spec.(type) {
	case config.HTTP:
		m := httpMeaning{
			URL: spec.URL, HeadersEnv: spec.HeadersEnv, KnownFailures: spec.KnownFailures, IdempotencyKey: spec.IdempotencyKey,
		}
		if spec.Reconcile != (config.Reconcile{}) {
			m.Reconcile = &reconcileMeaning{spec.Reconcile.Lookup, spec.Reconcile.Replay, spec.Reconcile.NotFound}
		}
		return json.Marshal(m)
	case config.Exec:
		return json.Marshal(execMeaning{spec.Command, spec.Dir, spec.EnvPass})
	case config.Own:
		return json.Marshal(ownMeaning{spec.Version})
	case config.Model:
		return json.Marshal(modelMeaning{spec.BaseURL, spec.Model, spec.Stream, spec.KnownFailures, spec.IdempotencyKey})
	}
	return nil, fmt.Errorf("provider %s has the type %q; expected http, exec, worker, openai or anthropic", p.Name, p.Type())
}
