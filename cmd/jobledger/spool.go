package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"jobledger/internal/dirlock"
	"jobledger/workers"
)

// spoolPrefix starts the names of the folders in a spool: one for each provider,
// named like the consumer of its workers.
const spoolPrefix = "worker-"

// A spool is the folder in which this process's workers keep completions that
// they cannot append.
type spool struct {
	dir        string
	lock       *dirlock.Lock
	byProvider map[string]*workers.Spool
}

// openSpool locks the spool's folder, in which two processes would append and
// remove each other's files, and opens the providers' parts of it.
func (a *app) openSpool() error {
	if a.spoolDir == "" {
		a.log.Warn("there is no workers.spool: what calls have come to is lost if this process must end while NATS is away", "role", roleWorker)
		return nil
	}
	if err := os.MkdirAll(a.spoolDir, 0o700); err != nil {
		return fmt.Errorf("make the spool: %w", err)
	}
	lock, err := dirlock.Acquire(a.spoolDir)
	if err != nil {
		return spoolHeldBy(err)
	}
	a.spool = &spool{dir: a.spoolDir, lock: lock, byProvider: map[string]*workers.Spool{}}
	for name := range maps.Keys(a.providers) {
		if a.spool.byProvider[name], err = a.openProviderSpool(name); err != nil {
			return err
		}
	}
	return a.tellStrandedCompletions()
}

func spoolHeldBy(err error) error {
	var held *dirlock.HeldError
	if errors.As(err, &held) {
		return exitWith(exitRefused, "the spool: %w; each process with the worker role needs one of its own (--spool, or workers.spool)", err)
	}
	return fmt.Errorf("the spool: %w", err)
}

func (a *app) openProviderSpool(provider string) (*workers.Spool, error) {
	s, err := workers.OpenSpool(workers.SpoolOptions{
		Dir: filepath.Join(a.spoolDir, spoolPrefix+provider), Stream: a.ledger.Stream, SubjectPrefix: a.ledger.Prefix,
	})
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", provider, err)
	}
	return s, nil
}

// tellStrandedCompletions says what waits in the spool for providers that this
// process does not serve: nobody appends it.
func (a *app) tellStrandedCompletions() error {
	entries, err := os.ReadDir(a.spoolDir)
	if err != nil {
		return fmt.Errorf("look into the spool: %w", err)
	}
	for _, e := range entries {
		provider, ok := strings.CutPrefix(e.Name(), spoolPrefix)
		if _, served := a.providers[provider]; !ok || served || !e.IsDir() {
			continue
		}
		s, err := a.openProviderSpool(provider)
		if err != nil {
			return err
		}
		if n := s.Len(); n > 0 {
			a.log.Error("completions wait in the spool for a provider that this process does not serve; put it back into the configuration until they are appended",
				"role", roleWorker, "provider", provider, "completions", n, "spool", a.spoolDir)
		}
	}
	return nil
}

// of returns the part of the spool that is a provider's, nil if there is none.
func (s *spool) of(provider string) *workers.Spool {
	if s == nil {
		return nil
	}
	return s.byProvider[provider]
}

// holdsAny reports whether completions wait in it.
func (s *spool) holdsAny() bool {
	if s == nil {
		return false
	}
	for _, part := range s.byProvider {
		if part.Len() > 0 {
			return true
		}
	}
	return false
}

func (s *spool) close() error {
	if s == nil {
		return nil
	}
	return s.lock.Release()
}
