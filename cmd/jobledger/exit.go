package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"

	"jobledger/ledger"
	"jobledger/publisher"
)

// The exit statuses. Scripts rely on them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitConflict    = 3
	exitRefused     = 4
	exitNotFound    = 5
	exitDifferences = 6
	exitUnreachable = 7
	exitUnknown     = 8
	exitCancelled   = 9
	exitTimedOut    = 10
)

// An exitError ends the process with a status of its own. Without an err the
// output has said everything already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitWith returns an exitError with a message.
func exitWith(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// exitStatus returns an exitError that prints nothing, nil for exitOK.
func exitStatus(code int) error {
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// exitCode returns the status for a command's error.
func exitCode(err error) int {
	var exit *exitError
	var dial *pgconn.ConnectError
	var network *net.OpError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, publisher.ErrUnavailable), errors.Is(err, publisher.ErrUnconfirmed),
		errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrNoResponders),
		errors.As(err, &dial), errors.As(err, &network):
		return exitUnreachable
	case errors.Is(err, publisher.ErrNoDecision), errors.Is(err, context.DeadlineExceeded):
		return exitTimedOut
	}
	return exitFailed
}

// jobStatus is the exit status for a job that has ended as state says, or that
// was not waited for to the end.
func jobStatus(state ledger.JobState) int {
	switch state {
	case ledger.JobSucceeded:
		return exitOK
	case ledger.JobFailed:
		return exitFailed
	case ledger.JobCancelled:
		return exitCancelled
	case ledger.JobUnknown:
		return exitUnknown
	}
	return exitTimedOut
}
