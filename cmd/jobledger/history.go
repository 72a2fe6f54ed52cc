package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

type historyView struct {
	Entries []historyEntry `json:"entries"`
	Omitted int            `json:"omitted"`
	Job     *jobView       `json:"job"`
}

type historyEntry struct {
	Seq         uint64    `json:"seq"`
	At          time.Time `json:"at"`
	Entry       string    `json:"entry"`
	Actor       *string   `json:"actor"`
	Decision    *string   `json:"decision"`
	Reason      *string   `json:"reason"`
	Detail      *string   `json:"detail"`
	Attempt     *int      `json:"attempt"`
	State       *string   `json:"state"`
	StateReason *string   `json:"state_reason"`
	Version     *int64    `json:"version"`
	Attempts    []string  `json:"attempts"`
}

func (c *cli) jobHistoryCommand() *cobra.Command {
	var n jobName
	var at string
	cmd := &cobra.Command{
		Use: "history JOB | --owner O --key K", Short: "Print what became of a job, entry by entry",
		Long: "Print each entry that touched a job or was refused, the decision on it and the state after it. With --at\n" +
			"the history ends there, and the job is shown as it was then.",
	}
	n.flags(cmd)
	cmd.Flags().StringVar(&at, "at", "", "a sequence of the stream, or a `TIME` such as 2026-01-31T12:00:00Z")
	cmd.RunE = ran(func(ctx context.Context, args []string) error {
		return c.withJob(ctx, &n, args, func(api *apiClient, id string) error {
			q := url.Values{}
			if at != "" {
				q.Set("at", at)
			}
			a, err := api.call(ctx, request{method: http.MethodGet, path: "/v1/jobs/" + id + "/history", query: q})
			if err != nil {
				return err
			}
			if c.output == "json" {
				return c.printBody(a.body)
			}
			var h historyView
			if err := a.decode(&h); err != nil {
				return err
			}
			return c.printHistory(&h, at != "")
		})
	})
	return cmd
}

func (c *cli) printHistory(h *historyView, withJob bool) error {
	rows := make([][]string, len(h.Entries))
	for i := range h.Entries {
		e := &h.Entries[i]
		decision := textCell(e.Decision)
		if e.Reason != nil {
			decision += " " + *e.Reason
		}
		rows[i] = []string{
			strconv.FormatUint(e.Seq, 10), timeCell(&e.At), e.Entry, numberCell(e.Attempt), textCell(e.Actor), decision,
			e.stateCell(), strings.Join(e.Attempts, " "), textCell(e.Detail),
		}
	}
	if h.Omitted > 0 {
		c.log.Warn("older entries that were not accepted are left out", "count", h.Omitted)
	}
	err := c.printTable([]string{"SEQ", "AT", "ENTRY", "ATTEMPT", "ACTOR", "DECISION", "JOB", "ATTEMPTS", "DETAIL"}, rows)
	if err != nil || !withJob {
		return err
	}
	if h.Job == nil {
		_, err = fmt.Fprintln(c.stdout, "\nThe job was not there yet.")
		return err
	}
	if _, err = fmt.Fprintln(c.stdout); err != nil {
		return err
	}
	return c.printJob(h.Job)
}

// stateCell is the job's state after the entry, with its version.
func (e *historyEntry) stateCell() string {
	if e.State == nil {
		return ""
	}
	s := *e.State
	if e.StateReason != nil {
		s += " (" + *e.StateReason + ")"
	}
	if e.Version != nil {
		s += fmt.Sprintf(" v%d", *e.Version)
	}
	return s
}

func numberCell(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
