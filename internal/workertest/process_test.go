package workertest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

// logTail is how much of a process's log a failed test shows, in bytes.
const logTail = 8 << 10

// A process is one life of the worker under test.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  logBuffer
	done chan struct{} // closed when it has ended
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// launch starts a process, which ends with the test.
func launch(t *testing.T, command, environment []string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(command[0], command[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // whoever cares for the status looks at it
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if text := p.log.String(); t.Failed() {
			t.Logf("log of %s:\n%s", strings.Join(command, " "), text[max(0, len(text)-logTail):])
		}
	})
	return p
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("send %v to the worker: %v", sig, err)
	}
}

// kill ends the process as a crash would, and waits until it is gone.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.done
}

// ended waits for the process to end by itself, and returns its exit status.
func (p *process) ended(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.t.Fatalf("the worker has not ended within %s", within)
		return -1
	}
}

// freeze stops the process in its tracks, until thaw.
func (p *process) freeze() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	testenv.Eventually(p.t, patience, func() (bool, string) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		return err == nil && bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T")), "the worker still runs"
	})
}

func (p *process) thaw() { p.t.Helper(); p.signal(syscall.SIGCONT) }
