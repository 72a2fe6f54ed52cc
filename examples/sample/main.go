// Command sample runs real jobs through a dev stack of its own and shows what
// became of them.
//
// It starts `jobledger dev` on a fresh directory and two processes beside it: a
// stub of HTTP providers, which answers, refuses, fails and stalls as it is told,
// and a worker whose calls do not end in time. It submits the requests of
// cases.go through the HTTP API, settles with the command line what nobody knows
// the end of, and prints a table that is read from the schema ledger by SQL.
//
// With ONCE=1 it ends after the table: with 0 if every line is as expected.txt
// says, else with 1. Otherwise it stays until it is interrupted.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// expected is the table as it has to be.
//
//go:embed expected.txt
var expected string

// runTimeout bounds the whole run up to the table.
const runTimeout = 2 * time.Minute

// The roles in which the sample starts itself as another process.
const (
	roleStub   = "stub"
	roleWorker = "worker"
	roleExec   = "exec"
)

func main() {
	// Children ask the kernel to be ended with the thread that started them:
	// this one, which lives as long as the process.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sample:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case roleStub:
			return runStub(ctx, os.Stdout)
		case roleWorker:
			return runWorker(ctx, args[1:])
		case roleExec:
			return runExec(os.Stdin, os.Stdout, os.Stderr)
		}
	}
	flags := flag.NewFlagSet("sample", flag.ContinueOnError)
	jobledger := flags.String("jobledger", "bin/jobledger", "the program")
	dir := flags.String("dir", "var", "where to make the directory of this run")
	update := flags.String("update", "", "write the table to this file instead of comparing it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := startStack(ctx, *jobledger, *dir)
	if err != nil {
		return err
	}
	keep, err := show(ctx, s, *update)
	return errors.Join(err, s.stop(keep))
}

// show runs the cases and prints the table. keep says that the run's directory
// is worth a look.
func show(ctx context.Context, s *stack, update string) (keep bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	if err := runCases(bounded, s); err != nil {
		return true, err
	}
	table, err := readTable(bounded, s)
	if err != nil {
		return true, err
	}
	fmt.Printf("\nRead from ledger.jobs, ledger.attempts and ledger.rejections (CALLS: as the providers counted them):\n\n%s\n", table)
	switch {
	case update != "":
		return false, os.WriteFile(update, []byte(table), 0o644)
	case table != expected:
		reportDifferences(os.Stdout, table)
		err = errors.New("the table is not as examples/sample/expected.txt says")
	default:
		fmt.Println("Every line is as expected.")
	}
	if os.Getenv("ONCE") == "1" {
		return err != nil, err
	}
	s.announce(os.Stdout)
	select {
	case <-ctx.Done():
		return false, err
	case <-s.devEnded():
		return true, errors.New("the dev stack has ended")
	}
}

// reportDifferences prints the lines that are not as expected.
func reportDifferences(w io.Writer, table string) {
	got, want := strings.Split(table, "\n"), strings.Split(expected, "\n")
	for i := range max(len(got), len(want)) {
		g, e := lineAt(got, i), lineAt(want, i)
		if g != e {
			fmt.Fprintf(w, "found    %s\nexpected %s\n", g, e)
		}
	}
}

func lineAt(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}
