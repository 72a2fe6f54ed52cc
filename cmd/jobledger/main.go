// Command jobledger runs the job ledger and talks to it.
//
// One process can be the whole ledger (dev) or some of its roles (serve); the
// other commands submit jobs, look at them, and settle what nobody knows the end
// of. What a command has to say goes to standard output, everything else to
// standard error; the exit status says how it ended.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run()) }

// run executes the command line. The first SIGINT or SIGTERM asks it to stop;
// a second one ends the process at once.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	collectRarely()
	c := newCLI(os.Stdin, os.Stdout, os.Stderr)
	return c.execute(ctx, os.Args[1:])
}
