package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// owner owns all jobs of the sample.
const owner = "sample"

// job is what the sample looks at of the API's answers.
type job struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Attempts []struct {
		State string `json:"state"`
	} `json:"attempts"`
}

// post makes a POST and returns its status; the body goes to into unless that is
// nil. Where the decision is not known yet, or the ledger cannot say whether it
// has the request, it asks again, as clients should: the key makes that safe.
func (s *stack) post(ctx context.Context, path, key string, body, into any) (status int, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	err = poll(ctx, "a decision", func() (bool, error) {
		status, err = s.request(ctx, http.MethodPost, path, key, data, into)
		return status != http.StatusAccepted && status != http.StatusServiceUnavailable, err
	})
	return status, err
}

func (s *stack) request(ctx context.Context, method, path, key string, body []byte, into any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.HTTP+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Ledger-Owner", owner)
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	if into == nil || res.StatusCode == http.StatusAccepted || res.StatusCode >= 300 {
		return res.StatusCode, nil
	}
	return res.StatusCode, json.Unmarshal(data, into)
}

// submit posts a job.
func (s *stack) submit(ctx context.Context, key, kind string, input any, more map[string]any) (job, error) {
	var j job
	body := map[string]any{"kind": kind, "input": input}
	for name, value := range more {
		body[name] = value
	}
	status, err := s.post(ctx, "/v1/jobs", key, body, &j)
	if err == nil && status != http.StatusCreated && status != http.StatusOK {
		err = fmt.Errorf("the API answered %d", status)
	}
	return j, wrap(key, err)
}

// await waits until the job is in the state.
func (s *stack) await(ctx context.Context, id, state string) error {
	return s.awaitJob(ctx, id, "the job to be "+state, func(j *job) bool { return j.State == state })
}

func (s *stack) awaitJob(ctx context.Context, id, what string, enough func(*job) bool) error {
	var j job
	bounded, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	err := poll(bounded, what, func() (bool, error) {
		status, err := s.request(bounded, http.MethodGet, "/v1/jobs/"+id, "", nil, &j)
		if err == nil && status >= 300 {
			err = fmt.Errorf("the API answered %d", status)
		}
		return err == nil && enough(&j), err
	})
	if err != nil {
		return fmt.Errorf("job %s, now %s: %w", id, j.State, err)
	}
	return nil
}

// caseTimeout bounds the wait for one step of a case.
const caseTimeout = 30 * time.Second

func wrap(key string, err error) error {
	if err != nil {
		return fmt.Errorf("case %s: %w", key, err)
	}
	return nil
}
