package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"jobledger/internal/stream"
	"jobledger/projector"
)

func (c *cli) verifyCommand() *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use: "verify", Short: "Fold the stream again and compare the tables with it, cell by cell",
		Long: "Fold the stream again and compare the tables with it, cell by cell, up to their checkpoints. It changes\n" +
			"nothing. The exit status is 6 if there are differences.",
		Args: cobra.NoArgs,
		RunE: ran(func(ctx context.Context, _ []string) error { return c.verify(ctx, most) }),
	}
	cmd.Flags().IntVar(&most, "differences", 20, "the most differences to print; all are counted")
	return cmd
}

type differenceView struct {
	Table  string `json:"table"`
	Key    string `json:"key"`
	Column string `json:"column"`
	Want   string `json:"want"`
	Got    string `json:"got"`
}

func (c *cli) verify(ctx context.Context, most int) error {
	if most < 1 {
		return exitWith(exitUsage, "--differences is %d; expected 1 or more", most)
	}
	d, err := c.direct(ctx)
	if err != nil {
		return err
	}
	defer d.closeLogged(c.log)
	s, err := stream.Open(ctx, d.js, d.meta.Stream, d.meta.Prefix)
	if err != nil {
		return err
	}
	report, err := projector.Verify(ctx, projector.VerifyOptions{
		Pool: d.pool, Stream: s, Prefix: d.meta.Prefix, MaxDifferences: most, Log: c.log,
		Progress: c.progress(),
	})
	var other *projector.StreamError
	if errors.As(err, &other) {
		return &exitError{code: exitDifferences, err: err}
	}
	if err != nil {
		return err
	}
	if err := c.printReport(report); err != nil {
		return err
	}
	if report.Found > 0 {
		return exitStatus(exitDifferences)
	}
	return nil
}

// progressInterval is how often a long command says how far it is.
const progressInterval = 2 * time.Second

// progress returns a function that logs the sequence now and then. Any number of
// shards may call it.
func (c *cli) progress() func(seq uint64) {
	var mu sync.Mutex
	last := time.Now()
	return func(seq uint64) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) >= progressInterval {
			last = time.Now()
			c.log.Info("folded", "seq", seq)
		}
	}
}

func (c *cli) printReport(r *projector.VerifyReport) error {
	if c.output == "json" {
		list := make([]differenceView, len(r.Differences))
		for i, d := range r.Differences {
			list[i] = differenceView(d)
		}
		return c.printJSON(map[string]any{
			"generation": r.Generation, "entries": r.Entries, "rows": r.Rows, "found": r.Found,
			"differences": list, "checkpoints": r.Checkpoints,
		})
	}
	for _, d := range r.Differences {
		if _, err := fmt.Fprintln(c.stdout, d); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(c.stdout, "%s: %d entries folded, %d rows compared, %d differences\n", r.Generation, r.Entries, r.Rows, r.Found)
	return err
}
