package workers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"jobledger/ledger"
)

// exitTempFail is EX_TEMPFAIL of sysexits.h: the program declined the work
// without any effect, and may take it later.
const exitTempFail = 75

// ExecOptions configure an [Exec] provider. Command is the only required member.
type ExecOptions struct {
	// Command is the program, looked up as os/exec does, and its arguments.
	// There is no shell.
	Command []string
	// Dir is where the program runs; "": where this process does.
	Dir string
	// EnvPass names variables of this process's environment that the program
	// gets beside PATH, HOME and LANG.
	EnvPass []string
}

// Exec is a provider that runs a program: the attempt as JSON on its standard
// input, the result as JSON on its standard output, JOBLEDGER_JOB_ID,
// JOBLEDGER_ATTEMPT and, if there is a trace, TRACEPARENT in its environment.
//
// The program leads a process group of its own. The group is killed when the
// attempt's context ends, and what is left of it when the program has ended:
// nothing of an attempt outlives it, unless it has left the group. Should the
// worker's process die, the system kills the program (not its children).
type Exec struct {
	options ExecOptions
	env     []string
}

// NewExec returns a provider for a program. The environment is read now. That
// the program exists is seen when it is called.
func NewExec(o ExecOptions) (*Exec, error) {
	if len(o.Command) == 0 || o.Command[0] == "" {
		return nil, errors.New("workers: ExecOptions.Command is empty; expected a program and its arguments")
	}
	e := &Exec{options: o}
	for _, name := range append([]string{"PATH", "HOME", "LANG"}, o.EnvPass...) {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return nil, fmt.Errorf("workers: ExecOptions.EnvPass has %q, which is no variable's name", name)
		case name == "JOBLEDGER_JOB_ID" || name == "JOBLEDGER_ATTEMPT" || name == "TRACEPARENT":
			return nil, fmt.Errorf("workers: ExecOptions.EnvPass has %s, which the provider sets itself", name)
		}
		if value, ok := os.LookupEnv(name); ok {
			e.env = append(e.env, name+"="+value)
		}
	}
	return e, nil
}

// Call implements [Provider].
//
// Exit status 0 gives the result, 75 is a refusal (reach transient), every
// other one an executed failure whose message holds the end of what the program
// wrote to its standard error. A program that could not be started was not
// sent. One that was ended by a signal, its deadline's included, is ambiguous.
// Output beyond ledger.MaxResultBytes is dropped while the program runs to its
// end; then it is an executed failure.
func (e *Exec) Call(ctx context.Context, c Call) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, &CallError{Known: NotSent, Class: endClass(err, "not_started"), Err: err}
	}
	// The system kills a child when the thread that started it ends, which is
	// when its parent does only if the thread lives as long as the child does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	p := newProcess(ctx, e.options.Command, requestBody(c))
	p.cmd.Dir = e.options.Dir
	p.cmd.Env = append(e.env[:len(e.env):len(e.env)],
		"JOBLEDGER_JOB_ID="+c.JobID.String(), "JOBLEDGER_ATTEMPT="+strconv.Itoa(c.Attempt))
	if c.Traceparent != "" && validHeaderValue(c.Traceparent) {
		p.cmd.Env = append(p.cmd.Env, "TRACEPARENT="+c.Traceparent)
	}
	if err := p.cmd.Start(); err != nil {
		return Result{}, startFailure(err)
	}
	state, err := p.wait()
	if err != nil {
		return Result{}, &CallError{Class: "wait", Err: fmt.Errorf("wait for %s: %w", e.options.Command[0], err)}
	}
	return p.result(ctx, state)
}

// startFailure says how far it reaches that a program cannot be started: it may
// be missing for good, or the system may be out of something for now.
func startFailure(err error) error {
	e := &CallError{Known: NotSent, Class: "not_started", Reach: ledger.ReachTransient, Err: err}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		e.Reach = ledger.ReachProvider
	}
	return e
}

// result says what the end of the program means.
func (p *process) result(ctx context.Context, state *os.ProcessState) (Result, error) {
	status, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled():
		class := "signal"
		if err := ctx.Err(); err != nil {
			class = endClass(err, class)
		}
		return Result{}, &CallError{Class: class, Err: p.describe("ended by signal %d (%s)", status.Signal(), status.Signal())}
	case state.ExitCode() == exitTempFail:
		return Result{}, &CallError{Known: Refused, Class: "tempfail", Reach: ledger.ReachTransient,
			Err: p.describe("exit status %d", exitTempFail)}
	case !state.Success():
		return Result{}, &CallError{Known: Executed, Class: "exit_status", Err: p.describe("exit status %d", state.ExitCode())}
	case p.stdout.dropped:
		return Result{}, tooLarge()
	}
	return Result{Body: p.stdout.kept}, nil
}

// describe adds to a text as much of the end of standard error as a message may
// hold.
func (p *process) describe(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	stderr := strings.TrimSpace(strings.ToValidUTF8(string(p.stderr.kept), "\ufffd"))
	if stderr == "" {
		return errors.New(text)
	}
	text += "; standard error ends: "
	from := max(len(stderr)+len(text)-ledger.MaxTextBytes, 0)
	for from < len(stderr) && !utf8.RuneStart(stderr[from]) {
		from++
	}
	return errors.New(text + stderr[from:])
}
