package testenv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// freeze stops a process and returns when each of its threads stands still,
// which is a little after the signal was sent.
func freeze(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze process %d: %v", pid, err)
	}
	Eventually(t, processTimeout, func() (bool, string) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			return false, fmt.Sprintf("process %d has no threads to be seen: %v", pid, err)
		}
		for _, thread := range threads {
			if stat, err := os.ReadFile(thread); err == nil && !isStopped(stat) {
				return false, fmt.Sprintf("%s still runs: %s", thread, stat)
			}
		}
		return true, ""
	})
}

// isStopped reads the state, which follows the name in parentheses.
func isStopped(stat []byte) bool {
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T"))
}
