package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"jobledger/ledger"
)

// What the tables of the output show of the API's answers.

type jobView struct {
	ID          string          `json:"id"`
	Owner       string          `json:"owner"`
	Key         string          `json:"key"`
	Kind        string          `json:"kind"`
	State       ledger.JobState `json:"state"`
	StateReason *string         `json:"state_reason"`
	StateDetail *string         `json:"state_detail"`
	Provider    *string         `json:"provider"`
	Input       json.RawMessage `json:"input"`
	Result      json.RawMessage `json:"result"`
	Failure     *failureView    `json:"failure"`
	CompletedBy *int            `json:"completed_by"`
	RunAt       *time.Time      `json:"run_at"`
	CreatedAt   *time.Time      `json:"created_at"`
	CompletedAt *time.Time      `json:"completed_at"`
	Attempts    []attemptView   `json:"attempts"`
}

type attemptView struct {
	JobID            string       `json:"job_id"` // in lists of attempts only
	Number           int          `json:"number"`
	Provider         string       `json:"provider"`
	State            string       `json:"state"`
	Reason           string       `json:"reason"`
	StartedAt        *time.Time   `json:"started_at"`
	FinishedAt       *time.Time   `json:"finished_at"`
	Failure          *failureView `json:"failure"`
	ProviderRef      *string      `json:"provider_ref"`
	ResolvedBy       *string      `json:"resolved_by"`
	ResolutionReason *string      `json:"resolution_reason"`
}

type failureView struct {
	Class   string `json:"class"`
	Message string `json:"message"`
}

func (f *failureView) cell() string {
	if f == nil {
		return ""
	}
	if f.Message == "" {
		return f.Class
	}
	return f.Class + ": " + f.Message
}

func (j *jobView) stateCell() string {
	if j.StateReason == nil {
		return string(j.State)
	}
	return fmt.Sprintf("%s (%s)", j.State, *j.StateReason)
}

// printJob prints one job: what it is, then its attempts.
func (c *cli) printJob(j *jobView) error {
	fields := [][2]string{
		{"job", j.ID}, {"owner", j.Owner}, {"key", j.Key}, {"kind", j.Kind}, {"provider", textCell(j.Provider)},
		{"state", j.stateCell()}, {"because", textCell(j.StateDetail)}, {"input", string(j.Input)}, {"result", string(j.Result)}, {"failure", j.Failure.cell()},
		{"run at", timeCell(j.RunAt)}, {"created", timeCell(j.CreatedAt)}, {"completed", timeCell(j.CompletedAt)},
	}
	for _, f := range fields {
		if f[1] == "" || f[1] == "null" {
			continue
		}
		if _, err := fmt.Fprintf(c.stdout, "%-10s %s\n", f[0], oneLine(f[1])); err != nil {
			return err
		}
	}
	if len(j.Attempts) == 0 {
		return nil
	}
	fmt.Fprintln(c.stdout)
	rows := make([][]string, len(j.Attempts))
	for i, a := range j.Attempts {
		won := ""
		if j.CompletedBy != nil && *j.CompletedBy == a.Number {
			won = "won"
		}
		rows[i] = append(a.cells(), won)
	}
	return c.printTable(append(attemptHeader(), "RESULT"), rows)
}

func attemptHeader() []string {
	return []string{"ATTEMPT", "PROVIDER", "STATE", "REASON", "STARTED", "FINISHED", "FAILURE", "RESOLVED"}
}

func (a *attemptView) cells() []string {
	return []string{
		strconv.Itoa(a.Number), a.Provider, a.State, a.Reason, timeCell(a.StartedAt), timeCell(a.FinishedAt), a.Failure.cell(),
		a.resolvedCell(),
	}
}

// resolvedCell tells who said how the attempt ended, and why.
func (a *attemptView) resolvedCell() string {
	if a.ResolvedBy == nil {
		return ""
	}
	return *a.ResolvedBy + ": " + textCell(a.ResolutionReason)
}

func (c *cli) printJobs(jobs []jobView, next *string) error {
	rows := make([][]string, len(jobs))
	for i, j := range jobs {
		rows[i] = []string{j.ID, j.Owner, j.Key, j.Kind, j.stateCell(), strconv.Itoa(len(j.Attempts)), timeCell(j.CreatedAt)}
	}
	if err := c.printTable([]string{"JOB", "OWNER", "KEY", "KIND", "STATE", "ATTEMPTS", "CREATED"}, rows); err != nil {
		return err
	}
	return c.more(next)
}

func (c *cli) printAttempts(attempts []attemptView, next *string) error {
	rows := make([][]string, len(attempts))
	for i, a := range attempts {
		rows[i] = append([]string{a.JobID}, a.cells()...)
	}
	if err := c.printTable(append([]string{"JOB"}, attemptHeader()...), rows); err != nil {
		return err
	}
	return c.more(next)
}

// more tells on standard error how to see what follows.
func (c *cli) more(cursor *string) error {
	if cursor == nil {
		return nil
	}
	_, err := fmt.Fprintf(c.stderr, "there are more: --cursor %s\n", *cursor)
	return err
}
