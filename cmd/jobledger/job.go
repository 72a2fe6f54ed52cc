package main

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"jobledger/ledger"
)

func (c *cli) jobCommand() *cobra.Command {
	return group("job", "Look at jobs, wait for them, cancel them", c.jobGetCommand(), c.jobListCommand(), c.jobHistoryCommand(), c.jobWaitCommand(), c.jobCancelCommand())
}

// A jobName names one job: by its id, or by owner and key.
type jobName struct{ owner, key string }

func (n *jobName) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.owner, "owner", "", "the job's owner, with --key instead of the id")
	cmd.Flags().StringVar(&n.key, "key", "", "the job's idempotency key, with --owner instead of the id")
	cmd.Args = cobra.MaximumNArgs(1)
}

// id returns the job's id.
func (n *jobName) id(args []string) (string, error) {
	switch {
	case len(args) == 1 && n.key == "":
		id, err := uuid.Parse(args[0])
		if err != nil {
			return "", exitWith(exitUsage, "%q is not a job's id; expected a UUID, or --owner and --key", args[0])
		}
		return id.String(), nil
	case len(args) == 0 && n.owner != "" && n.key != "":
		return ledger.JobID(n.owner, n.key).String(), nil
	}
	return "", exitWith(exitUsage, "which job? Give its id, or --owner and --key")
}

// withJob runs f with a client and the job's id.
func (c *cli) withJob(ctx context.Context, n *jobName, args []string, f func(api *apiClient, id string) error) error {
	id, err := n.id(args)
	if err != nil {
		return err
	}
	api, err := c.openAPI(ctx, n.owner)
	if err != nil {
		return err
	}
	defer api.close()
	return f(api, id)
}

func (c *cli) jobGetCommand() *cobra.Command {
	var n jobName
	cmd := &cobra.Command{Use: "get JOB | --owner O --key K", Short: "Print a job with its attempts"}
	n.flags(cmd)
	cmd.RunE = ran(func(ctx context.Context, args []string) error {
		return c.withJob(ctx, &n, args, func(api *apiClient, id string) error {
			return c.callAndShow(ctx, api, request{method: http.MethodGet, path: "/v1/jobs/" + id})
		})
	})
	return cmd
}

// callAndShow makes a call whose answer is a job, and prints that.
func (c *cli) callAndShow(ctx context.Context, api *apiClient, r request) error {
	a, err := api.call(ctx, r)
	if err != nil {
		return err
	}
	_, err = c.showJob(a)
	return err
}

func (c *cli) jobWaitCommand() *cobra.Command {
	var n jobName
	var timeout time.Duration
	var until string
	cmd := &cobra.Command{
		Use: "wait JOB | --owner O --key K", Short: "Wait for a job, print it, and end as it did",
		Long: "Wait for a job, print it, and end as it did: 0 succeeded, 1 failed, 8 unknown, 9 cancelled, 10 not yet.",
	}
	n.flags(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "the most that it waits")
	cmd.Flags().StringVar(&until, "until", "known", "`WHEN` it ends: known (settled or unknown) or terminal (settled)")
	cmd.RunE = ran(func(ctx context.Context, args []string) error {
		if until != "known" && until != "terminal" {
			return exitWith(exitUsage, "--until is %q; expected known or terminal", until)
		}
		return c.withJob(ctx, &n, args, func(api *apiClient, id string) error {
			return c.waitAndShow(ctx, &wait{api: api, id: id, timeout: timeout, terminal: until == "terminal"})
		})
	})
	return cmd
}

func (c *cli) jobCancelCommand() *cobra.Command {
	var n jobName
	var reason string
	cmd := &cobra.Command{
		Use: "cancel JOB | --owner O --key K", Short: "Stop wanting a job",
		Long: "Stop wanting a job. It is cancelled at once; an attempt that runs is told to stop, and what comes of it changes nothing.",
	}
	n.flags(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.RunE = ran(func(ctx context.Context, args []string) error {
		return c.withJob(ctx, &n, args, func(api *apiClient, id string) error {
			body := struct {
				Reason string `json:"reason,omitempty"`
			}{reason}
			return c.callAndShow(ctx, api, request{method: http.MethodPost, path: "/v1/jobs/" + id + "/cancel", body: body})
		})
	})
	return cmd
}

// A page selects a part of a list.
type page struct {
	limit  int
	cursor string
}

func (p *page) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&p.limit, "limit", 50, "the most to print, up to "+strconv.Itoa(ledger.MaxPage))
	cmd.Flags().StringVar(&p.cursor, "cursor", "", "where the page before has ended")
}

// query adds the page and the filters that are set.
func (p *page) query(filters map[string]string) url.Values {
	q := url.Values{"limit": {strconv.Itoa(p.limit)}}
	if p.cursor != "" {
		q.Set("cursor", p.cursor)
	}
	for name, value := range filters {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

func (c *cli) jobListCommand() *cobra.Command {
	var state, owner, key, kind, provider string
	var p page
	cmd := &cobra.Command{Use: "list", Short: "List jobs, the newest first", Args: cobra.NoArgs}
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "only jobs in this state")
	fixed(cmd, "state", jobStates...)
	f.StringVar(&owner, "owner", "", "only jobs of this owner")
	f.StringVar(&key, "key", "", "only jobs with this idempotency key")
	f.StringVar(&kind, "kind", "", "only jobs of this kind")
	f.StringVar(&provider, "provider", "", "only jobs that name this provider")
	p.flags(cmd)
	cmd.RunE = ran(func(ctx context.Context, _ []string) error {
		q := p.query(map[string]string{"state": state, "owner": owner, "key": key, "kind": kind, "provider": provider})
		var list struct {
			Jobs []jobView `json:"jobs"`
			Next *string   `json:"next_cursor"`
		}
		return c.list(ctx, owner, "/v1/jobs", q, &list, func() error { return c.printJobs(list.Jobs, list.Next) })
	})
	return cmd
}

// list prints a page: the body as it is, or what print makes of it.
func (c *cli) list(ctx context.Context, owner, path string, q url.Values, into any, print func() error) error {
	api, err := c.openAPI(ctx, owner)
	if err != nil {
		return err
	}
	defer api.close()
	a, err := api.call(ctx, request{method: http.MethodGet, path: path, query: q})
	if err != nil {
		return err
	}
	if c.output == "json" {
		return c.printBody(a.body)
	}
	if err := a.decode(into); err != nil {
		return err
	}
	return print()
}
