package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

const (
	programName = "jobledger"
	readyWithin = 90 * time.Second
	stopWithin  = 60 * time.Second
)

// A devProcess is `jobledger dev` in a process of its own.
type devProcess struct {
	dir   string
	cmd   *exec.Cmd
	log   *syncBuffer
	done  chan struct{} // closed after err is set
	err   error
	where devFile
}

// syncBuffer is a log that can be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// program is the test binary as the program.
func program(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Args[0] = programName
	return cmd
}

// startDev starts a dev stack on dir and waits until it is ready.
func startDev(dir string, args ...string) (*devProcess, error) {
	p := &devProcess{dir: dir, log: &syncBuffer{}, done: make(chan struct{})}
	p.cmd = program(append([]string{"dev", "--data", dir, "--http", "127.0.0.1:0", "--nats-port", "0"}, args...)...)
	p.cmd.Dir = filepath.Dir(dir) // where no configuration file is
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	for end := time.Now().Add(readyWithin); ; {
		where, running, err := readDevFile(dir)
		if err == nil && running && where.PID == p.cmd.Process.Pid {
			p.where = where
			return p, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("dev has ended: %w\n%s", p.err, p.log)
		case <-time.After(20 * time.Millisecond):
		}
		if err != nil || time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("dev is not ready: %w\n%s", err, p.log), p.signal(syscall.SIGKILL))
		}
	}
}

// signal sends sig and waits until the process has ended.
func (p *devProcess) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopWithin):
		return errors.Join(fmt.Errorf("dev has not ended %s after signal %v\n%s", stopWithin, sig, p.log), p.cmd.Process.Kill())
	}
}

// shared is the dev stack that the scripts use.
var shared sharedStack

type sharedStack struct {
	once sync.Once
	dir  string
	dev  *devProcess
	err  error
}

// sharedConfig has a provider for each way in which an attempt can end.
const sharedConfig = `
kinds:
  echo:  {providers: [echo], effects: none}
  fail:  {providers: [fail, echo], effects: external}
  stall: {providers: [stall, echo], effects: external, attempt_timeout: 3s}
  hold:  {providers: [stall], effects: external, attempt_timeout: 1h}
  lost:  {providers: [lost], effects: external, attempt_timeout: 1s, max_attempts: 1}
  lost2: {providers: [lost], effects: external, attempt_timeout: 1s, max_attempts: 1}
  brake: {providers: [brake], effects: none}
providers:
  echo:  {type: exec, command: [%q, %s]}
  fail:  {type: exec, command: [sh, -c, "echo it is damaged >&2; exit 1"]}
  stall: {type: exec, command: [sleep, "3600"]}
  lost:  {type: exec, command: [sleep, "3600"]}
  brake: {type: exec, command: [cat]}
`

func (s *sharedStack) get(t testing.TB) *devProcess {
	t.Helper()
	s.once.Do(func() { s.dev, s.err = s.start() })
	require.NoError(t, s.err)
	return s.dev
}

func (s *sharedStack) start() (*devProcess, error) {
	var err error
	if s.dir, err = os.MkdirTemp("", "jobledger-cli-*"); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(s.dir, "dev.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, sharedConfig, self, execEchoName), 0o600); err != nil {
		return nil, err
	}
	return startDev(filepath.Join(s.dir, "data"), "--config", config)
}

func (s *sharedStack) stop() error {
	if s.dir == "" {
		return nil
	}
	var err error
	if s.dev != nil {
		err = errors.Join(s.dev.signal(syscall.SIGTERM), s.dev.err)
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// result runs the program and returns what it says and its exit status.
func result(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := program(args...)
	cmd.Dir = t.TempDir()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %s %v: %v", programName, args, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// awaitGone waits until no process has the pid.
func awaitGone(t testing.TB, what string, pid int) {
	t.Helper()
	testenv.Eventually(t, 30*time.Second, func() (bool, string) {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH), fmt.Sprintf("%s (process %d) is still there", what, pid)
	})
}
