package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"jobledger/internal/stream"
	"jobledger/ledger"
	"jobledger/projector"
)

func (c *cli) rebuildCommand() *cobra.Command {
	var accept bool
	cmd := &cobra.Command{
		Use: "rebuild", Short: "Fold the whole stream into fresh tables, and switch to them",
		Long: "Fold the whole stream into the tables that are not in use, while the system works, and then switch to them.\n" +
			"Readers see one whole set of tables at every moment; the one of before stays until the next rebuild. A rebuild\n" +
			"that was interrupted has changed nothing that anybody reads: start it again.",
		Args: cobra.NoArgs,
		RunE: ran(func(ctx context.Context, _ []string) error { return c.rebuild(ctx, accept) }),
	}
	cmd.Flags().BoolVar(&accept, "accept-stream", false,
		"fold the stream as it is, although the tables in use were folded from another one or from a longer one (see docs/runbook.md)")
	return cmd
}

func (c *cli) rebuild(ctx context.Context, accept bool) error {
	d, err := c.direct(ctx)
	if err != nil {
		return err
	}
	defer d.closeLogged(c.log)
	s, err := stream.Open(ctx, d.js, d.meta.Stream, d.meta.Prefix)
	if err != nil {
		return err
	}
	boundGarbage() // what lives is little: batches, and the jobs that are open
	m := newMeter(c.stderr, "entries", -1)
	phase := projector.RebuildPhase("")
	report, err := projector.Rebuild(ctx, projector.RebuildOptions{
		Pool: d.pool, Stream: s, Prefix: d.meta.Prefix, AcceptStream: accept, Log: c.log,
		Progress: func(p projector.RebuildProgress) {
			if p.Phase != phase {
				phase = p.Phase
				m.name(string(phase))
			}
			m.at(int64(p.Folded), int64(p.End))
		},
	})
	m.close()
	var other *projector.StreamError
	var corrupt *ledger.CorruptionError
	switch {
	case errors.Is(err, projector.ErrRebuilding):
		return &exitError{code: exitRefused, err: err}
	case errors.As(err, &other), errors.As(err, &corrupt):
		return &exitError{code: exitRefused, err: err}
	case err != nil:
		return err
	}
	rate := float64(report.Entries) / max(report.Took.Seconds(), 1e-3)
	if c.output == "json" {
		return c.printJSON(map[string]any{
			"from": report.From, "to": report.To, "entries": report.Entries, "seconds": report.Took.Seconds(), "entries_per_second": rate,
		})
	}
	_, err = fmt.Fprintf(c.stdout, "%d entries folded in %s (%.0f/s); %s is in use now, %s stays until the next rebuild\n",
		report.Entries, report.Took.Round(time.Millisecond), rate, report.To, report.From)
	return err
}
