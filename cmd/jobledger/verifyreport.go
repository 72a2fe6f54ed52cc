package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"jobledger/workers/proof"
)

// What is printed of a verification.
type verified struct {
	Provider       string        `json:"provider"`
	Kind           string        `json:"kind"`
	Contract       string        `json:"contract"`
	ProviderDigest string        `json:"provider_digest"`
	Seq            uint64        `json:"seq"`        // of its entry; 0: not recorded
	ExpiresAt      *time.Time    `json:"expires_at"` // null: not recorded
	Report         *proof.Report `json:"report"`
}

func (c *cli) printVerified(v *verified) error {
	if c.output == "json" {
		return c.printJSON(v)
	}
	r := v.Report
	fmt.Fprintf(c.stdout, "%s for %s: %s. %d of %d calls kept the contract.\n\n", v.Provider, v.Kind, r.Verdict, r.Kept, r.Calls)
	rows := make([][]string, len(r.Questions))
	for i, q := range r.Questions {
		name := q.Name
		if q.Past {
			name = "job " + name
		}
		rows[i] = []string{name, fmt.Sprintf("%d of %d", q.Kept, q.Calls), firstBroken(&q)}
	}
	if err := c.printTable([]string{"INPUT", "KEPT", "WHAT BROKE FIRST"}, rows); err != nil {
		return err
	}
	c.printBroken(r)
	fmt.Fprintln(c.stdout)
	if r.Calls > 0 {
		fmt.Fprintf(c.stdout, "latency   p50 %d ms, p95 %d ms, max %d ms\n", r.Latency.P50, r.Latency.P95, r.Latency.Max)
	}
	if usage := usageLine(r); usage != "" {
		fmt.Fprintf(c.stdout, "usage     %s\n", usage)
	}
	if p := r.Prompt; p != nil {
		fmt.Fprintf(c.stdout, "prompt    %s\n", strings.TrimSuffix(string(p.Verdict)+": "+promptLine(p), ": "))
	}
	fmt.Fprintf(c.stdout, "contract  %s\n", v.Contract)
	fmt.Fprintf(c.stdout, "provider  %s\n", v.ProviderDigest)
	if v.Seq == 0 {
		fmt.Fprintln(c.stdout, "recorded  no")
		return nil
	}
	until := ""
	if r.Verdict == proof.Passed {
		until = ", jobs may fail over until " + v.ExpiresAt.Format(time.RFC3339)
	}
	_, err := fmt.Fprintf(c.stdout, "recorded  as entry %d%s\n", v.Seq, until)
	return err
}

// firstBroken tells of the first call of a question that broke.
func firstBroken(q *proof.QuestionReport) string {
	if len(q.Broken) == 0 {
		return ""
	}
	b := q.Broken[0]
	return fmt.Sprintf("run %d: %s: %s", b.Run, b.Class, b.Details[0])
}

// printBroken tells of each call that is kept in the report, with all that broke
// and how what was said begins.
func (c *cli) printBroken(r *proof.Report) {
	for _, q := range r.Questions {
		for _, b := range q.Broken {
			fmt.Fprintf(c.stdout, "\n%s, run %d: %s\n", q.Name, b.Run, b.Class)
			for _, d := range b.Details {
				fmt.Fprintf(c.stdout, "  %s\n", oneLine(d))
			}
			if b.Output != "" {
				fmt.Fprintf(c.stdout, "  it said: %s\n", oneLine(b.Output))
			}
		}
	}
}

// usageLine has the sums of what the calls cost.
func usageLine(r *proof.Report) string {
	cells := make([]string, 0, len(r.Usage))
	for _, name := range r.Names() {
		cells = append(cells, name+" "+strconv.FormatFloat(r.Usage[name], 'f', -1, 64))
	}
	return strings.Join(cells, ", ")
}

func promptLine(p *proof.PromptReport) string {
	if p.Why != "" {
		return p.Why
	}
	most := 0
	for _, q := range p.Questions {
		most = max(most, q.Tokens)
	}
	if p.MaxTokens == 0 {
		return "nothing of the inputs is lost; the contract bounds no tokens"
	}
	return fmt.Sprintf("nothing of the inputs is lost; at most %d tokens of %d", most, p.MaxTokens)
}
