package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (c *cli) attemptCommand() *cobra.Command {
	return group("attempt", "List attempts, start another, say how one ended", c.attemptListCommand(), c.attemptStartCommand(), c.attemptResolveCommand())
}

func (c *cli) attemptListCommand() *cobra.Command {
	var state, provider string
	var olderThan time.Duration
	var p page
	cmd := &cobra.Command{Use: "list", Short: "List attempts, the oldest first", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&state, "state", "", "only attempts in this state, such as unknown")
	cmd.Flags().StringVar(&provider, "provider", "", "only attempts on this provider")
	cmd.Flags().DurationVar(&olderThan, "older-than", 0, "only attempts that were requested at least this long ago")
	p.flags(cmd)
	cmd.RunE = ran(func(ctx context.Context, _ []string) error {
		filters := map[string]string{"state": state, "provider": provider}
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

func (c *cli) attemptResolveCommand() *cobra.Command {
	var as, result, reason string
	cmd := &cobra.Command{
		Use: "resolve JOB N --as succeeded|failed|cancelled --reason TEXT", Short: "Say how an attempt ended that nobody knows the end of",
		Long: "Say how an attempt ended, from what you have learned outside of the ledger. It settles an unknown attempt for\n" +
			"ever, and fences one that runs. After cancelled the job is held until somebody starts another attempt.",
		Args: cobra.ExactArgs(2),
	}
	cmd.Flags().StringVar(&as, "as", "", "succeeded, failed or cancelled (required)")
	cmd.Flags().StringVar(&result, "result", "", "the result: `JSON`, @FILE, or - for standard input (with succeeded)")
	cmd.Flags().StringVar(&reason, "reason", "", "how you know (required)")
	must(cmd.MarkFlagRequired("as"))
	must(cmd.MarkFlagRequired("reason"))
	cmd.RunE = ran(func(ctx context.Context, args []string) error {
		number, err := strconv.Atoi(args[1])
		if err != nil || number < 1 {
			return exitWith(exitUsage, "%q is not an attempt's number", args[1])
		}
		body := struct {
			As     string          `json:"as"`
			Result json.RawMessage `json:"result,omitempty"`
			Reason string          `json:"reason"`
		}{As: as, Reason: reason}
		if result != "" {
			if body.Result, err = c.readJSON("--result", result); err != nil {
				return err
			}
		}
		return c.withJob(ctx, &jobName{}, args[:1], func(api *apiClient, id string) error {
			path := fmt.Sprintf("/v1/jobs/%s/attempts/%d/resolve", id, number)
			return c.callAndShow(ctx, api, request{method: http.MethodPost, path: path, body: body})
		})
	})
	return cmd
}
