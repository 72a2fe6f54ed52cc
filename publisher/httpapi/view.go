package httpapi

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"jobledger/ledger"
)

// The types below are the bodies of answers: every member is always there, null
// where there is nothing.

type jobView struct {
	ID          string          `json:"id" format:"uuid"`
	Owner       string          `json:"owner"`
	Key         string          `json:"key"`
	Kind        string          `json:"kind"`
	State       string          `json:"state" enum:"waiting,running,unknown,succeeded,failed,cancelled"`
	StateReason *string         `json:"state_reason" doc:"what a waiting job waits for"`
	StateDetail *string         `json:"state_detail" doc:"why no provider takes over from the one that is out, where state_reason is failover-unverified; told where one job is asked for"`
	Version     int64           `json:"version"`
	Provider    *string         `json:"provider" doc:"the provider that the request names"`
	Input       json.RawMessage `json:"input"`
	Result      json.RawMessage `json:"result"`
	Failure     *failureView    `json:"failure"`
	Fingerprint string          `json:"fingerprint" doc:"SHA-256 of the canonical request, in hex"`
	CompletedBy *int            `json:"completed_by" doc:"number of the attempt whose result is the job's"`
	RunAt       *time.Time      `json:"run_at"`
	CreatedAt   time.Time       `json:"created_at"`
	UpdatedAt   time.Time       `json:"updated_at"`
	CompletedAt *time.Time      `json:"completed_at"`
	Attempts    []attemptView   `json:"attempts"`
}

type attemptView struct {
	Number           int             `json:"number"`
	Provider         string          `json:"provider"`
	State            string          `json:"state" enum:"starting,running,unknown,succeeded,failed,unsent,superseded,expired,cancelled"`
	Reason           string          `json:"reason" enum:"initial,retry,failover,manual,hedge,replay"`
	Worker           *string         `json:"worker"`
	StartedAt        *time.Time      `json:"started_at"`
	FinishedAt       *time.Time      `json:"finished_at"`
	Deadline         *time.Time      `json:"deadline"`
	Failure          *failureView    `json:"failure"`
	ProviderRef      *string         `json:"provider_ref"`
	Usage            json.RawMessage `json:"usage"`
	ResolvedBy       *string         `json:"resolved_by"`
	ResolutionReason *string         `json:"resolution_reason"`
}

// listedAttempt is an attempt outside of its job.
type listedAttempt struct {
	JobID string `json:"job_id" format:"uuid"`
	attemptView
}

type failureView struct {
	Class    string `json:"class"`
	Message  string `json:"message"`
	Executed bool   `json:"executed" doc:"the provider did the work, or may have"`
}

type jobsPage struct {
	Jobs       []jobView `json:"jobs"`
	NextCursor *string   `json:"next_cursor"`
}

type attemptsPage struct {
	Attempts   []listedAttempt `json:"attempts"`
	NextCursor *string         `json:"next_cursor"`
}

type pendingView struct {
	ID  string `json:"id" format:"uuid" doc:"the job"`
	Seq uint64 `json:"seq" doc:"the entry's sequence in the stream"`
}

type statusView struct {
	Status string `json:"status"`
}

func viewJob(j *ledger.Job) jobView {
	v := jobView{
		ID: j.ID.String(), Owner: j.Owner, Key: j.Key, Kind: j.Kind,
		State: string(j.State), StateReason: optional(string(j.StateReason)), Version: j.Version,
		Provider: optional(j.Provider), Input: j.Input, Result: j.Result, Failure: viewFailure(j.Failure),
		Fingerprint: j.Fingerprint.String(), CompletedBy: optional(j.CompletedBy),
		RunAt: optionalTime(j.RunAt), CreatedAt: j.CreatedAt.UTC(), UpdatedAt: j.UpdatedAt.UTC(),
		CompletedAt: optionalTime(j.CompletedAt), Attempts: make([]attemptView, len(j.Attempts)),
	}
	for i, at := range j.Attempts {
		v.Attempts[i] = viewAttempt(at)
	}
	return v
}

// viewWhole is a job with what its waiting is about. That it cannot be read keeps
// nobody from the job.
func (a *API) viewWhole(ctx context.Context, j *ledger.Job) jobView {
	v := viewJob(j)
	if j.StateReason != ledger.FailoverUnverified {
		return v
	}
	list, err := a.opts.Reader.Candidates(ctx, j, time.Now())
	if err != nil {
		a.log.Warn("why a job waits could not be read", "job", j.ID, "error", err)
		return v
	}
	v.StateDetail = optional(whyUnproved(list))
	return v
}

// whyUnproved says of each provider that could take over why it does not.
func whyUnproved(list []ledger.Candidate) string {
	words := map[string]string{
		"": "it is proved by now, and the job looks again within a minute", "none": "it was never verified", "failed": "its last verification failed",
		"expired": "its proof has expired", "contract changed": "the contract has changed since its proof",
		"provider changed": "its definition has changed since its proof", "not defined": "it is not defined",
	}
	lines := make([]string, len(list))
	for i, c := range list {
		lines[i] = c.Provider + ": " + words[c.Lapsed]
	}
	if len(lines) == 0 {
		return "the kind has no other provider"
	}
	return strings.Join(lines, "; ")
}

func viewAttempt(at *ledger.Attempt) attemptView {
	return attemptView{
		Number: at.Number, Provider: at.Provider, State: string(at.State), Reason: string(at.Reason),
		Worker: optional(at.Worker), StartedAt: optionalTime(at.StartedAt), FinishedAt: optionalTime(at.FinishedAt),
		Deadline: optionalTime(at.Deadline), Failure: viewFailure(at.Failure), ProviderRef: optional(at.ProviderRef),
		Usage: at.Usage, ResolvedBy: optional(at.ResolvedBy), ResolutionReason: optional(at.ResolvedReason),
	}
}

func viewFailure(f ledger.Failure) *failureView {
	if f.Class == "" {
		return nil
	}
	return &failureView{Class: f.Class, Message: f.Message, Executed: f.Executed}
}

func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
