package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"jobledger/internal/bench"
)

func (c *cli) benchCommand() *cobra.Command {
	var o bench.WaitingOptions
	var syncInterval string
	var replay int
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the whole path of a job on a throw-away stack on this machine",
		Long: "Measure the whole path of a job on a throw-away stack: an embedded NATS server, a PostgreSQL child\n" +
			"with fsync, a projector, and a worker of a provider that does nothing. Request, start, claim and\n" +
			"completion all cross the stream. First one producer submits one job after the other, then many submit\n" +
			"at once; at the end the tables are verified.\n\n" +
			"With --waiters or --stalled it measures instead what waiting costs: the load in turn without and with\n" +
			"so many requests that wait for jobs that do not end, and so many readers of events that do not read.\n\n" +
			"With --replay it measures rebuild and verify, each as a process of its own, on a stream with the lives\n" +
			"of so many jobs.",
		Args: cobra.NoArgs,
		RunE: ran(func(ctx context.Context, _ []string) error {
			switch syncInterval {
			case "always":
				o.SyncAlways = true
			case "default":
			default:
				return exitWith(exitUsage, "--sync is %q; expected always or default", syncInterval)
			}
			o.Log, o.Progress = c.log, c.progressLine()
			if replay > 0 {
				return c.benchReplay(ctx, replay, o.Options)
			}
			if o.Waiters > 0 || o.Stalled > 0 {
				return c.benchWaiting(ctx, o)
			}
			r, err := bench.Run(ctx, o.Options)
			if err != nil {
				return err
			}
			if err := c.printBench(r); err != nil {
				return err
			}
			if r.Differences > 0 {
				return exitStatus(exitDifferences)
			}
			return nil
		}),
	}
	f := cmd.Flags()
	f.IntVar(&o.Jobs, "jobs", 20_000, "jobs of the load phase")
	f.IntVar(&o.IdleJobs, "idle-jobs", 300, "jobs that one producer submits before the load")
	f.IntVar(&o.Producers, "producers", 2048, "producers that submit at once")
	f.IntVar(&o.Concurrency, "concurrency", 4096, "attempts that the worker runs at once")
	f.IntVar(&o.InputBytes, "input-bytes", 200, "size of a job's input")
	f.IntVar(&o.Shards, "shards", 1, "shards of the projection")
	f.StringVar(&syncInterval, "sync", "default", "the NATS server's sync_interval: always or default")
	f.IntVar(&o.Waiters, "waiters", 0, "requests that wait for jobs meanwhile")
	f.IntVar(&o.Stalled, "stalled", 0, "readers of events that do not read")
	f.IntVar(&o.Rounds, "rounds", 3, "loads without and with them")
	f.IntVar(&replay, "replay", 0, "jobs whose lives rebuild and verify are measured with")
	f.StringVar(&o.CPUProfile, "cpu-profile", "", "write a CPU profile of the load phase to `FILE`")
	f.StringVar(&o.MemProfile, "mem-profile", "", "write a heap profile after the load phase to `FILE`")
	return cmd
}

func (c *cli) benchReplay(ctx context.Context, jobs int, o bench.Options) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to run it: %w", err)
	}
	r, err := bench.RunReplay(ctx, bench.ReplayOptions{
		Jobs: jobs, InputBytes: o.InputBytes, Shards: o.Shards, Program: program, CPUProfile: o.CPUProfile, Log: c.log,
	})
	if err != nil {
		return err
	}
	if c.output == "json" {
		err = c.printJSON(r)
	} else {
		err = r.Print(c.stdout)
	}
	if err == nil && r.Differences > 0 {
		return exitStatus(exitDifferences)
	}
	return err
}

func (c *cli) benchWaiting(ctx context.Context, o bench.WaitingOptions) error {
	r, err := bench.RunWaiting(ctx, o)
	if err != nil {
		return err
	}
	if c.output == "json" {
		return c.printJSON(r)
	}
	return r.Print(c.stdout)
}

func (c *cli) printBench(r *bench.Report) error {
	if c.output == "json" {
		return c.printJSON(r)
	}
	return r.Print(c.stdout)
}

// progressLine returns a function that tells the progress on standard error,
// once a second.
func (c *cli) progressLine() func(done, all int) {
	var last time.Time
	return func(done, all int) {
		if time.Since(last) < time.Second {
			return
		}
		last = time.Now()
		fmt.Fprintf(c.stderr, "%d of %d jobs have ended\n", done, all)
	}
}
