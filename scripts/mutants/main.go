// Command mutants checks that the tests of the fold would notice if one of its
// guards were gone. Each mutant is a small change to one function: a refusal
// that never happens, a fence left open, a bound without a limit. The tests
// must fail with every one of them.
//
// Nothing in the checkout is changed. All mutants are compiled into one test
// binary, by an overlay for the go command in which each changed function
// stands beside the original and an environment variable chooses between them
// (see weave.go). So a mutant costs a run of the tests and no build.
//
// Run it from the module's root: go run ./scripts/mutants. It exits with 1 if a
// mutant survives, if one no longer fits the code, or if the tests fail without
// any.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A mutant replaces old, which must stand in file exactly once and inside of a
// function, by new.
type mutant struct {
	file     string // in the directory ledger
	name     string // what is gone
	old, new string
}

func (m mutant) String() string { return m.file + ": " + m.name }

const (
	// testLimit bounds one run of the tests. A mutant that makes them hang is
	// noticed too.
	testLimit = 2 * time.Minute
	// testsOfTheFold selects the tests that a mutant must fail. The codec's
	// own tests are left out, but for the golden files: they know no fold.
	testsOfTheFold = "Stor|Histor|Crafted|Bound|Forget|Fold|Golden|Entr"
)

func main() {
	parallel := flag.Int("parallel", 2, "how many mutants are tested at a time")
	only := flag.String("only", "", "test only the mutants whose file and name contain this text")
	histories := flag.Int("histories", 500, "how many generated histories each mutant must survive")
	tests := flag.String("run", testsOfTheFold, "regular expression of the tests that must notice")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *parallel, *only, *histories, *tests); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, parallel int, only string, histories int, tests string) error {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	h := &hunt{binary: filepath.Join(dir, "fold.test"), histories: histories, tests: tests, began: time.Now()}
	if err := h.build(ctx, dir); err != nil {
		return err
	}
	if out, err := h.test(ctx, 0); err != nil {
		return fmt.Errorf("the tests fail without any mutant: %w\n%s", err, out)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(parallel, 1))
	for i, m := range mutants {
		if !strings.Contains(m.String(), only) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			h.try(ctx, i+1, m)
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	return h.report()
}

// A hunt is one run over the mutants.
type hunt struct {
	binary    string
	histories int
	tests     string
	began     time.Time

	mu        sync.Mutex
	killed    int
	survivors []string
}

// build compiles the tests with all mutants.
func (h *hunt) build(ctx context.Context, dir string) error {
	overlay, err := weave(dir)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay="+overlay, "-o", h.binary, "./ledger").CombinedOutput()
	if err != nil {
		return fmt.Errorf("the mutants do not build (__mutantN is the N-th of the list): %w\n%s", err, out)
	}
	return nil
}

// test runs the tests of the fold with a mutant, 0 for none.
func (h *hunt) test(ctx context.Context, number int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, testLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.binary, "-test.failfast", "-test.run="+h.tests,
		fmt.Sprintf("-histories=%d", h.histories), "-histories.shrink=false")
	cmd.Dir = "ledger"
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", chosenBy, number))
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}

// try tests one mutant.
func (h *hunt) try(ctx context.Context, number int, m mutant) {
	out, err := h.test(ctx, number)
	h.mu.Lock()
	defer h.mu.Unlock()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
	case err == nil:
		h.survivors = append(h.survivors, m.String())
		fmt.Println("SURVIVED ", m)
	case errors.As(err, &exit):
		h.killed++
		fmt.Printf("killed     %s (%s)\n", m, noticedBy(out))
	default:
		h.survivors = append(h.survivors, fmt.Sprintf("%s: the tests did not run: %v", m, err))
	}
}

// noticedBy names a test that failed.
func noticedBy(out []byte) string {
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			return strings.Fields(name)[0]
		}
		if strings.HasPrefix(line, "panic:") {
			return strings.TrimSpace(line)
		}
	}
	return "the limit of time"
}

func (h *hunt) report() error {
	fmt.Printf("%d mutants killed, %d survived, in %s\n", h.killed, len(h.survivors), time.Since(h.began).Round(time.Second))
	if len(h.survivors) > 0 {
		return fmt.Errorf("no test notices:\n  %s", strings.Join(h.survivors, "\n  "))
	}
	return nil
}
