package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"jobledger/internal/config"
	"jobledger/internal/doctor"
	"jobledger/ledger"
)

func (c *cli) doctorCommand() *cobra.Command {
	var unknownAge time.Duration
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look the ledger over: servers, stream, tables, configuration, workers",
		Long: "Look the ledger over: the stream's settings and fill, the servers' versions and clocks, whether NATS syncs\n" +
			"each write (by nats.monitor), the database's collation and schema, the configuration against what the ledger\n" +
			"has, kinds without workers, unknown attempts, a projector that is behind. It changes nothing.\n" +
			"The exit status is 1 if there is a problem.",
		Args: cobra.NoArgs,
		RunE: ran(func(ctx context.Context, _ []string) error { return c.doctor(ctx, unknownAge) }),
	}
	cmd.Flags().DurationVar(&unknownAge, "unknown-age", doctor.DefaultUnknownAge, "how old an unknown attempt may be")
	return cmd
}

func (c *cli) doctor(ctx context.Context, unknownAge time.Duration) error {
	if unknownAge <= 0 {
		return exitWith(exitUsage, "--unknown-age is %s; expected more than 0", unknownAge)
	}
	t, cfg, err := c.target()
	if err != nil {
		return err
	}
	p := doctor.Patient{
		Stream: cfg.NATS.Stream, Prefix: cfg.NATS.SubjectPrefix, Monitor: cfg.NATS.Monitor,
		DatabaseURL: t.database, UnknownAge: unknownAge,
	}
	if p.Kinds, p.Providers, err = configuredJSON(cfg); err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	if t.database != "" {
		if tables, err := openTables(ctx, t); err != nil {
			p.TablesErr = err
		} else {
			defer tables.pool.Close()
			p.Tables = tables.queries
			if tables.meta.Stream != p.Stream || tables.meta.Prefix != p.Prefix {
				found := tables.meta
				expected := found
				expected.Stream, expected.Prefix = p.Stream, p.Prefix
				p.Tables, p.TablesErr = nil, otherLedger(found, expected)
			}
		}
	}
	nc, err := t.nats.dial("jobledger doctor", c.log)
	if err != nil {
		p.ConnErr = err
	} else {
		defer nc.Close()
		p.Conn = nc
	}
	findings := doctor.Examine(ctx, p)
	if err := c.printFindings(findings); err != nil {
		return err
	}
	if !doctor.Healthy(findings) {
		return exitStatus(exitFailed)
	}
	return nil
}

// configuredJSON is what the configuration defines, as the ledger would store it.
func configuredJSON(cfg *config.Config) (kinds, providers map[string]json.RawMessage, err error) {
	list, err := definitions(cfg, actor())
	if err != nil {
		return nil, nil, err
	}
	kinds, providers = map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for _, d := range list {
		switch body := d.body.(type) {
		case *ledger.KindDefinition:
			kinds[d.Name] = body.Kind.AppendJSON(nil)
		case *ledger.ProviderDefinition:
			providers[d.Name] = doctor.ProviderJSON(body.Type, body.Definition)
		}
	}
	return kinds, providers, nil
}

func (c *cli) printFindings(findings []doctor.Finding) error {
	if c.output == "json" {
		return c.printJSON(map[string]any{"healthy": doctor.Healthy(findings), "checks": findings})
	}
	return writeFindings(c.stdout, findings)
}

// writeFindings prints findings in full: what to do stands at the end of a long
// line.
func writeFindings(to io.Writer, findings []doctor.Finding) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CHECK\tSTATUS\tDETAIL")
	for _, f := range findings {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Check, f.Status, strings.ReplaceAll(f.Detail, "\n", " "))
	}
	return w.Flush()
}
