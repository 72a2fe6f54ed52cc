package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"jobledger/ledger"
)

func (c *cli) rejectionsCommand() *cobra.Command {
	var job string
	var before uint64
	var limit int
	list := &cobra.Command{Use: "list", Short: "List what was refused and why, the latest first", Args: cobra.NoArgs}
	list.Flags().StringVar(&job, "job", "", "only what concerns this job")
	list.Flags().Uint64Var(&before, "before", 0, "only entries before this sequence, for the next page")
	list.Flags().IntVar(&limit, "limit", 50, fmt.Sprintf("the most to print, 1 to %d", ledger.MaxPage))
	list.RunE = ran(func(ctx context.Context, _ []string) error {
		if limit < 1 || limit > ledger.MaxPage {
			return exitWith(exitUsage, "--limit is %d; expected 1 to %d", limit, ledger.MaxPage)
		}
		var id uuid.UUID
		if job != "" {
			var err error
			if id, err = uuid.Parse(job); err != nil {
				return exitWith(exitUsage, "--job is %q; expected a UUID", job)
			}
		}
		return c.rejections(ctx, id, before, limit)
	})
	return group("rejections", "Look at what was refused", list)
}

type rejectionView struct {
	Seq      uint64          `json:"seq"`
	At       time.Time       `json:"at"`
	Entry    string          `json:"entry"`
	Actor    string          `json:"actor"`
	Owner    string          `json:"owner"`
	Key      string          `json:"key"`
	Kind     string          `json:"kind"`
	Provider string          `json:"provider"`
	Job      *uuid.UUID      `json:"job"`
	Attempt  int             `json:"attempt"`
	Decision ledger.Decision `json:"decision"`
	Reason   ledger.Reason   `json:"reason"`
	Detail   string          `json:"detail"`
	Raw      []byte          `json:"raw"` // base64; malformed entries only
}

func (c *cli) rejections(ctx context.Context, job uuid.UUID, before uint64, limit int) error {
	t, err := c.tables(ctx)
	if err != nil {
		return err
	}
	defer t.pool.Close()
	list, err := t.queries.Rejections(ctx, job, before, limit)
	if err != nil {
		return err
	}
	views := make([]rejectionView, len(list))
	rows := make([][]string, len(list))
	for i, r := range list {
		views[i] = rejectionView{
			r.Seq, r.At, r.Entry, r.Actor, r.Owner, r.Key, r.Kind, r.Provider, nil, r.Attempt, r.Decision, r.Reason, r.Detail, r.Raw,
		}
		id := ""
		if r.Job != (uuid.UUID{}) {
			views[i].Job, id = &r.Job, r.Job.String()
		}
		rows[i] = []string{
			strconv.FormatUint(r.Seq, 10), timeCell(&r.At), r.Entry, r.Actor, id, string(r.Decision), string(r.Reason), r.Detail,
		}
	}
	if c.output == "json" {
		return c.printJSON(map[string]any{"rejections": views})
	}
	return c.printTable([]string{"SEQ", "AT", "ENTRY", "ACTOR", "JOB", "DECISION", "REASON", "DETAIL"}, rows)
}
