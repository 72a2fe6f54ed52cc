package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"jobledger/schema"
)

func (c *cli) migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "migrate", Short: "Bring the database's schema up to date", Args: cobra.NoArgs,
		RunE: ran(func(ctx context.Context, _ []string) error {
			t, _, err := c.target()
			if err != nil {
				return err
			}
			if err := t.needDatabase(); err != nil {
				return err
			}
			if err := schema.Migrate(ctx, t.database, c.log); err != nil {
				return err
			}
			if c.output == "json" {
				return c.printJSON(map[string]any{"schema": schema.Target()})
			}
			_, err = fmt.Fprintf(c.stdout, "the schema is at version %d\n", schema.Target())
			return err
		}),
	}
}
