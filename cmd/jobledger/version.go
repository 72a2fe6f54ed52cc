package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"jobledger/ledger"
	"jobledger/schema"
)

// version is the module's version, with the commit where the build knows it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	return v
}

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of the program, of its schema and of its rules", Args: cobra.NoArgs,
		RunE: ran(func(context.Context, []string) error {
			if c.output == "json" {
				return c.printJSON(map[string]any{
					"version": version(), "schema": schema.Target(), "rules": ledger.MaxRules, "go": runtime.Version(),
				})
			}
			_, err := fmt.Fprintf(c.stdout, "jobledger %s (schema %d, rules %d, %s)\n", version(), schema.Target(), ledger.MaxRules, runtime.Version())
			return err
		}),
	}
}
