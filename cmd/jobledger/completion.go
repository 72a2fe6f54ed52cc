package main

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"jobledger/ledger"
)

// completionWait bounds what a shell is kept waiting for names.
const completionWait = 2 * time.Second

// namesOf returns names that can stand in a place of the command line.
type namesOf func(context.Context) ([]string, error)

// completeNames completes with names that the ledger knows, and with nothing if
// it cannot be asked.
func (c *cli) completeNames(names namesOf) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		// The command that is being completed has its flags, but was not prepared.
		if err := c.prepare(cmd); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionWait)
		defer cancel()
		list, err := names(ctx)
		if err != nil {
			c.log.Debug("nothing to complete with", "error", err)
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeOne is completeNames for a command's only argument.
func (c *cli) completeOne(names namesOf) cobra.CompletionFunc {
	complete := c.completeNames(names)
	return func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, start)
	}
}

// completeFlags gives a command's flags the completions of their names.
func (c *cli) completeFlags(cmd *cobra.Command) {
	for name, complete := range map[string]cobra.CompletionFunc{
		"provider": c.completeNames(c.providerNames), "kind": c.completeNames(c.kindNames),
	} {
		if cmd.Flags().Lookup(name) != nil {
			must(cmd.RegisterFlagCompletionFunc(name, complete))
		}
	}
	for _, sub := range cmd.Commands() {
		c.completeFlags(sub)
	}
}

// fixed completes a flag with one of a few values.
func fixed[T ~string](cmd *cobra.Command, flag string, values ...T) {
	list := make([]cobra.Completion, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	must(cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)))
}

var (
	jobStates = []ledger.JobState{
		ledger.JobWaiting, ledger.JobRunning, ledger.JobUnknown, ledger.JobSucceeded, ledger.JobFailed, ledger.JobCancelled,
	}
	attemptStates = []ledger.AttemptState{
		ledger.AttemptStarting, ledger.AttemptRunning, ledger.AttemptUnknown, ledger.AttemptSucceeded, ledger.AttemptFailed,
		ledger.AttemptUnsent, ledger.AttemptSuperseded, ledger.AttemptExpired, ledger.AttemptCancelled,
	}
)

// providerNames asks the API.
func (c *cli) providerNames(ctx context.Context) ([]string, error) {
	api, err := c.openAPI(ctx, "")
	if err != nil {
		return nil, err
	}
	defer api.close()
	a, err := api.call(ctx, request{method: http.MethodGet, path: "/v1/providers"})
	if err != nil {
		return nil, err
	}
	var list struct {
		Providers []providerView `json:"providers"`
	}
	if err := a.decode(&list); err != nil {
		return nil, err
	}
	names := make([]string, len(list.Providers))
	for i, p := range list.Providers {
		names[i] = p.Name
	}
	return names, nil
}

// kindNames asks the tables; the API does not list kinds.
func (c *cli) kindNames(ctx context.Context) ([]string, error) {
	if c.api != "" {
		return nil, nil
	}
	t, err := c.tables(ctx)
	if err != nil {
		return nil, err
	}
	defer t.pool.Close()
	kinds, err := t.queries.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Kind.Name
	}
	return names, nil
}
