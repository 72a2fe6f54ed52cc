package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (c *cli) providerCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the providers, with their brakes and what is proved of them", Args: cobra.NoArgs, RunE: ran(c.providerList),
	}
	pause := c.brakeCommand("pause", "Let no attempt start on a provider",
		"Let no attempt start on a provider. What runs goes on. Jobs for it wait, or go to another provider that is proved\n"+
			"for their kind, if the kind fails over. An operator can still start an attempt on it by force.")
	resume := c.brakeCommand("resume", "Let attempts start on a provider again",
		"Let attempts start on a provider again. Jobs that have waited for it start.")
	return group("provider", "List providers, pause and resume them, prove that they keep contracts", list, pause, resume, c.providerVerifyCommand())
}

// What the tables of the output show of a provider.
type providerView struct {
	Name          string             `json:"name"`
	Type          string             `json:"type"`
	Digest        string             `json:"digest"`
	Paused        bool               `json:"paused"`
	PauseReason   *string            `json:"pause_reason"`
	ChangedAt     *time.Time         `json:"changed_at"`
	ChangedBy     *string            `json:"changed_by"`
	Definition    json.RawMessage    `json:"definition"`
	Verifications []verificationView `json:"verifications"`
}

type verificationView struct {
	Kind      string     `json:"kind"`
	Lapsed    *string    `json:"lapsed"`
	ExpiresAt *time.Time `json:"expires_at"`
}

func (c *cli) providerList(ctx context.Context, _ []string) error {
	var list struct {
		Providers []providerView `json:"providers"`
	}
	return c.list(ctx, "", "/v1/providers", nil, &list, func() error { return c.printProviders(list.Providers) })
}

func (c *cli) brakeCommand(what, short, long string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: what + " PROVIDER", Short: short, Long: long, Args: cobra.ExactArgs(1),
		ValidArgsFunction: c.completeOne(c.providerNames),
		RunE: ran(func(ctx context.Context, args []string) error {
			api, err := c.openAPI(ctx, "")
			if err != nil {
				return err
			}
			defer api.close()
			body := struct {
				Reason string `json:"reason,omitempty"`
			}{reason}
			a, err := api.call(ctx, request{method: http.MethodPost, path: "/v1/providers/" + url.PathEscape(args[0]) + "/" + what, body: body})
			if err != nil {
				return err
			}
			if a.replayed {
				c.log.Info("so it was already; nothing has changed", "provider", args[0])
			}
			if c.output == "json" {
				return c.printBody(a.body)
			}
			var v providerView
			if err := a.decode(&v); err != nil {
				return err
			}
			return c.printProviders([]providerView{v})
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func (c *cli) printProviders(list []providerView) error {
	rows := make([][]string, len(list))
	for i, v := range list {
		rows[i] = []string{
			v.Name, v.Type, v.Digest[:min(12, len(v.Digest))], v.pausedCell(), timeCell(v.ChangedAt), textCell(v.ChangedBy), v.verifiedCell(),
		}
		if v.Definition != nil {
			rows[i] = append(rows[i], string(v.Definition))
		}
	}
	return c.printTable([]string{"PROVIDER", "TYPE", "DIGEST", "PAUSED", "CHANGED", "BY", "VERIFIED", "DEFINITION"}, rows)
}

func (v *providerView) pausedCell() string {
	if !v.Paused {
		return "no"
	}
	if why := textCell(v.PauseReason); why != "" {
		return "yes: " + why
	}
	return "yes"
}

// verifiedCell tells for which kinds the provider is proved, and until when.
func (v *providerView) verifiedCell() string {
	cells := make([]string, len(v.Verifications))
	for i, p := range v.Verifications {
		if p.Lapsed != nil {
			cells[i] = p.Kind + " (" + *p.Lapsed + ")"
			continue
		}
		cells[i] = p.Kind + " until " + p.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return strings.Join(cells, ", ")
}
