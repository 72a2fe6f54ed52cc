package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// devFileName is written into a dev stack's directory when it is ready, and
// removed when it stops.
const devFileName = "dev.json"

// A devFile says where a dev stack serves. The database's URL has its password
// in it, so the file is the user's only.
type devFile struct {
	HTTP     string `json:"http"`
	NATS     string `json:"nats"`
	Database string `json:"database"`
	PID      int    `json:"pid"`
	Metrics  string `json:"metrics,omitempty"`
}

// write puts the file in place as a whole, so that nobody reads half of it.
func (d devFile) write(dir string) error {
	data, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, devFileName)
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the dev stack's addresses: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write the dev stack's addresses: %w", err)
	}
	return nil
}

func removeDevFile(dir string) error {
	err := os.Remove(filepath.Join(dir, devFileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// readDevFile returns where the dev stack in dir serves; running is false if
// there is none, or only what a killed one has left.
func readDevFile(dir string) (d devFile, running bool, err error) {
	path := filepath.Join(dir, devFileName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return d, false, nil
	}
	if err != nil {
		return d, false, err
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, false, fmt.Errorf("%s: %w; remove it, or stop and start the dev stack", path, err)
	}
	// EPERM means that the process exists but is another user's.
	alive := d.PID > 0 && !errors.Is(syscall.Kill(d.PID, 0), syscall.ESRCH)
	return d, alive, nil
}
