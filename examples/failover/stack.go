package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
	"time"
)

var (
	//go:embed jobledger.yaml.tmpl
	configuration string
	//go:embed summarize.yaml
	contract string
)

const stopTimeout = 20 * time.Second

// A stack is the two model servers and a dev stack of the ledger.
type stack struct {
	dir string // of this run
	bin string // the program jobledger; "": not built yet

	primary, fallback *modelServer
	dev               *exec.Cmd
	ended             chan error // gets how dev has ended
}

func (s *stack) start(ctx context.Context) error {
	if err := s.build(ctx); err != nil {
		return err
	}
	s.primary, s.fallback = newModelServer(), newModelServer()
	if err := s.configure("gpt-4o-mini"); err != nil {
		return err
	}
	log, err := os.Create(s.path("dev.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	s.dev = exec.Command(s.bin, "dev", "--config", s.path("jobledger.yaml"), "--data", s.path("data"), "--nats-port", "0")
	s.dev.Stderr = log
	// Ctrl-C is for this process, which stops the other.
	s.dev.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := s.dev.Start(); err != nil {
		s.dev = nil
		return err
	}
	s.ended = make(chan error, 1)
	go func() { s.ended <- s.dev.Wait() }()
	return poll(ctx, "the dev stack to be ready", func() (bool, error) {
		select {
		case err := <-s.ended:
			s.ended <- err
			return false, errors.Join(errors.New("the dev stack has ended"), err)
		default:
		}
		_, err := os.Stat(s.path("data/dev.json"))
		return err == nil, nil
	})
}

// build builds the program unless one was named.
func (s *stack) build(ctx context.Context) (err error) {
	if s.bin != "" {
		s.bin, err = filepath.Abs(s.bin)
		return err
	}
	s.bin = s.path("jobledger")
	out, err := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", s.bin, "jobledger/cmd/jobledger").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build jobledger: %w\n%s", err, out)
	}
	return nil
}

func (s *stack) path(name string) string { return filepath.Join(s.dir, name) }

// configure writes the configuration, with a model for the fallback.
func (s *stack) configure(model string) error {
	t, err := template.New("jobledger.yaml").Parse(configuration)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := t.Execute(&text, struct{ Primary, Fallback, Model string }{s.primary.URL, s.fallback.URL, model}); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(s.path("jobledger.yaml"), text.Bytes(), 0o600),
		os.WriteFile(s.path("summarize.yaml"), []byte(contract), 0o600))
}

// jobledger runs a command against the dev stack, and reads what it prints. status
// is its exit status.
func (s *stack) jobledger(ctx context.Context, into any, args ...string) (status int, err error) {
	cmd := exec.CommandContext(ctx, s.bin, append(args, "--config", s.path("jobledger.yaml"), "--data", s.path("data"), "-o", "json", "--log-level", "warn")...)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	status = cmd.ProcessState.ExitCode()
	if json.Unmarshal(stdout.Bytes(), into) != nil {
		return status, fmt.Errorf("jobledger %s ended with %d: %s%s", strings.Join(args, " "), status, stdout.Bytes(), stderr.Bytes())
	}
	return status, nil
}

// stop ends everything. It is for stacks that were not started as a whole, too.
func (s *stack) stop() error {
	for _, m := range []*modelServer{s.primary, s.fallback} {
		if m != nil {
			m.Close()
		}
	}
	if s.dev == nil {
		return nil
	}
	if err := s.dev.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-s.ended:
		return err
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("the dev stack did not stop within %s", stopTimeout), s.dev.Process.Kill())
	}
}

// poll waits until condition holds.
func poll(ctx context.Context, what string, condition func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
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
