package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"
)

func (c *cli) providerCommand() *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List the providers that are defined", Args: cobra.NoArgs, RunE: ran(c.providerList)}
	return group("provider", "List providers", list)
}

func (c *cli) providerList(ctx context.Context, _ []string) error {
	t, err := c.tables(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	providers, err := t.queries.Providers(ctx)
	if err != nil {
		return err
	}
	type listed struct {
		Name       string          `json:"name"`
		Type       string          `json:"type"`
		Digest     string          `json:"digest"`
		Seq        uint64          `json:"seq"`
		At         time.Time       `json:"at"`
		Actor      string          `json:"actor"`
		Definition json.RawMessage `json:"definition"`
	}
	list := make([]listed, len(providers))
	rows := make([][]string, len(providers))
	for i, p := range providers {
		list[i] = listed{p.Name, p.Type, p.Digest.String(), p.Seq, p.At, p.Actor, p.Definition}
		rows[i] = []string{p.Name, p.Type, p.Digest.String()[:12], timeCell(&p.At), p.Actor, string(p.Definition)}
	}
	if c.output == "json" {
		return c.printJSON(map[string]any{"providers": list})
	}
	return c.printTable([]string{"PROVIDER", "TYPE", "DIGEST", "DEFINED", "BY", "DEFINITION"}, rows)
}
