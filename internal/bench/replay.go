package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime/pprof"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"jobledger/internal/natsserver"
	"jobledger/internal/stream"
	"jobledger/ledger"
	"jobledger/projector"
)

// ReplayOptions of a measurement of rebuild and verify.
type ReplayOptions struct {
	Jobs       int    // whose lives are in the stream
	InputBytes int    // size of a job's input: 200
	Shards     int    // 1
	Program    string // the jobledger program that is measured
	Dir        string // for the stack's files; a temporary folder if empty
	// CPUProfile, if set, is a file for a profile of one more run of verify
	// within this process, the NATS server's part included; with ".rebuild"
	// added, of rebuild.
	CPUProfile string
	Log        *slog.Logger
}

// A ReplayReport is what a run measured.
type ReplayReport struct {
	Jobs, Shards int
	Entries      uint64
	StreamBytes  uint64
	Rebuild      Replayed
	Verify       Replayed
	Differences  int
}

// Replayed is one run of a command, as a process of its own.
type Replayed struct {
	Seconds   float64 // as the command says, without its start
	PerSecond float64 // entries
	PeakBytes int64   // of the process's memory
	// CPUSeconds and ServersCPUSeconds are what the process, and what both servers
	// took of the cores.
	CPUSeconds, ServersCPUSeconds float64
}

// Print writes the report for people.
func (r *ReplayReport) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%d jobs, %d entries, %d MiB of stream, %d shards\n", r.Jobs, r.Entries, r.StreamBytes>>20, r.Shards)
	for _, c := range []struct {
		name string
		Replayed
	}{{"rebuild", r.Rebuild}, {"verify", r.Verify}} {
		if err == nil {
			_, err = fmt.Fprintf(w, "%-8s %6.1f s, %8.0f entries/s, at most %d MiB of memory, %.1f s of CPU and %.1f s in the servers\n",
				c.name, c.Seconds, c.PerSecond, c.PeakBytes>>20, c.CPUSeconds, c.ServersCPUSeconds)
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "verify: %d differences\n", r.Differences)
	}
	return err
}

// RunReplay fills a stream with lives of jobs, as fast as they can be appended,
// and measures the commands rebuild and verify on it. It leaves nothing behind.
func RunReplay(ctx context.Context, o ReplayOptions) (_ *ReplayReport, err error) {
	b := &bench{o: Options{InputBytes: o.InputBytes, Shards: o.Shards, Dir: o.Dir, Log: o.Log}}
	b.o.setDefaults()
	defer func() { err = errors.Join(err, b.stop()) }()
	ns, err := b.servers(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.appendLives(ctx, ns, o.Jobs); err != nil {
		return nil, fmt.Errorf("fill the stream: %w", err)
	}
	info, err := b.stream.Info(ctx)
	if err != nil {
		return nil, err
	}
	r := &ReplayReport{Jobs: o.Jobs, Shards: b.o.Shards, Entries: info.State.LastSeq, StreamBytes: info.State.Bytes}
	if r.Rebuild, _, err = b.replay(ctx, o.Program, "rebuild"); err != nil {
		return nil, err
	}
	if r.Verify, r.Differences, err = b.replay(ctx, o.Program, "verify"); err != nil {
		return nil, err
	}
	if o.CPUProfile == "" {
		return r, nil
	}
	return r, b.profileReplay(ctx, o.CPUProfile)
}

// lifeApart is how many other jobs' entries stand between two of one job.
const lifeApart = 1000

// appendLives appends request, start, claim and completion of jobs, woven into
// each other, and of some the request once more.
func (b *bench) appendLives(ctx context.Context, ns *natsserver.Server, jobs int) error {
	nc, err := nats.Connect(ns.URL())
	if err != nil {
		return err
	}
	b.onStop(func() error { nc.Close(); return nil })
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096))
	if err != nil {
		return err
	}
	if b.stream, err = stream.Create(ctx, js, stream.Config(streamName, prefix, 1, 0)); err != nil {
		return err
	}
	l := &lives{b: b, js: js}
	k := ledger.DefaultKind()
	k.Name, k.Providers, k.Effects = kindName, []string{provider}, ledger.EffectsNone
	l.append(&ledger.Rules{Rules: ledger.MaxRules})
	l.append(&ledger.KindDefinition{Kind: k})
	const stages = 5
	for n := 0; n < jobs+stages*lifeApart && l.err == nil && ctx.Err() == nil; n++ {
		for stage := range stages {
			if i := n - stage*lifeApart; i >= 0 && i < jobs {
				l.entry(i, stage)
			}
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(patience):
		return fmt.Errorf("appended %d entries, and no acknowledgement for %s", l.seq, patience)
	}
	info, err := b.stream.Info(ctx)
	if err == nil && info.State.LastSeq != l.seq {
		err = fmt.Errorf("appended %d entries, and the stream has %d", l.seq, info.State.LastSeq)
	}
	return errors.Join(l.err, err)
}

// lives appends entries in the order of its calls.
type lives struct {
	b   *bench
	js  jetstream.JetStream
	seq uint64 // of the last one
	err error
	// starts are the sequences of the starts that are to be claimed.
	starts [lifeApart]uint64
}

func (l *lives) append(body ledger.Body) {
	m := body.Message()
	l.seq++
	if _, err := l.js.PublishAsync(prefix+"."+m.Subject, m.Data, jetstream.WithStallWait(patience)); err != nil {
		l.err = err
	}
}

// entry appends a job's entry of a stage.
func (l *lives) entry(i, stage int) {
	r := &ledger.Request{Owner: "bench", Key: fmt.Sprintf("job-%d", i), Kind: kindName, Input: l.b.input(i)}
	job := ledger.JobID(r.Owner, r.Key)
	claim := uuid.NewSHA1(job, []byte("claim")).String()
	switch stage {
	case 0:
		l.append(r)
	case 1:
		l.append(&ledger.Start{Job: job, Attempt: 1, JobVersion: 1, Owner: r.Owner, Kind: kindName, KindSeq: 2, Provider: provider,
			Input: r.Input, TimeoutMS: ledger.DefaultKind().AttemptTimeoutMS})
		l.starts[i%lifeApart] = l.seq
	case 2:
		l.append(&ledger.Claim{Job: job, Attempt: 1, JobVersion: 1, Provider: provider, Claim: claim, Worker: "bench",
			StartSeq: l.starts[i%lifeApart]})
	case 3:
		l.append(&ledger.Completion{Job: job, Attempt: 1, JobVersion: 1, Provider: provider, Claim: claim,
			Outcome: ledger.OutcomeSucceeded, Result: []byte(`{"ok":true}`), Usage: []byte(`{"tokens":12}`)})
	case 4:
		if i%50 == 0 { // somebody clicks again
			l.append(r)
		}
	}
}

// replay runs a command as a process of its own.
func (b *bench) replay(ctx context.Context, program, command string) (Replayed, int, error) {
	cmd := exec.CommandContext(ctx, program, command, "-o", "json", "--nats", b.url, "--database", b.database)
	cmd.Dir = b.dir // without a configuration
	cmd.Stderr = os.Stderr
	before := b.cpuTime()
	out, err := cmd.Output()
	if err != nil {
		return Replayed{}, 0, fmt.Errorf("%s: %w, and it said %s", command, err, out)
	}
	var said struct {
		Seconds   float64 `json:"seconds"`
		PerSecond float64 `json:"entries_per_second"`
		Found     int     `json:"found"`
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return Replayed{}, 0, fmt.Errorf("what %s said: %w", command, err)
	}
	r := Replayed{
		Seconds: said.Seconds, PerSecond: said.PerSecond, ServersCPUSeconds: (b.cpuTime() - before).Seconds(),
		CPUSeconds: (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(),
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.PeakBytes = usage.Maxrss << 10
	}
	return r, said.Found, nil
}

// profileReplay runs both once more, in this process.
func (b *bench) profileReplay(ctx context.Context, file string) error {
	profiled := func(file string, run func() error) error {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return errors.Join(err, f.Close())
		}
		err = run()
		pprof.StopCPUProfile()
		return errors.Join(err, f.Close())
	}
	err := profiled(file, func() error {
		_, err := projector.Verify(ctx, projector.VerifyOptions{Pool: b.pool, Stream: b.stream, Prefix: prefix})
		return err
	})
	return errors.Join(err, profiled(file+".rebuild", func() error {
		_, err := projector.Rebuild(ctx, projector.RebuildOptions{Pool: b.pool, Stream: b.stream, Prefix: prefix})
		return err
	}))
}
