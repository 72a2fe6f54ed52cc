// Command mutants checks that the tests of the fold would notice if one of its
// guards were gone. Each mutant is a small change to one file: a refusal that
// never happens, a fence left open, a bound without a limit. The tests must
// fail with every one of them. Nothing in the checkout is changed: the go
// command sees the mutant through an overlay.
//
// Run it from the module's root: go run ./scripts/mutants. It exits with 1 if a
// mutant survives, if one no longer fits the code, or if the tests fail without
// any.
package main

import (
	"bytes"
	"context"
	"encoding/json"
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

// A mutant replaces old, which must stand in file exactly once, by new.
type mutant struct {
	file     string // in the directory ledger
	name     string // what is gone
	old, new string
}

// testLimit bounds one run of the tests. A mutant that makes them hang is
// noticed too.
const testLimit = 2 * time.Minute

func main() {
	parallel := flag.Int("parallel", 2, "how many mutants are tested at a time")
	only := flag.String("only", "", "test only the mutants whose file and name contain this text")
	histories := flag.Int("histories", 400, "how many generated histories each mutant must survive")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *parallel, *only, *histories); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, parallel int, only string, histories int) error {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	h := &hunt{dir: dir, histories: histories, began: time.Now()}
	if err := h.check(); err != nil {
		return err
	}
	if out, err := h.test(ctx, ""); err != nil {
		return fmt.Errorf("the tests fail without any mutant: %w\n%s", err, out)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(parallel, 1))
	for i, m := range mutants {
		if !strings.Contains(m.file+": "+m.name, only) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			h.try(ctx, i, m)
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
	dir       string
	histories int
	began     time.Time

	mu        sync.Mutex
	killed    int
	survivors []string
	broken    []string
}

// check finds the mutants that no longer fit the code.
func (h *hunt) check() error {
	var unfit []error
	for _, m := range mutants {
		src, err := os.ReadFile(filepath.Join("ledger", m.file))
		if err != nil {
			return fmt.Errorf("run this from the module's root: %w", err)
		}
		if n := strings.Count(string(src), m.old); n != 1 {
			unfit = append(unfit, fmt.Errorf("%s: %s: the text to replace stands there %d times, expected once; adapt the mutant:\n%s",
				m.file, m.name, n, m.old))
		}
	}
	return errors.Join(unfit...)
}

// try tests one mutant.
func (h *hunt) try(ctx context.Context, i int, m mutant) {
	overlay, err := h.overlay(i, m)
	var out []byte
	if err == nil {
		out, err = h.test(ctx, overlay)
	} else {
		out = []byte("[build failed]")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	name := m.file + ": " + m.name
	switch {
	case ctx.Err() != nil:
		return
	case err == nil:
		h.survivors = append(h.survivors, name)
		fmt.Println("SURVIVED", name)
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		h.broken = append(h.broken, fmt.Sprintf("%s: %v\n%s", name, err, out))
		fmt.Println("BROKEN  ", name)
	default:
		h.killed++
		fmt.Printf("killed    %s (%s)\n", name, noticedBy(out))
	}
}

// overlay writes the mutant's file and the description of the overlay.
func (h *hunt) overlay(i int, m mutant) (string, error) {
	path, err := filepath.Abs(filepath.Join("ledger", m.file))
	if err != nil {
		return "", err
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(h.dir, fmt.Sprintf("%d.go", i))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(src), m.old, m.new, 1)), 0o600); err != nil {
		return "", err
	}
	description, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(h.dir, fmt.Sprintf("%d.json", i))
	return overlay, os.WriteFile(overlay, description, 0o600)
}

// test runs the tests of the fold; overlay "" means without a mutant.
func (h *hunt) test(ctx context.Context, overlay string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, testLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-ldflags=-w", "-failfast", "-overlay="+overlay, "-run="+testsOfTheFold,
		"./ledger", fmt.Sprintf("-histories=%d", h.histories), "-histories.shrink=false")
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}

// testsOfTheFold selects the tests that a mutant must fail.
const testsOfTheFold = "Stor|Histor|Crafted|Bound|Decode|Fold|Golden|Entry"

// noticedBy names the first test that failed.
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
	fmt.Printf("%d mutants killed, %d survived, %d broken, in %s\n",
		h.killed, len(h.survivors), len(h.broken), time.Since(h.began).Round(time.Second))
	switch {
	case len(h.broken) > 0:
		return fmt.Errorf("these mutants do not build:\n%s", strings.Join(h.broken, "\n"))
	case len(h.survivors) > 0:
		return fmt.Errorf("no test notices:\n  %s", strings.Join(h.survivors, "\n  "))
	}
	return nil
}
