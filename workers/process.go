package workers

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"jobledger/ledger"
)

const (
	// stderrTailBytes is how much of the end of standard error is kept.
	stderrTailBytes = 4 << 10
	// pipeDelay bounds the wait for the program's pipes once its group is gone:
	// a process that has left the group may hold them.
	pipeDelay = time.Second
)

// A process is a program that runs in a process group of its own.
type process struct {
	cmd    *exec.Cmd
	stdout headBuffer
	stderr tailBuffer

	mu   sync.Mutex
	gone bool // the group was ended for good; its id may soon be another's
}

func newProcess(ctx context.Context, command []string, stdin []byte) *process {
	p := &process{stdout: headBuffer{limit: ledger.MaxResultBytes}}
	p.cmd = exec.CommandContext(ctx, command[0], command[1:]...)
	p.cmd.Stdin = bytes.NewReader(stdin)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.Cancel = p.kill
	p.cmd.WaitDelay = pipeDelay
	return p
}

// kill kills the whole group.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return os.ErrProcessDone
	}
	return unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
}

// wait waits for the program's end and then ends what is left of its group.
// That has to happen before the program is reaped: until then the group's id
// cannot become another's.
func (p *process) wait() (*os.ProcessState, error) {
	leftErr := awaitExit(p.cmd.Process.Pid)
	killErr := p.kill()
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	err := p.cmd.Wait()
	if state := p.cmd.ProcessState; state != nil {
		return state, nil // an error then is about pipes or status, which the state tells
	}
	return nil, errors.Join(leftErr, killErr, err)
}

// awaitExit waits until the child has ended, and leaves it to be reaped.
func awaitExit(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// A headBuffer keeps the beginning of what is written to it.
type headBuffer struct {
	limit   int
	kept    []byte
	dropped bool // there was more
}

func (b *headBuffer) Write(p []byte) (int, error) {
	n := min(len(p), b.limit-len(b.kept))
	b.kept = append(b.kept, p[:n]...)
	b.dropped = b.dropped || n < len(p)
	return len(p), nil
}

// A tailBuffer keeps the last stderrTailBytes of what is written to it.
type tailBuffer struct{ kept []byte }

func (b *tailBuffer) Write(p []byte) (int, error) {
	if len(p) >= stderrTailBytes {
		b.kept = append(b.kept[:0], p[len(p)-stderrTailBytes:]...)
		return len(p), nil
	}
	if over := len(b.kept) + len(p) - stderrTailBytes; over > 0 {
		b.kept = b.kept[:copy(b.kept, b.kept[over:])]
	}
	b.kept = append(b.kept, p...)
	return len(p), nil
}
