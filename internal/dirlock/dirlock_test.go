package dirlock_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/dirlock"
)

func TestSecondLockIsRefusedAndNamesTheHolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	lock, err := dirlock.Acquire(dir)
	require.NoError(t, err)

	_, err = dirlock.Acquire(dir)
	var held *dirlock.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, dirlock.HeldError{Dir: dir, PID: os.Getpid()}, *held)

	require.NoError(t, lock.Release())
	require.NoError(t, lock.Release(), "releasing twice is harmless")
	lock, err = dirlock.Acquire(dir)
	require.NoError(t, err)
	require.NoError(t, lock.Release())
}

func TestLeftoverFileIsNoLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, dirlock.FileName), []byte("1\n"), 0o600))
	lock, err := dirlock.Acquire(dir)
	require.NoError(t, err)
	require.NoError(t, lock.Release())
}

func TestUnusableDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := dirlock.Acquire(file)
	require.ErrorIs(t, err, syscall.ENOTDIR)
}
