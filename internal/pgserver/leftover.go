package pgserver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// readPidFile returns the pid and the status in the cluster's postmaster.pid,
// 0 and "" where they are not (yet) written.
func readPidFile(data string) (pid int, status string) {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0, ""
	}
	lines := strings.Split(string(text), "\n")
	if pid, err = strconv.Atoi(strings.TrimSpace(lines[0])); err != nil {
		return 0, ""
	}
	const statusLine = 7
	if len(lines) > statusLine {
		status = strings.TrimSpace(lines[statusLine])
	}
	return pid, status
}

// endLeftovers ends a postmaster whose owner was killed, if it still runs, and
// removes a pid file that names a process which is not one: after a reboot
// the number may be anybody's, and PostgreSQL would refuse to start. It
// reports whether there was anything.
//
// The backends of a killed postmaster end by themselves within moments;
// PostgreSQL refuses to start until then, and the caller tries again.
func (c *cluster) endLeftovers(ctx context.Context) (found bool, err error) {
	pid, _ := readPidFile(c.data)
	if pid == 0 {
		return false, nil
	}
	if !processExists(pid) {
		return true, nil // PostgreSQL sees that itself
	}
	if !c.isPostmaster(pid) {
		c.Log.Warn("removing the pid file of an ended PostgreSQL, whose process id is another program's now", "pid", pid)
		return true, os.Remove(filepath.Join(c.data, "postmaster.pid"))
	}
	c.Log.Warn("ending a PostgreSQL that outlived its owner", "pid", pid)
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGCONT} { // it may be frozen
		if err := syscall.Kill(pid, sig); err != nil && err != syscall.ESRCH {
			return true, fmt.Errorf("end PostgreSQL process %d, which outlived its owner: %w", pid, err)
		}
	}
	deadline := time.Now().Add(leftoverTimeout)
	for processExists(pid) {
		if time.Now().After(deadline) {
			return true, fmt.Errorf("PostgreSQL process %d outlived its owner and did not end within %s: end it", pid, leftoverTimeout)
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return true, err
		}
	}
	return true, nil
}

// processExists is also true of one that this user may not signal. A zombie
// is not counted: nothing of it runs, and only its parent can remove it.
func processExists(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The state follows the name, which stands in parentheses and may hold any.
	_, fields, _ := bytes.Cut(stat[max(bytes.LastIndexByte(stat, ')'), 0):], []byte(" "))
	return !bytes.HasPrefix(fields, []byte("Z"))
}

// isPostmaster says whether pid runs "postgres -D <this cluster>". The command
// line is readable for everybody, unlike the process's directory.
func (c *cluster) isPostmaster(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := strings.Split(string(text), "\x00")
	return len(args) > 2 && filepath.Base(args[0]) == "postgres" && args[1] == "-D" && args[2] == c.data
}
