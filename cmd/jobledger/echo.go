package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"jobledger/ledger"
)

const (
	execEchoName = "exec-echo"
	echoKind     = "echo"
)

// execEchoCommand is the provider that a dev stack without a configuration has:
// an exec provider's program whose result is the job's input.
func (c *cli) execEchoCommand() *cobra.Command {
	return &cobra.Command{
		Use: execEchoName, Short: "An exec provider's program: the result is the input", Args: cobra.NoArgs, Hidden: true,
		RunE: ran(func(context.Context, []string) error {
			var call struct {
				Input json.RawMessage `json:"input"`
			}
			decoder := json.NewDecoder(io.LimitReader(c.stdin, 2*ledger.MaxPayloadBytes))
			if err := decoder.Decode(&call); err != nil {
				return fmt.Errorf("read the call from standard input: %w", err)
			}
			_, err := fmt.Fprintf(c.stdout, "%s\n", call.Input)
			return err
		}),
	}
}
