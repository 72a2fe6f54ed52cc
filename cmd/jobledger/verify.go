package main

import (
	"context"
	"errors"
	"fmt"
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
	Table   string   `json:"table"`
	Key     string   `json:"key"`
	Column  string   `json:"column"`
	Want    string   `json:"want"`
	Got     string   `json:"got"`
	Entries []uint64 `json:"entries"` // sequences
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
	boundGarbage() // what lives is little, unless many jobs are open at once
	m := newMeter(c.stderr, "entries", -1)
	report, err := projector.Verify(ctx, projector.VerifyOptions{
		Pool: d.pool, Stream: s, Prefix: d.meta.Prefix, MaxDifferences: most, Log: c.log,
		Progress: func(folded, end uint64) { m.at(int64(folded), int64(end)) },
	})
	m.close()
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

func (c *cli) printReport(r *projector.VerifyReport) error {
	rate := float64(r.Entries) / max(r.Took.Seconds(), 1e-3)
	if c.output == "json" {
		list := make([]differenceView, len(r.Differences))
		for i, d := range r.Differences {
			list[i] = differenceView(d)
			if d.Entries == nil {
				list[i].Entries = []uint64{}
			}
		}
		return c.printJSON(map[string]any{
			"generation": r.Generation, "entries": r.Entries, "rows": r.Rows, "found": r.Found,
			"differences": list, "checkpoints": r.Checkpoints, "stopped": r.Stopped,
			"seconds": r.Took.Seconds(), "entries_per_second": rate,
		})
	}
	for _, d := range r.Differences {
		if _, err := fmt.Fprintln(c.stdout, d); err != nil {
			return err
		}
	}
	if more := r.Found - len(r.Differences); more > 0 {
		if _, err := fmt.Fprintf(c.stdout, "and %d more\n", more); err != nil {
			return err
		}
	}
	if r.Stopped {
		_, err := fmt.Fprintf(c.stdout, "%s: stopped before the end, since so much differs: %d differences so far\n", r.Generation, r.Found)
		return err
	}
	_, err := fmt.Fprintf(c.stdout, "%s: %d entries folded in %s (%.0f/s), %d rows compared, %d differences\n",
		r.Generation, r.Entries, r.Took.Round(time.Millisecond), rate, r.Rows, r.Found)
	return err
}
