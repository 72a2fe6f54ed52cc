package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
)

// outcomesSQL reads what became of each job.
const outcomesSQL = `
SELECT j.id::text, j.idempotency_key,
       j.state || coalesce(' (' || j.state_reason || ')', ''),
       coalesce((SELECT string_agg(a.number || ' ' || a.provider || ' ' || a.state, ', ' ORDER BY a.number)
                 FROM ledger.attempts AS a WHERE a.job_id = j.id), ''),
       coalesce((SELECT string_agg(r.entry || ': ' || r.reason, ', ' ORDER BY r.seq)
                 FROM ledger.rejections AS r WHERE r.job_id = j.id), '')
FROM ledger.jobs AS j
WHERE j.owner_id = $1`

// droppedSQL says whether a completion for the job was refused.
const droppedSQL = `
SELECT EXISTS (SELECT 1 FROM ledger.rejections AS r WHERE r.job_id = $1 AND r.entry LIKE 'attempt.complete%')`

type outcome struct{ id, key, state, attempts, refused string }

// readTable makes the table of all outcomes, without what differs from run to
// run.
func readTable(ctx context.Context, s *stack) (string, error) {
	byKey, err := s.outcomes(ctx)
	if err != nil {
		return "", err
	}
	calls, err := s.calls(ctx)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tSTATE\tATTEMPTS\tCALLS\tREFUSED\tSHOWS")
	for _, c := range cases {
		o, ok := byKey[c.name]
		if !ok {
			o = outcome{state: "missing"}
		}
		delete(byKey, c.name)
		count := "-" // programs are not counted
		if !strings.Contains(o.attempts, "tool") {
			count = fmt.Sprint(calls[o.id])
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", c.name, o.state, dash(o.attempts), count, dash(o.refused), c.shows)
	}
	for key, o := range byKey {
		fmt.Fprintf(w, "%s\t%s\t%s\t\t%s\tnobody has asked for this job\n", key, o.state, dash(o.attempts), dash(o.refused))
	}
	err = w.Flush()
	return text.String(), err
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (s *stack) outcomes(ctx context.Context) (map[string]outcome, error) {
	db, err := pgx.Connect(ctx, s.Database)
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, outcomesSQL, owner)
	if err != nil {
		return nil, errors.Join(err, db.Close(ctx))
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o outcome, err error) {
		return o, row.Scan(&o.id, &o.key, &o.state, &o.attempts, &o.refused)
	})
	byKey := make(map[string]outcome, len(list))
	for _, o := range list {
		byKey[o.key] = o
	}
	return byKey, errors.Join(err, db.Close(ctx))
}

// calls asks the stub how often the providers were called, by job.
func (s *stack) calls(ctx context.Context) (map[string]int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.stubURL+"/calls", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var calls map[string]int
	return calls, json.NewDecoder(res.Body).Decode(&calls)
}

// awaitDropped waits until a completion for the job was refused.
func (s *stack) awaitDropped(ctx context.Context, j job) error {
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	db, err := pgx.Connect(ctx, s.Database)
	if err != nil {
		return err
	}
	err = poll(ctx, "the late result to be dropped", func() (dropped bool, err error) {
		return dropped, db.QueryRow(ctx, droppedSQL, j.ID).Scan(&dropped)
	})
	return errors.Join(err, db.Close(context.WithoutCancel(ctx)))
}
