package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"jobledger/ledger"
)

// resolveOptions say how attempts have ended, and which.
type resolveOptions struct {
	as, result, reason string

	// Of many.
	provider, kind string
	startedBefore  string
	yes            bool
	concurrency    int
}

// A resolution is the body that says how an attempt has ended.
type resolution struct {
	As     string          `json:"as"`
	Result json.RawMessage `json:"result,omitempty"`
	If     string          `json:"if,omitempty"` // "unknown": only while the attempt is that
	Reason string          `json:"reason"`
}

func (c *cli) attemptResolveCommand() *cobra.Command {
	var o resolveOptions
	cmd := &cobra.Command{
		Use:   "resolve JOB N --as succeeded|failed|cancelled --reason TEXT | resolve --provider P --started-before T …",
		Short: "Say how attempts ended that nobody knows the end of",
		Long: "Say how an attempt ended, from what you have learned outside of the ledger. It settles an unknown attempt for\n" +
			"ever, and fences one that runs. After cancelled the job is held until somebody starts another attempt.\n\n" +
			"With --provider and --started-before it is about all unknown attempts on that provider, of one kind if --kind is\n" +
			"given, that started before then. It lists them and does nothing without --yes. With --yes it resolves them and\n" +
			"tells of each; again, it finds only what is left. The exit status is 4 if one was refused.",
		Args:    cobra.MaximumNArgs(2),
		PreRunE: func(_ *cobra.Command, args []string) error { return o.check(args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.as, "as", "", "succeeded, failed or cancelled (required)")
	f.StringVar(&o.result, "result", "", "the result: `JSON`, @FILE, or - for standard input (with succeeded)")
	f.StringVar(&o.reason, "reason", "", "how you know (required)")
	f.StringVar(&o.provider, "provider", "", "resolve unknown attempts on this provider")
	f.StringVar(&o.kind, "kind", "", "only attempts of jobs of this kind")
	f.StringVar(&o.startedBefore, "started-before", "", "only attempts that started before this `TIME` (RFC 3339), or this long ago (such as 2h)")
	f.BoolVar(&o.yes, "yes", false, "resolve what would be listed otherwise")
	f.IntVar(&o.concurrency, "concurrency", 8, fmt.Sprintf("attempts that are resolved at once, 1 to %d", maxConcurrency))
	must(cmd.MarkFlagRequired("as"))
	must(cmd.MarkFlagRequired("reason"))
	cmd.MarkFlagsRequiredTogether("provider", "started-before")
	fixed(cmd, "as", "succeeded", "failed", "cancelled")
	cmd.RunE = ran(func(ctx context.Context, args []string) error {
		body, err := c.readResolution(&o)
		if err != nil {
			return err
		}
		if len(args) == 0 {
			return c.resolveMany(ctx, &o, body)
		}
		number, err := strconv.Atoi(args[1])
		if err != nil || number < 1 {
			return exitWith(exitUsage, "%q is not an attempt's number", args[1])
		}
		return c.withJob(ctx, &jobName{}, args[:1], func(api *apiClient, id string) error {
			return c.callAndShow(ctx, api, body.request(id, number))
		})
	})
	return cmd
}

// check is an error unless the command names one attempt or many.
func (o *resolveOptions) check(args []string) error {
	switch {
	case len(args) == 2 && (o.provider != "" || o.kind != "" || o.startedBefore != "" || o.yes):
		return fmt.Errorf("--provider, --kind, --started-before and --yes resolve many; leave them out, or the job and the attempt")
	case len(args) == 0 && o.provider == "", len(args) == 1:
		return fmt.Errorf("which attempts? Give a job and the attempt's number, or --provider and --started-before")
	}
	return nil
}

// readResolution reads the body, and judges what must be known before the first
// of many is resolved.
func (c *cli) readResolution(o *resolveOptions) (*resolution, error) {
	body := &resolution{As: o.as, Reason: o.reason}
	if o.provider != "" { // what was listed as unknown may run again by now
		body.If = string(ledger.AttemptUnknown)
	}
	switch o.as {
	case "succeeded":
		if o.result == "" {
			return nil, exitWith(exitUsage, "--result is missing; --as succeeded needs it")
		}
	case "failed", "cancelled":
		if o.result != "" {
			return nil, exitWith(exitUsage, "--result goes with --as succeeded only")
		}
	default:
		return nil, exitWith(exitUsage, "--as is %q; expected succeeded, failed or cancelled", o.as)
	}
	var err error
	if o.result != "" {
		body.Result, err = c.readJSON("--result", o.result)
	}
	return body, err
}

func (b *resolution) request(job string, attempt int) request {
	return request{method: http.MethodPost, path: fmt.Sprintf("/v1/jobs/%s/attempts/%d/resolve", job, attempt), body: b}
}

// instantOf reads a time, or how long ago it was.
func instantOf(flag, text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	ago, err := time.ParseDuration(text)
	if err != nil || ago < 0 {
		return time.Time{}, exitWith(exitUsage, "%s is %q; expected a time such as 2026-01-31T12:00:00Z, or how long ago it was, such as 2h", flag, text)
	}
	return now.Add(-ago), nil
}
