package main

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func (c *cli) attemptCommand() *cobra.Command {
	return group("attempt", "List attempts, start another, say how one ended", c.attemptListCommand(), c.attemptStartCommand(), c.attemptResolveCommand())
}

func (c *cli) attemptListCommand() *cobra.Command {
	var state, provider, kind string
	var olderThan time.Duration
	var p page
	cmd := &cobra.Command{Use: "list", Short: "List attempts, the oldest first", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&state, "state", "", "only attempts in this state, such as unknown")
	cmd.Flags().StringVar(&provider, "provider", "", "only attempts on this provider")
	cmd.Flags().StringVar(&kind, "kind", "", "only attempts of jobs of this kind")
	cmd.Flags().DurationVar(&olderThan, "older-than", 0, "only attempts that were requested at least this long ago")
	p.flags(cmd)
	fixed(cmd, "state", attemptStates...)
	cmd.RunE = ran(func(ctx context.Context, _ []string) error {
		filters := map[string]string{"state": state, "provider": provider, "kind": kind}
		if olderThan > 0 {
			filters["older_than"] = olderThan.String()
		}
		var list struct {
			Attempts []attemptView `json:"attempts"`
			Next     *string       `json:"next_cursor"`
		}
		return c.list(ctx, "", "/v1/attempts", p.query(filters), &list, func() error { return c.printAttempts(list.Attempts, list.Next) })
	})
	return cmd
}

func (c *cli) attemptStartCommand() *cobra.Command {
	var n jobName
	var provider, key string
	var force bool
	cmd := &cobra.Command{
		Use: "start JOB [--provider P]", Short: "Try a job again, or on another provider: the fallback button",
		Long: "Try a job again, or on another provider: the fallback button. It is refused while another attempt may still\n" +
			"have an effect. Give --attempt-key to make repetitions of this command one wish; each run is one otherwise.",
	}
	n.flags(cmd)
	cmd.Flags().StringVar(&provider, "provider", "", "the provider to try (default: that of the latest attempt)")
	cmd.Flags().BoolVar(&force, "force", false, "start on a provider that is not verified for the job's kind")
	cmd.Flags().StringVar(&key, "attempt-key", "", "the wish's own idempotency key (default: a random one)")
	cmd.RunE = ran(func(ctx context.Context, args []string) error {
		if key == "" {
			key = "cli-" + rand.Text()
		}
		return c.withJob(ctx, &n, args, func(api *apiClient, id string) error {
			body := struct {
				Provider string `json:"provider,omitempty"`
				Force    bool   `json:"force,omitempty"`
			}{provider, force}
			a, err := api.call(ctx, request{method: http.MethodPost, path: "/v1/jobs/" + id + "/attempts", key: key, body: body})
			if err != nil {
				c.log.Info("to repeat this very wish, and not make another, give its key", "attempt-key", key)
				return err
			}
			if c.output == "json" {
				return c.printBody(a.body)
			}
			var at attemptView
			if err := a.decode(&at); err != nil {
				return err
			}
			at.JobID = id
			return c.printAttempts([]attemptView{at}, nil)
		})
	})
	return cmd
}
