package main

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// Bounds of a submission of many.
const (
	maxConcurrency = 256
	// linesInHand bounds the lines that are read and not decided yet, in bytes.
	linesInHand = 64 << 20
	// linesAhead is how many lines wait for a worker, so that one that waits for
	// an answer does not keep the others from getting theirs.
	linesAhead = 64
	// A line that the ledger cannot take now is repeated after a pause that
	// doubles from retryFirst to retryMost, and up to half as much at random.
	retryFirst = 500 * time.Millisecond
	retryMost  = 8 * time.Second
)

// A lineOutcome is what became of a line.
type lineOutcome string

const (
	lineNew         lineOutcome = "new"
	lineExisting    lineOutcome = "existing"
	lineConflicting lineOutcome = "conflicting"
	lineRefused     lineOutcome = "refused"
	lineMalformed   lineOutcome = "malformed"
	// lineUnfinished is one without a verdict: it may have been stored.
	lineUnfinished lineOutcome = "unfinished"
)

// A lineFault says what was wrong with a line.
type lineFault struct {
	Line    int         `json:"line"`
	Outcome lineOutcome `json:"outcome"`
	Reason  string      `json:"reason"`
}

// A submitReport is the summary of a submission of many.
type submitReport struct {
	Lines       int         `json:"lines"` // read, blank ones left out
	New         int         `json:"new"`
	Existing    int         `json:"existing"`
	Conflicting int         `json:"conflicting"`
	Refused     int         `json:"refused"`
	Malformed   int         `json:"malformed"`
	Unfinished  int         `json:"unfinished"`
	Complete    bool        `json:"complete"` // the file was read to its end, and every line has a verdict
	Faults      []lineFault `json:"faults"`   // the first ones
}

// count returns where an outcome is counted.
func (r *submitReport) count(o lineOutcome) *int {
	switch o {
	case lineNew:
		return &r.New
	case lineExisting:
		return &r.Existing
	case lineConflicting:
		return &r.Conflicting
	case lineRefused:
		return &r.Refused
	case lineMalformed:
		return &r.Malformed
	}
	return &r.Unfinished
}

// status is the exit status of a submission that came to its end. A conflict
// goes before a refusal, that before a malformed line.
func (r *submitReport) status() int {
	switch {
	case r.Conflicting > 0:
		return exitConflict
	case r.Refused > 0:
		return exitRefused
	case r.Malformed > 0:
		return exitUsage
	}
	return exitOK
}

// A batch submits the lines of a file.
type batch struct {
	api      *apiClient
	defaults intentDefaults
	retryFor time.Duration
	workers  int
	most     int // faults to tell of
	meter    *meter
	room     *semaphore.Weighted // bytes of lines

	mu      sync.Mutex
	reached bool // a line had an answer
	report  submitReport
}

func (c *cli) submitFile(ctx context.Context, o submitOptions) error {
	if o.concurrency < 1 || o.concurrency > maxConcurrency {
		return exitWith(exitUsage, "--concurrency is %d; expected 1 to %d", o.concurrency, maxConcurrency)
	}
	if o.faults < 0 || o.retryFor < 0 {
		return exitWith(exitUsage, "--faults and --retry-for cannot be negative")
	}
	in, size, err := c.openLines(o.file)
	if err != nil {
		return exitWith(exitUsage, "--file: %w", err)
	}
	defer in.Close()
	api, err := c.openAPI(ctx, o.owner)
	if err != nil {
		return err
	}
	defer api.close()
	b := &batch{
		api: api, defaults: intentDefaults{owner: o.owner, kind: o.kind, ownerKnown: api.token != ""},
		retryFor: o.retryFor, workers: o.concurrency, most: o.faults,
		meter: newMeter(c.stderr, "lines", size), room: semaphore.NewWeighted(linesInHand),
		report: submitReport{Faults: []lineFault{}},
	}
	err = b.run(ctx, newLineReader(in))
	b.meter.close()
	if bad := b.report.Conflicting + b.report.Refused + b.report.Malformed - len(b.report.Faults); bad > 0 {
		fmt.Fprintf(c.stderr, "and %d more such lines\n", bad)
	}
	if printErr := c.printSubmitReport(&b.report); printErr != nil {
		return printErr
	}
	switch {
	case ctx.Err() != nil:
		return exitWith(exitFailed, "interrupted; the same command again finds what is done and does the rest")
	case err != nil:
		return fmt.Errorf("%w\nstopped there; the same command again finds what is done and does the rest", err)
	}
	return exitStatus(b.report.status())
}

// openLines opens a file, or standard input as -, and returns its size, -1 if
// nobody knows that.
func (c *cli) openLines(path string) (io.ReadCloser, int64, error) {
	if path == "-" {
		return io.NopCloser(c.stdin), -1, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory; expected a file of JSON lines", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	if !info.Mode().IsRegular() {
		return f, -1, nil // a pipe
	}
	return f, info.Size(), nil
}

func (c *cli) printSubmitReport(r *submitReport) error {
	if c.output == "json" {
		return c.printJSON(r)
	}
	row := make([]string, 0, 7)
	for _, n := range []int{r.Lines, r.New, r.Existing, r.Conflicting, r.Refused, r.Malformed, r.Unfinished} {
		row = append(row, fmt.Sprint(n))
	}
	return c.printTable([]string{"LINES", "NEW", "EXISTING", "CONFLICTING", "REFUSED", "MALFORMED", "UNFINISHED"}, [][]string{row})
}

// A task is a line that is to be submitted.
type task struct {
	line   line
	intent intent
}

// run submits all lines. It ends early with the error that keeps it from going
// on. Lines with the same owner and key go through the same worker, so that the
// first of them in the file is the one that makes the job.
func (b *batch) run(ctx context.Context, lines *lineReader) error {
	group, ctx := errgroup.WithContext(ctx)
	queues := make([]chan task, b.workers)
	for i := range queues {
		queues[i] = make(chan task, linesAhead)
		group.Go(func() error { return b.work(ctx, queues[i]) })
	}
	group.Go(func() error {
		defer func() {
			for _, q := range queues {
				close(q)
			}
		}()
		return b.dispatch(ctx, lines, queues)
	})
	err := group.Wait()
	b.report.Unfinished = b.report.Lines - b.report.New - b.report.Existing - b.report.Conflicting - b.report.Refused - b.report.Malformed
	b.report.Complete = err == nil
	return err
}

// dispatch reads lines and hands them to the workers.
func (b *batch) dispatch(ctx context.Context, lines *lineReader, queues []chan task) error {
	seed := maphash.MakeSeed()
	from := lines.stream(ctx)
	for {
		var ln lineOrError
		select {
		case ln = <-from:
		case <-ctx.Done():
			return ctx.Err()
		}
		if errors.Is(ln.err, io.EOF) {
			return nil
		}
		if ln.err != nil {
			return ln.err
		}
		b.mu.Lock()
		b.report.Lines++
		b.mu.Unlock()
		in, err := parseIntent(ln.line, b.defaults)
		if err != nil {
			b.note(ln.line, lineMalformed, err)
			continue
		}
		if err := b.room.Acquire(ctx, int64(len(ln.text))); err != nil {
			return err
		}
		worker := maphash.Comparable(seed, [2]string{in.owner, in.key}) % uint64(len(queues))
		select {
		case queues[worker] <- task{ln.line, in}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *batch) work(ctx context.Context, tasks <-chan task) error {
	for t := range tasks {
		outcome, err := b.submit(ctx, t.intent)
		b.room.Release(int64(len(t.line.text)))
		if outcome == lineUnfinished {
			return fmt.Errorf("line %d: %w", t.line.number, err)
		}
		b.note(t.line, outcome, err)
	}
	return nil
}

// note counts a line, and tells of it if something is wrong with it.
func (b *batch) note(ln line, outcome lineOutcome, fault error) {
	b.mu.Lock()
	*b.report.count(outcome)++
	tell := fault != nil && len(b.report.Faults) < b.most
	if tell {
		b.report.Faults = append(b.report.Faults, lineFault{ln.number, outcome, fault.Error()})
	}
	b.mu.Unlock()
	if tell {
		b.meter.say("line %d: %s: %v", ln.number, outcome, fault)
	}
	b.meter.add(ln.bytes)
}

// submit submits one intent until there is a verdict, for a bounded time. With
// lineUnfinished there was none, and the error says why.
func (b *batch) submit(ctx context.Context, in intent) (lineOutcome, error) {
	end := time.Now().Add(b.retryFor)
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		outcome, err := b.try(ctx, in)
		if outcome != lineUnfinished || ctx.Err() != nil || !b.passing(err) {
			return outcome, err
		}
		wait := pause + rand.N(pause/2)
		if time.Now().Add(wait).After(end) {
			return outcome, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return outcome, err
		}
	}
}

// try makes one call.
func (b *batch) try(ctx context.Context, in intent) (lineOutcome, error) {
	a, err := b.api.call(ctx, request{method: http.MethodPost, path: "/v1/jobs", owner: in.owner, key: in.key, body: in.body})
	var exit *exitError
	switch {
	case err == nil && a.replayed:
		b.answered()
		return lineExisting, nil
	case err == nil:
		b.answered()
		return lineNew, nil
	case !errors.As(err, &exit), errors.Is(err, errUnauthorized): // the latter as for every other line
		return lineUnfinished, err
	}
	verdict, ok := map[int]lineOutcome{exitConflict: lineConflicting, exitRefused: lineRefused, exitUsage: lineMalformed}[exit.code]
	if !ok {
		return lineUnfinished, err
	}
	b.answered()
	return verdict, err
}

func (b *batch) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reached = true
}

// passing reports whether a line may be decided a little later. An address at
// which nothing has ever answered is a wrong one.
func (b *batch) passing(err error) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.reached
	}
	code := exitCode(err)
	return code == exitUnreachable || code == exitTimedOut
}
