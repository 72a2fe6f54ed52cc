package pgserver

import (
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// pipeGrace is how long the log of an ended postmaster may stay open: its
// children hold it too and may outlive a killed postmaster by a moment.
const pipeGrace = 2 * time.Second

// child is a process that ends with this one.
type child struct {
	pid  int
	done chan struct{} // closed after err is set
	err  error         // how it ended; nil: with status 0
	log  *lineLog
}

// spawn starts cmd. The kernel sends it SIGQUIT, which is PostgreSQL's
// immediate shutdown, when the thread that forked it ends; that thread
// therefore belongs to a goroutine that lives as long as the child.
func spawn(cmd *exec.Cmd, log *slog.Logger) (*child, error) {
	c := &child{done: make(chan struct{}), log: &lineLog{log: log}}
	cmd.Stdout, cmd.Stderr = c.log, c.log
	cmd.WaitDelay = pipeGrace
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	// A group of its own: Ctrl-C in a terminal is for this process, which then
	// stops what uses the database before the database.
	cmd.SysProcAttr.Setpgid = true

	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		c.pid = cmd.Process.Pid
		started <- nil
		if err := cmd.Wait(); !errors.Is(err, exec.ErrWaitDelay) {
			c.err = err
		}
		c.log.flush()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	return c, nil
}

// signal does nothing once the child has ended; its pid may be another's then.
func (c *child) signal(sig syscall.Signal) {
	select {
	case <-c.done:
	default:
		// The one possible error is that it ended just now.
		_ = syscall.Kill(c.pid, sig)
	}
}

// kill ends the child by an immediate shutdown and, if that does not help, by
// SIGKILL, and waits until it has ended.
func (c *child) kill() {
	c.signal(syscall.SIGQUIT)
	c.signal(syscall.SIGCONT) // a frozen one acts on nothing else
	select {
	case <-c.done:
		return
	case <-time.After(immediateStopTimeout):
	}
	c.signal(syscall.SIGKILL)
	<-c.done
}

// stopError says how an ended child failed, nil if it did not.
func (c *child) stopError() error {
	if c.err == nil {
		return nil
	}
	return fmt.Errorf("PostgreSQL ended badly (%w); its last lines: %s", c.err, c.log.tail())
}
