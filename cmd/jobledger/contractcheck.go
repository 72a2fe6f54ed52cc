package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"jobledger/internal/config"
	"jobledger/workers/contract"
	"jobledger/workers/proof"
	"jobledger/workers/proof/tokens"
)

// promptTimeout bounds the counting of one prompt's tokens.
const promptTimeout = 30 * time.Second

func (c *cli) contractCommand() *cobra.Command {
	var model string
	check := &cobra.Command{
		Use: "check FILE…", Short: "Read contract files, and look at the prompts of their cases",
		Long: "Read contract files, and look at the prompts of their cases: whether they can be made, hold all of the input, and\n" +
			"have no more tokens than the contract allows. It asks nobody: no server is needed. Exit status: 2 if a file\n" +
			"cannot be read, 1 if a prompt is wrong.",
		Args: cobra.MinimumNArgs(1),
		RunE: ran(func(ctx context.Context, files []string) error { return c.contractCheck(ctx, files, model) }),
	}
	check.Flags().StringVar(&model, "model", "", "count tokens with the vocabulary of this `MODEL` of OpenAI's, such as gpt-4o")
	return group("contract", "Check the contracts of kinds", check)
}

// What is printed of a contract file.
type checked struct {
	File   string              `json:"file"`
	Digest string              `json:"digest"`
	Cases  int                 `json:"cases"`
	Prompt *proof.PromptReport `json:"prompt"` // null: there is none
}

func (c *cli) contractCheck(ctx context.Context, files []string, model string) error {
	list := make([]checked, len(files))
	failed := false
	for i, file := range files {
		k, err := config.LoadContract(file)
		if err != nil {
			return &exitError{code: exitUsage, err: err}
		}
		list[i] = checked{File: file, Digest: k.Digest(), Cases: len(k.Cases()), Prompt: proof.Prompts(ctx, &proof.Options{
			Contract: k, Questions: proof.Cases(k), Timeout: promptTimeout, Counter: offlineCounter(model, k),
		})}
		failed = failed || list[i].Prompt != nil && list[i].Prompt.Verdict == proof.Failed
	}
	if err := c.printChecked(list); err != nil {
		return err
	}
	if failed {
		return exitStatus(exitFailed)
	}
	return ctx.Err()
}

func offlineCounter(model string, k *contract.Contract) proof.Counter {
	if model == "" {
		return uncountable("no --model is named whose vocabulary is known")
	}
	return tokens.New(model, k)
}

func (c *cli) printChecked(list []checked) error {
	if c.output == "json" {
		return c.printJSON(map[string]any{"contracts": list})
	}
	for _, k := range list {
		fmt.Fprintf(c.stdout, "%s: %s, cases: %d\n", k.File, k.Digest, k.Cases)
		if k.Prompt == nil {
			continue
		}
		fmt.Fprintf(c.stdout, "  prompt %s\n", strings.TrimSuffix(string(k.Prompt.Verdict)+": "+promptLine(k.Prompt), ": "))
		for _, q := range k.Prompt.Questions {
			if q.Fault != "" {
				fmt.Fprintf(c.stdout, "  %s: %s\n", q.Name, oneLine(q.Fault))
			}
		}
	}
	return nil
}
