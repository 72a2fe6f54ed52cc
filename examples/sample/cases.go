package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"
)

// A sampleCase is one job and what is done with it. Its name is the job's key.
type sampleCase struct {
	name, shows string
	run         func(context.Context, *stack, sampleCase) error
}

// The cases, in the order of the table.
var cases = []sampleCase{
	{"plain-http", "a job on an HTTP provider", plain("charge", doAnswer, "succeeded")},
	{"plain-exec", "a job on a program", plain("checksum", doAnswer, "succeeded")},
	{"double-click", "ten clicks at once are one job and one call", doubleClick},
	{"conflict", "the same key with another intent changes nothing", conflict},
	{"scheduled", "not before a second has passed", scheduled},
	{"busy-http", "refused without effect (503, Retry-After): tried again", plain("charge", doBusyOnce, "succeeded")},
	{"busy-exec", "refused without effect (exit 75): tried again", plain("checksum", doBusyOnce, "succeeded")},
	{"rejected", "no provider would take it (422): failed, not tried again", plain("charge", doReject, "failed")},
	{"failed", "it ran and failed (exit 1): not done twice", plain("checksum", doFail, "failed")},
	{"cancelled", "cancelled before anybody had claimed it: never called", cancelled},
	{"crashed", "500 may mean anything: left unknown", plain("charge", doCrash, "unknown")},
	{"resolved", "stalled, unknown; a person has found out that it worked", resolved},
	{"fallback", "stalled, unknown; blocked until resolved, then the fallback wins", fallback},
	{"late-dropped", "the result that comes after the fallback has won is dropped", lateDropped},
	{"late-taken", "a late result settles its unknown attempt, if nobody has won", lateTaken},
}

// runCases runs all cases at once, and tells of each that is done.
func runCases(ctx context.Context, s *stack) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range cases {
		g.Go(func() error {
			if err := c.run(ctx, s, c); err != nil {
				return err
			}
			fmt.Printf("done: %-12s  %s\n", c.name, c.shows)
			return nil
		})
	}
	return g.Wait()
}

// input makes a job's input.
func input(do string) map[string]any { return map[string]any{"do": do, "amount": 100} }

// plain submits a job and waits for its state.
func plain(kind, do, state string) func(context.Context, *stack, sampleCase) error {
	return func(ctx context.Context, s *stack, c sampleCase) error {
		j, err := s.submit(ctx, c.name, kind, input(do), nil)
		if err != nil {
			return err
		}
		return wrap(c.name, s.await(ctx, j.ID, state))
	}
}

// doubleClick posts the same request ten times at once: one makes the job, the
// others find it.
func doubleClick(ctx context.Context, s *stack, c sampleCase) error {
	const clicks = 10
	var statuses [clicks]int
	var jobs [clicks]job
	g, groupCtx := errgroup.WithContext(ctx)
	for i := range clicks {
		g.Go(func() (err error) {
			statuses[i], err = s.post(groupCtx, "/v1/jobs", c.name, map[string]any{"kind": "charge", "input": input(doAnswer)}, &jobs[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return wrap(c.name, err)
	}
	created := 0
	for i, status := range statuses {
		switch {
		case jobs[i].ID != jobs[0].ID || jobs[i].ID == "":
			return wrap(c.name, fmt.Errorf("two clicks got the jobs %q and %q", jobs[0].ID, jobs[i].ID))
		case status == http.StatusCreated:
			created++
		case status != http.StatusOK:
			return wrap(c.name, fmt.Errorf("a click was answered %d", status))
		}
	}
	if created > 1 { // none, if the first answer was late
		return wrap(c.name, fmt.Errorf("%d clicks were told that they had made a job", created))
	}
	return wrap(c.name, s.await(ctx, jobs[0].ID, "succeeded"))
}

func conflict(ctx context.Context, s *stack, c sampleCase) error {
	if err := plain("charge", doAnswer, "succeeded")(ctx, s, c); err != nil {
		return err
	}
	other := map[string]any{"kind": "charge", "input": map[string]any{"do": doAnswer, "amount": 999}}
	status, err := s.post(ctx, "/v1/jobs", c.name, other, nil)
	if err == nil && status != http.StatusConflict {
		err = fmt.Errorf("another intent was answered %d", status)
	}
	return wrap(c.name, err)
}

func scheduled(ctx context.Context, s *stack, c sampleCase) error {
	j, err := s.submit(ctx, c.name, "checksum", input(doAnswer), map[string]any{"delay": "1s"})
	if err != nil {
		return err
	}
	return wrap(c.name, s.await(ctx, j.ID, "succeeded"))
}

func cancelled(ctx context.Context, s *stack, c sampleCase) error {
	j, err := s.submit(ctx, c.name, "print", input(doAnswer), nil)
	if err != nil {
		return err
	}
	return wrap(c.name, s.jobledger(ctx, "job", "cancel", j.ID, "--reason", "the user has closed the page"))
}

// stalled submits a job and waits until nobody knows how its attempt ended: the
// ledger, and the worker, which says so.
func stalled(ctx context.Context, s *stack, c sampleCase, kind string) (job, error) {
	j, err := s.submit(ctx, c.name, kind, input(doStall), nil)
	if err != nil {
		return j, err
	}
	if err := s.await(ctx, j.ID, "unknown"); err != nil {
		return j, wrap(c.name, err)
	}
	return j, wrap(c.name, s.listener.await(ctx, j, 1))
}

func resolved(ctx context.Context, s *stack, c sampleCase) error {
	j, err := stalled(ctx, s, c, "order")
	if err != nil {
		return err
	}
	return wrap(c.name, s.jobledger(ctx, "attempt", "resolve", j.ID, "1", "--as", "succeeded",
		"--result", `{"by":"primary","charged":100}`, "--reason", "the charge is in the provider's list"))
}

// fallback is what the ledger is for: the provider stalls, the user presses
// "use the fallback", and nothing may happen twice.
func fallback(ctx context.Context, s *stack, c sampleCase) error {
	j, err := stalled(ctx, s, c, "order")
	if err != nil {
		return err
	}
	return pressFallback(ctx, s, c, j)
}

// pressFallback presses the button while the first attempt is unknown, which is
// refused; resolves that attempt; and presses again.
func pressFallback(ctx context.Context, s *stack, c sampleCase, j job) error {
	body := map[string]any{"provider": "fallback", "force": true}
	path := "/v1/jobs/" + j.ID + "/attempts"
	status, err := s.post(ctx, path, "button-1", body, nil)
	if err == nil && status != http.StatusConflict {
		err = fmt.Errorf("the fallback was answered %d while the first attempt was unknown", status)
	}
	if err != nil {
		return wrap(c.name, err)
	}
	err = s.jobledger(ctx, "attempt", "resolve", j.ID, "1", "--as", "cancelled", "--reason", "the provider has cancelled it for us")
	if err != nil {
		return wrap(c.name, err)
	}
	for range 2 { // this button, too, is clicked twice
		status, err = s.post(ctx, path, "button-2", body, nil)
		if err == nil && status != http.StatusCreated && status != http.StatusOK {
			err = fmt.Errorf("the fallback was answered %d", status)
		}
		if err != nil {
			return wrap(c.name, err)
		}
	}
	return wrap(c.name, s.await(ctx, j.ID, "succeeded"))
}

func lateDropped(ctx context.Context, s *stack, c sampleCase) error {
	j, err := stalled(ctx, s, c, "transfer")
	if err != nil {
		return err
	}
	if err := pressFallback(ctx, s, c, j); err != nil {
		return err
	}
	if err := s.release(ctx, j); err != nil {
		return wrap(c.name, err)
	}
	return wrap(c.name, s.awaitDropped(ctx, j))
}

func lateTaken(ctx context.Context, s *stack, c sampleCase) error {
	j, err := stalled(ctx, s, c, "transfer")
	if err != nil {
		return err
	}
	if err := s.release(ctx, j); err != nil {
		return wrap(c.name, err)
	}
	return wrap(c.name, s.await(ctx, j.ID, "succeeded"))
}

// release lets the slow provider end its work.
func (s *stack) release(ctx context.Context, j job) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.stubURL+"/release/"+j.ID, strings.NewReader(""))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return res.Body.Close()
}
