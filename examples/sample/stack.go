package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"
)

// The configuration of the run: jobledger.yaml for the dev stack, and what is
// defined later, whose providers the dev stack has no workers for.
var (
	//go:embed jobledger.yaml.tmpl
	devConfig string
	//go:embed later.yaml
	laterConfig string
)

const (
	startTimeout = time.Minute
	stopTimeout  = 20 * time.Second
)

// A stack is the processes of a run.
type stack struct {
	dir  string // of this run, absolute
	bin  string // the program jobledger, absolute
	self string // this program

	// Where the dev stack serves, from its dev.json.
	HTTP     string `json:"http"`
	NATS     string `json:"nats"`
	Database string `json:"database"`
	stubURL  string

	dev, stub, worker *process
	listener          *listener
}

// startStack starts all processes. On an error none is left.
func startStack(ctx context.Context, jobledger, parent string) (*stack, error) {
	s := &stack{}
	if err := s.prepare(jobledger, parent); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.stop(true))
	}
	return s, nil
}

func (s *stack) prepare(jobledger, parent string) (err error) {
	if s.self, err = os.Executable(); err != nil {
		return err
	}
	if s.bin, err = filepath.Abs(jobledger); err != nil {
		return err
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(parent, "sample-*")
	if err != nil {
		return err
	}
	s.dir, err = filepath.Abs(dir)
	return err
}

func (s *stack) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if s.stub, err = s.startProcess("stub", s.self, roleStub); err != nil {
		return err
	}
	if s.stubURL, err = s.stub.firstLine(ctx); err != nil {
		return err
	}
	if err := s.writeConfig(); err != nil {
		return err
	}
	s.dev, err = s.startProcess("dev", s.bin, "dev", "--config", s.path("jobledger.yaml"), "--data", s.path("data"),
		"--http", "127.0.0.1:0", "--nats-port", "0")
	if err != nil {
		return err
	}
	if err := s.awaitDev(ctx); err != nil {
		return err
	}
	// What this defines is in the ledger, but no worker of the dev stack serves it.
	if err := s.jobledger(ctx, "kind", "apply", s.path("later.yaml")); err != nil {
		return err
	}
	if s.listener, err = listen(s.NATS); err != nil {
		return err
	}
	s.worker, err = s.startProcess("worker", s.self, roleWorker, "-nats", s.NATS, "-stub", s.stubURL)
	return err
}

func (s *stack) path(name string) string { return filepath.Join(s.dir, name) }

func (s *stack) writeConfig() error {
	t, err := template.New("jobledger.yaml").Parse(devConfig)
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := t.Execute(&text, struct{ Stub, Self string }{s.stubURL, s.self}); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(s.path("jobledger.yaml"), []byte(text.String()), 0o644),
		os.WriteFile(s.path("later.yaml"), []byte(laterConfig), 0o644),
	)
}

// awaitDev waits for the file that the dev stack writes when it is ready.
func (s *stack) awaitDev(ctx context.Context) error {
	return poll(ctx, "the dev stack to be ready", func() (bool, error) {
		select {
		case <-s.dev.done:
			return false, fmt.Errorf("the dev stack ended: %w; its log:\n%s", s.dev.err, s.dev.tail())
		default:
		}
		data, err := os.ReadFile(s.path("data/dev.json"))
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return true, json.Unmarshal(data, s)
	})
}

func (s *stack) devEnded() <-chan struct{} { return s.dev.done }

// jobledger runs a command against the dev stack.
func (s *stack) jobledger(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, s.bin, append(args, "--data", s.path("data"), "--log-level", "warn")...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("jobledger %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (s *stack) announce(w io.Writer) {
	fmt.Fprintf(w, `
The stack stays up until Ctrl-C:
  API       %s  (header Ledger-Owner: %s)
  NATS      %s
  database  psql '%s'
  commands  %s job list --data %s
`, s.HTTP, owner, s.NATS, s.Database, s.bin, s.path("data"))
}

// stop ends the processes and removes the run's directory unless it is to be
// kept. The stub goes first: calls that still stall end with it.
func (s *stack) stop(keep bool) error {
	s.listener.close()
	err := errors.Join(s.stub.stop(), s.worker.stop(), s.dev.stop())
	if keep || err != nil {
		fmt.Fprintf(os.Stderr, "the logs of this run are in %s\n", s.dir)
		return err
	}
	return os.RemoveAll(s.dir)
}

// A process is a child whose output goes to a log in the run's directory.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	out  io.ReadCloser
	done chan struct{} // closed after err is set
	err  error
}

func (s *stack) startProcess(name, program string, args ...string) (*process, error) {
	p := &process{name: name, log: s.path(name + ".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Stderr = log
	// Ctrl-C is for this process, which stops the others in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer writing.Close()
	p.out, p.cmd.Stdout = reading, writing
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, reading.Close())
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// firstLine waits for the first line on the process's standard output.
func (p *process) firstLine(ctx context.Context) (string, error) {
	type result struct {
		line string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(p.out).ReadString('\n')
		read <- result{strings.TrimSpace(line), err}
	}()
	select {
	case r := <-read:
		if r.err != nil {
			return "", fmt.Errorf("the process %s said nothing: %w; its log:\n%s", p.name, r.err, p.tail())
		}
		return r.line, nil
	case <-ctx.Done():
		return "", fmt.Errorf("wait for the process %s: %w", p.name, ctx.Err())
	}
}

// tail is the end of the process's log.
func (p *process) tail() string {
	const most = 4 << 10
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-most):])
}

// stop asks the process to end and, in the end, kills it. It is for processes
// that were never started, too.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	defer p.out.Close()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		kill := p.cmd.Process.Kill()
		<-p.done
		return errors.Join(fmt.Errorf("the process %s did not stop within %s", p.name, stopTimeout), kill)
	}
	if p.err != nil {
		return fmt.Errorf("the process %s: %w; its log:\n%s", p.name, p.err, p.tail())
	}
	return nil
}

// poll waits until condition holds.
func poll(ctx context.Context, what string, condition func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := condition()
		if ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		}
	}
}
