package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
)

// What has become of an attempt that was to be resolved.
const (
	resolvedNow     = "resolved"
	resolvedBefore  = "existing" // in the same way
	resolvedRefused = "refused"
	resolvedUnsure  = "unfinished" // it may have been
)

// A resolved is one of many attempts, and what has become of it.
type resolved struct {
	JobID     string     `json:"job_id"`
	Attempt   int        `json:"attempt"`
	Provider  string     `json:"provider"`
	StartedAt *time.Time `json:"started_at"`
	Outcome   string     `json:"outcome,omitempty"` // none if it was only listed
	Reason    string     `json:"reason,omitempty"`  // why it is not resolved
}

// A resolveRun resolves many attempts, page by page.
type resolveRun struct {
	api     *apiClient
	body    *resolution
	yes     bool
	workers int
	out     *resolvedPrinter
	refused int
}

// resolveMany lists the unknown attempts that o selects, and resolves them if
// it says so.
func (c *cli) resolveMany(ctx context.Context, o *resolveOptions, body *resolution) error {
	if o.concurrency < 1 || o.concurrency > maxConcurrency {
		return exitWith(exitUsage, "--concurrency is %d; expected 1 to %d", o.concurrency, maxConcurrency)
	}
	before, err := instantOf("--started-before", o.startedBefore, time.Now())
	if err != nil {
		return err
	}
	api, err := c.openAPI(ctx, "")
	if err != nil {
		return err
	}
	defer api.close()
	q := url.Values{
		"state": {string(ledger.AttemptUnknown)}, "provider": {o.provider}, "limit": {strconv.Itoa(ledger.MaxPage)},
		"started_before": {before.UTC().Format(time.RFC3339Nano)},
	}
	if o.kind != "" {
		q.Set("kind", o.kind)
	}
	r := &resolveRun{api: api, body: body, yes: o.yes, workers: o.concurrency, out: &resolvedPrinter{c: c}}
	err = r.pages(ctx, q)
	if endErr := r.out.end(o.yes, err == nil); endErr != nil {
		return endErr
	}
	switch {
	case err != nil && o.yes:
		return fmt.Errorf("%w\nstopped there; the same command again does the rest", err)
	case err != nil:
		return err
	case r.out.count == 0:
		c.log.Info("no unknown attempt is left that was asked for", "provider", o.provider, "started_before", before)
	case !o.yes:
		c.log.Info("nothing was resolved; give --yes to resolve these", "attempts", r.out.count)
	}
	if r.refused > 0 {
		return exitStatus(exitRefused)
	}
	return nil
}

// pages goes through all pages. What is resolved leaves the list, and does not
// move the cursor.
func (r *resolveRun) pages(ctx context.Context, q url.Values) error {
	for {
		a, err := r.api.call(ctx, request{method: http.MethodGet, path: "/v1/attempts", query: q})
		if err != nil {
			return err
		}
		var page struct {
			Attempts []attemptView `json:"attempts"`
			Next     *string       `json:"next_cursor"`
		}
		if err := a.decode(&page); err != nil {
			return err
		}
		list := make([]resolved, len(page.Attempts))
		for i, at := range page.Attempts {
			list[i] = resolved{JobID: at.JobID, Attempt: at.Number, Provider: at.Provider, StartedAt: at.StartedAt}
		}
		if r.yes {
			err = r.resolve(ctx, list)
		}
		if printErr := r.out.add(list); err == nil {
			err = printErr
		}
		if err != nil || page.Next == nil {
			return err
		}
		q.Set("cursor", *page.Next)
	}
}

// resolve resolves a page. It ends early with the error that keeps it from going
// on; what was not begun then is unfinished as well.
func (r *resolveRun) resolve(ctx context.Context, list []resolved) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.workers)
	for i := range list {
		at := &list[i]
		at.Outcome = resolvedUnsure
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return r.one(ctx, at)
		})
	}
	err := group.Wait()
	for _, at := range list {
		if at.Outcome == resolvedRefused {
			r.refused++
		}
	}
	return err
}

func (r *resolveRun) one(ctx context.Context, at *resolved) error {
	a, err := r.api.call(ctx, r.body.request(at.JobID, at.Attempt))
	var exit *exitError
	switch {
	case err == nil && a.replayed:
		at.Outcome = resolvedBefore
	case err == nil:
		at.Outcome = resolvedNow
	case errors.As(err, &exit) && (exit.code == exitRefused || exit.code == exitNotFound) && !errors.Is(err, errUnauthorized) && !errors.Is(err, errForbidden):
		at.Outcome, at.Reason = resolvedRefused, err.Error()
	default:
		return fmt.Errorf("job %s, attempt %d: %w", at.JobID, at.Attempt, err)
	}
	return nil
}

// A resolvedPrinter prints attempts as they come: the rows of a table, or the
// elements of an array in JSON.
type resolvedPrinter struct {
	c     *cli
	count int
}

func (p *resolvedPrinter) add(list []resolved) error {
	if p.c.output != "json" {
		return p.rows(list)
	}
	for _, at := range list {
		text, err := json.Marshal(at)
		if err != nil {
			return err
		}
		lead := ","
		if p.count == 0 {
			lead = `{"attempts":[`
		}
		p.count++
		if _, err := fmt.Fprintf(p.c.stdout, "%s%s", lead, text); err != nil {
			return err
		}
	}
	return nil
}

func (p *resolvedPrinter) rows(list []resolved) error {
	rows := make([][]string, len(list))
	for i, at := range list {
		rows[i] = []string{at.JobID, strconv.Itoa(at.Attempt), at.Provider, timeCell(at.StartedAt), at.Outcome, at.Reason}
	}
	header := []string{"JOB", "ATTEMPT", "PROVIDER", "STARTED", "OUTCOME", "REASON"}
	if p.count > 0 {
		header = nil // it stands above the page before
	}
	p.count += len(list)
	return p.c.printTable(header, rows)
}

// end closes the JSON.
func (p *resolvedPrinter) end(done, complete bool) error {
	if p.c.output != "json" {
		return nil
	}
	if p.count == 0 {
		fmt.Fprint(p.c.stdout, `{"attempts":[`)
	}
	_, err := fmt.Fprintf(p.c.stdout, `],"found":%d,"done":%t,"complete":%t}`+"\n", p.count, done, complete)
	return err
}
