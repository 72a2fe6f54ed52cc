package testenv

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"jobledger/internal/natsserver"
)

// natsProcessEnv makes a test binary be a NATS server instead of running tests;
// its value is the server's options in JSON.
const natsProcessEnv = "JOBLEDGER_TESTENV_NATS_PROCESS"

// processTimeout bounds the start and the end of a server's process.
const processTimeout = 30 * time.Second

// NATSProcess is a NATS server of a test's own in a process of its own, so
// that it can be killed and frozen as a real one can.
type NATSProcess struct {
	t       testing.TB
	options natsserver.Options
	url     string
	cmd     *exec.Cmd // nil: not running
	input   io.Closer // its end tells the process to stop
}

// StartNATS starts a NATS server that this test may stop, kill, freeze and
// restart; it ends with the test. Where o names no directory or port, it gets
// a temporary one and a free one, which it keeps over restarts. o.Log and
// o.ReadyTimeout are not used; warnings go to standard error.
func StartNATS(t testing.TB, o natsserver.Options) *NATSProcess {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Port == 0 {
		o.Port = FreePort(t)
	}
	o.Log, o.ReadyTimeout = nil, 0
	p := &NATSProcess{t: t, options: o}
	p.start()
	t.Cleanup(p.Kill)
	return p
}

// URL is the server's address, which restarts do not change.
func (p *NATSProcess) URL() string { return p.url }

// Name is the server's name, which a cluster's members know it by.
func (p *NATSProcess) Name() string { return p.options.Name }

// Stop shuts the server down in an orderly way. A stopped one stays so.
func (p *NATSProcess) Stop() {
	p.t.Helper()
	if p.cmd == nil {
		return
	}
	timer := time.AfterFunc(processTimeout, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	err := errors.Join(p.input.Close(), p.cmd.Wait())
	p.cmd = nil
	if err != nil {
		p.t.Errorf("stop the NATS server's process: %v", err)
	}
}

// Kill ends the server as a power cut would, but for what the kernel has
// already been given. A stopped one stays so.
func (p *NATSProcess) Kill() {
	p.t.Helper()
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Errorf("kill the NATS server's process: %v", err)
	}
	_ = p.cmd.Wait() // always "signal: killed"
	_ = p.input.Close()
	p.cmd = nil
}

// Freeze stops the server's process in its tracks, at the latest until the
// test ends; its sockets stay open.
func (p *NATSProcess) Freeze() {
	p.t.Helper()
	if p.cmd == nil {
		p.t.Fatal("the NATS server does not run: it cannot be frozen")
	}
	freeze(p.t, p.cmd.Process.Pid)
	p.t.Cleanup(p.Thaw)
}

// Thaw lets a frozen server go on. It does nothing to one that does not run.
func (p *NATSProcess) Thaw() {
	p.t.Helper()
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Errorf("thaw the NATS server's process: %v", err)
	}
}

// Restart starts the server again on its directory and port, after stopping
// it if it still runs.
func (p *NATSProcess) Restart() {
	p.t.Helper()
	p.Stop()
	p.start()
}

func (p *NATSProcess) start() {
	p.t.Helper()
	options, err := json.Marshal(p.options)
	if err != nil {
		p.t.Fatalf("encode the NATS server's options: %v", err)
	}
	program, err := os.Executable()
	if err != nil {
		p.t.Fatalf("find the test binary: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), processTimeout)
	defer cancel()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), natsProcessEnv+"="+string(options))
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatalf("open the NATS server's input: %v", err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatalf("open the NATS server's output: %v", err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("start the NATS server's process: %v", err)
	}
	// Ends the read below if the server is not ready in time.
	giveUp := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer giveUp()
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		_ = cmd.Process.Kill()
		p.t.Fatalf("the NATS server's process did not become ready: %v, %v; "+
			"it must be a test binary whose TestMain calls testenv.Main", err, cmd.Wait())
	}
	p.url, p.cmd, p.input = strings.TrimSpace(line), cmd, input
}

// beNATSProcess is the other side: it serves until its input ends, and returns
// the exit status.
func beNATSProcess(encoded string) int {
	var options natsserver.Options
	if err := json.Unmarshal([]byte(encoded), &options); err != nil {
		fmt.Fprintf(os.Stderr, "testenv: decode %s: %v\n", natsProcessEnv, err)
		return 2
	}
	options.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	server, err := natsserver.Start(options)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	fmt.Println(server.URL())
	_, readErr := io.Copy(io.Discard, os.Stdin)
	ctx, cancel := context.WithTimeout(context.Background(), processTimeout)
	defer cancel()
	if err := errors.Join(readErr, server.Stop(ctx)); err != nil {
		fmt.Fprintln(os.Stderr, "testenv:", err)
		return 1
	}
	return 0
}
