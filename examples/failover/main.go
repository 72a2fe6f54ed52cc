// Command failover shows what stands between a job and the wrong fallback: two
// model servers of its own that speak OpenAI's API, a kind with a contract, and
// `jobledger dev` on a fresh directory.
//
//	go run ./examples/failover
//
// The primary goes away. The fallback breaks the contract, so the job waits and
// says why; once the fallback is mended and verified, jobs fail over to it; once it
// is another model, they wait again. What happened is printed as a table; the exit
// status is 0 if every line is as expected.txt says.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
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

// runTimeout bounds a run.
const runTimeout = 8 * time.Minute

func main() {
	// The child asks the kernel to be ended with the thread that started it: this
	// one, which lives as long as the process.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	jobledger := flag.String("jobledger", "", "the program jobledger (default: it is built from this repository)")
	flag.Parse()
	table, err := run(ctx, *jobledger)
	if table != "" {
		fmt.Printf("\n%s\n", table)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "failover:", err)
		os.Exit(1)
	case table != expected:
		fmt.Fprintln(os.Stderr, "failover: the table is not as examples/failover/expected.txt says")
		os.Exit(1)
	}
	fmt.Println("Every line is as expected.")
}

// run runs the example in a directory of its own and returns the table. The
// directory stays if something goes wrong.
func run(ctx context.Context, jobledger string) (table string, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "jobledger-failover-*")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w (the logs are in %s)", err, dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	s := &stack{dir: dir, bin: jobledger}
	if err := s.start(ctx); err != nil {
		return "", errors.Join(err, s.stop())
	}
	var t steps
	err = t.run(ctx, s)
	return strings.TrimRight(t.String(), "\n") + "\n", errors.Join(err, s.stop())
}
