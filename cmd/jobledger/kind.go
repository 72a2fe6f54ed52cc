package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"jobledger/internal/config"
)

func (c *cli) kindCommand() *cobra.Command {
	apply := &cobra.Command{
		Use: "apply FILE…", Short: "Define the kinds and providers of configuration files",
		Long: "Define the kinds and providers of configuration files. Jobs keep the definition under which they were accepted.",
		Args: cobra.MinimumNArgs(1),
		RunE: ran(c.kindApply),
	}
	list := &cobra.Command{Use: "list", Short: "List the kinds that are defined", Args: cobra.NoArgs, RunE: ran(c.kindList)}
	return group("kind", "Define and list kinds of work", apply, list)
}

func (c *cli) kindApply(ctx context.Context, files []string) error {
	var all []definition
	for _, file := range files {
		cfg, err := config.Load(file, true)
		if err != nil {
			return &exitError{code: exitUsage, err: err}
		}
		list, err := definitions(cfg, actor())
		if err != nil {
			return exitWith(exitUsage, "%s: %w", file, err)
		}
		if len(list) == 0 {
			return exitWith(exitUsage, "%s has neither kinds nor providers", file)
		}
		all = append(all, list...)
	}
	d, err := c.direct(ctx)
	if err != nil {
		return err
	}
	defer d.closeLogged(c.log)
	applied, err := applyDefinitions(ctx, d.client, all)
	if printErr := c.printApplied(applied); printErr != nil {
		return printErr
	}
	if err != nil {
		return err
	}
	for _, a := range applied {
		if a.Decision.Rejects() {
			return exitStatus(exitRefused)
		}
	}
	return nil
}

func (c *cli) printApplied(applied []appliedDefinition) error {
	if c.output == "json" {
		return c.printJSON(map[string]any{"definitions": applied})
	}
	rows := make([][]string, len(applied))
	for i, a := range applied {
		rows[i] = []string{a.What, a.Name, string(a.Decision), strings.TrimPrefix(string(a.Reason)+": "+a.Detail, ": ")}
	}
	return c.printTable([]string{"WHAT", "NAME", "DECISION", "REASON"}, rows)
}

func (c *cli) kindList(ctx context.Context, _ []string) error {
	t, err := c.tables(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	kinds, err := t.queries.Kinds(ctx)
	if err != nil {
		return err
	}
	type listed struct {
		Name       string          `json:"name"`
		Seq        uint64          `json:"seq"`
		At         time.Time       `json:"at"`
		Actor      string          `json:"actor"`
		Definition json.RawMessage `json:"definition"`
	}
	list := make([]listed, len(kinds))
	rows := make([][]string, len(kinds))
	for i, k := range kinds {
		list[i] = listed{k.Kind.Name, k.Seq, k.At, k.Actor, k.Kind.AppendJSON(nil)}
		rows[i] = []string{
			k.Kind.Name, strings.Join(k.Kind.Providers, ","), string(k.Kind.Effects), string(k.Kind.Mode),
			(time.Duration(k.Kind.AttemptTimeoutMS) * time.Millisecond).String(), fmt.Sprint(k.Kind.MaxAttempts),
			string(k.Kind.Failover), timeCell(&k.At), k.Actor,
		}
	}
	if c.output == "json" {
		return c.printJSON(map[string]any{"kinds": list})
	}
	return c.printTable([]string{"KIND", "PROVIDERS", "EFFECTS", "MODE", "TIMEOUT", "MAX ATTEMPTS", "FAILOVER", "DEFINED", "BY"}, rows)
}
