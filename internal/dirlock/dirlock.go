// Package dirlock keeps two processes from using one data directory at once.
//
// The embedded NATS server takes no lock on its store, and two of them on one
// directory destroy it; a second PostgreSQL is refused by PostgreSQL itself,
// but late and with a message that does not say who is in the way.
package dirlock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// FileName is the name of the lock file inside the locked directory.
const FileName = "lock"

// maxHolderBytes bounds what is read back from a lock file: a pid.
const maxHolderBytes = 32

// HeldError says that another process holds the lock on Dir.
type HeldError struct {
	// Dir is the directory as it was given to Acquire.
	Dir string
	// PID is the holder's process id, 0 if it is not known.
	PID int
}

func (e *HeldError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("%s is in use by %s: stop it, or choose another directory", e.Dir, holder)
}

// Lock is a held lock. The kernel drops it when the process ends, however it
// ends, so there is no stale lock to clean up.
type Lock struct {
	mu   sync.Mutex
	file *os.File
}

// Acquire locks dir, which it creates if it is missing, and never waits.
// A lock that is held elsewhere, in this process too, is a *HeldError.
func Acquire(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create the directory to lock: %w", err)
	}
	path := filepath.Join(dir, FileName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &HeldError{Dir: dir, PID: readHolder(file)}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if err := writeHolder(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("note the holder in %s: %w", path, err)
	}
	return &Lock{file: file}, nil
}

// Release gives the lock up. It is safe to call more than once. The file
// stays: removing it would let two processes lock two files of one name.
func (l *Lock) Release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	file := l.file
	l.file = nil
	// Emptied first, so that nobody reads the pid of a process that has left.
	if err := errors.Join(file.Truncate(0), file.Close()); err != nil {
		return fmt.Errorf("release the directory lock: %w", err)
	}
	return nil
}

func writeHolder(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// readHolder returns 0 when the holder has not written its pid (yet).
func readHolder(file *os.File) int {
	text, err := io.ReadAll(io.LimitReader(file, maxHolderBytes))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
