package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
	"jobledger/publisher"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		code int
	}{
		"nothing":              {nil, 0},
		"some error":           {errors.New("x"), 1},
		"one with a status":    {fmt.Errorf("more: %w", exitWith(exitConflict, "x")), 3},
		"not appended":         {&publisher.AppendError{Unavailable: true, Cause: errors.New("x")}, 7},
		"perhaps appended":     {&publisher.AppendError{Unconfirmed: true, Cause: errors.New("x")}, 7},
		"no NATS server":       {fmt.Errorf("connect: %w", nats.ErrNoServers), 7},
		"no decision":          {&publisher.NoDecisionError{Seq: 1, Cause: context.DeadlineExceeded}, 10},
		"out of time":          {context.DeadlineExceeded, 10},
		"a job that succeeded": {exitStatus(jobStatus(ledger.JobSucceeded)), 0},
		"one that failed":      {exitStatus(jobStatus(ledger.JobFailed)), 1},
		"one that is unknown":  {exitStatus(jobStatus(ledger.JobUnknown)), 8},
		"one that is gone":     {exitStatus(jobStatus(ledger.JobCancelled)), 9},
		"one that runs":        {exitStatus(jobStatus(ledger.JobRunning)), 10},
	} {
		require.Equal(t, tc.code, exitCode(tc.err), name)
	}
}

func TestRequireLoopback(t *testing.T) {
	t.Parallel()
	for _, inside := range []string{"127.0.0.1:80", "127.9.9.9:0", "[::1]:80", "localhost:80"} {
		require.NoError(t, requireLoopback(inside), inside)
	}
	for _, outside := range []string{":80", "0.0.0.0:80", "[::]:80", "10.0.0.1:80", "example.org:80", "127.0.0.1"} {
		require.Error(t, requireLoopback(outside), outside)
	}
}
