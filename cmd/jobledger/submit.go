package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"jobledger/ledger"
)

type submitOptions struct {
	owner, key, kind, input, provider string
	runAt                             string
	delay                             time.Duration
	wait                              bool
	timeout                           time.Duration

	// Of many.
	file        string
	concurrency int
	faults      int
	retryFor    time.Duration
}

func (c *cli) submitCommand() *cobra.Command {
	var o submitOptions
	cmd := &cobra.Command{
		Use:   "submit --owner O --key K --kind KIND --input JSON|@FILE|- | submit --file FILE|-",
		Short: "Submit a job, or find the one that the key names already; or submit the lines of a file",
		Long: "Submit a job, or find the one that the key names already. The same intent under the same key is one\n" +
			"job, however often it is submitted; another intent under it is a conflict (exit status 3).\n" +
			"With --wait the exit status is the job's end: 0 succeeded, 1 failed, 8 unknown, 9 cancelled, 10 not yet.\n\n" +
			"With --file each line is a JSON object with the members owner, key, kind, input, and provider, run_at or delay\n" +
			"if they are wanted. It prints how many lines were new jobs, existing ones, conflicting, refused and malformed,\n" +
			"and tells of the first bad lines on standard error. The same file again changes nothing, so a run that was\n" +
			"interrupted is repeated. Exit status: 0 all lines are jobs; otherwise the first of these that holds: 1 or 7 or 10\n" +
			"it has stopped before the end (interrupted, unreachable, no decision came), 3 a line conflicts, 4 one is\n" +
			"refused, 2 one is malformed.",
		Args:    cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return o.complete(cmd) },
		RunE: ran(func(ctx context.Context, _ []string) error {
			if o.file != "" {
				return c.submitFile(ctx, o)
			}
			return c.submit(ctx, o)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.owner, "owner", "", "whose job it is (required; over --api the token may say it); for lines that leave it out")
	f.StringVar(&o.key, "key", "", "the idempotency key: one for each intent (required)")
	f.StringVar(&o.kind, "kind", "", "the kind of work (required); for lines that leave it out")
	f.StringVar(&o.input, "input", "", "the input: `JSON`, @FILE, or - for standard input (required)")
	f.StringVar(&o.provider, "provider", "", "the provider to try first (default: as the kind says)")
	f.StringVar(&o.runAt, "run-at", "", "not before this `TIME` (RFC 3339)")
	f.DurationVar(&o.delay, "delay", 0, "not before this much time has passed")
	f.BoolVar(&o.wait, "wait", false, "wait until the job is settled or unknown")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "the most that --wait waits")
	f.StringVar(&o.file, "file", "", "submit the lines of this `FILE`, - for standard input")
	f.IntVar(&o.concurrency, "concurrency", 32, fmt.Sprintf("lines of --file that are under way at once, 1 to %d", maxConcurrency))
	f.IntVar(&o.faults, "faults", 20, "the most bad lines of --file to tell of; all are counted")
	f.DurationVar(&o.retryFor, "retry-for", time.Minute, "how long a line of --file is repeated while the ledger cannot be reached or does not decide")
	cmd.MarkFlagsMutuallyExclusive("run-at", "delay")
	for _, name := range []string{"key", "input", "provider", "run-at", "delay", "wait", "timeout"} {
		cmd.MarkFlagsMutuallyExclusive("file", name)
	}
	return cmd
}

// complete is an error if flags are missing.
func (o *submitOptions) complete(cmd *cobra.Command) error {
	if o.file != "" {
		return nil
	}
	var missing []string
	for _, name := range []string{"input", "key", "kind"} {
		if !cmd.Flags().Changed(name) {
			missing = append(missing, strconv.Quote(name))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("required flag(s) %s not set; or give --file", strings.Join(missing, ", "))
	}
	return nil
}

// must is for errors that only a mistake in this program can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// The body of POST /v1/jobs.
type submission struct {
	Kind     string          `json:"kind"`
	Input    json.RawMessage `json:"input"`
	Provider string          `json:"provider,omitempty"`
	RunAt    string          `json:"run_at,omitempty"`
	Delay    string          `json:"delay,omitempty"`
}

func (c *cli) submit(ctx context.Context, o submitOptions) error {
	if o.owner == "" && (c.api == "" || os.Getenv(envPrefix+"TOKEN") == "") {
		return exitWith(exitUsage, "--owner is missing")
	}
	body := submission{Kind: o.kind, Provider: o.provider, RunAt: o.runAt}
	if o.delay != 0 {
		body.Delay = o.delay.String()
	}
	var err error
	if body.Input, err = c.readJSON("--input", o.input); err != nil {
		return err
	}
	api, err := c.openAPI(ctx, o.owner)
	if err != nil {
		return err
	}
	defer api.close()
	a, err := api.call(ctx, request{method: http.MethodPost, path: "/v1/jobs", key: o.key, body: body})
	if err != nil {
		return err
	}
	if a.replayed {
		c.log.Info("the key names this job already; nothing new was started")
	}
	if !o.wait {
		_, err := c.showJob(a)
		return err
	}
	var j jobView
	if err := a.decode(&j); err != nil {
		return err
	}
	w := wait{api: api, id: j.ID, timeout: o.timeout, found: true}
	return c.waitAndShow(ctx, &w)
}

// readJSON reads a JSON value that is given as itself, as @FILE, or as - for
// standard input, and checks that the ledger can take it.
func (c *cli) readJSON(flag, given string) (json.RawMessage, error) {
	var data []byte
	var err error
	switch {
	case given == "-":
		data, err = io.ReadAll(io.LimitReader(c.stdin, ledger.MaxRequestBytes+1))
	case strings.HasPrefix(given, "@"):
		data, err = readFileUpTo(given[1:], ledger.MaxRequestBytes+1)
	default:
		data = []byte(given)
	}
	if err != nil {
		return nil, exitWith(exitUsage, "%s: %w", flag, err)
	}
	if len(data) > ledger.MaxRequestBytes {
		return nil, exitWith(exitUsage, "%s has more than %d bytes, the most that a request may have", flag, ledger.MaxRequestBytes)
	}
	if err := ledger.CheckJSON(data); err != nil {
		return nil, exitWith(exitUsage, "%s: %w", flag, err)
	}
	return data, nil
}

func readFileUpTo(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// showJob prints a job that the API has answered with.
func (c *cli) showJob(a answer) (*jobView, error) {
	var j jobView
	if err := a.decode(&j); err != nil {
		return nil, err
	}
	if c.output == "json" {
		return &j, c.printBody(a.body)
	}
	return &j, c.printJob(&j)
}
