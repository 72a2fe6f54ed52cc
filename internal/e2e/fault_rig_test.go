package e2e_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

const (
	// faultPatience bounds waits for what must happen and may take long on a
	// busy machine.
	faultPatience = 2 * time.Minute
	faultOwner    = "acme"
	faultKind     = "work"
)

// A faultRig is a world of real servers and of a process for each role. Tests
// break parts of it under load and then hold the tables, the stream and the
// provider's own count of calls against each other.
type faultRig struct {
	*world
	t     *testing.T // a world's is any testing.TB
	stub  *faultStub
	began time.Time
}

// say notes a step of a test, and when it was reached.
func (r *faultRig) say(format string, args ...any) {
	r.t.Helper()
	r.t.Logf("%6.1f s: %s", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// faultSettings are what differs from test to test.
type faultSettings struct {
	nats, database string // of the servers themselves
	replicas       int
	// attemptTimeout is short where attempts are to be lost, long where none is.
	attemptTimeout time.Duration
	concurrency    int // of a worker
	// callTime is the mean time that a call of the provider takes.
	callTime time.Duration
}

// newFaultRig makes the ledger; nothing serves it yet.
func newFaultRig(t *testing.T, s faultSettings) *faultRig {
	t.Helper()
	stub := newFaultStub(t, s.callTime)
	yaml := fmt.Sprintf("kinds:\n  %s: {providers: [stub], effects: external, attempt_timeout: %s}\n"+
		"providers:\n  stub: {type: http, url: %q, concurrency: %d}\n", faultKind, s.attemptTimeout, stub.url, s.concurrency)
	r := &faultRig{t: t, stub: stub, began: time.Now()}
	t.Cleanup(func() { r.say("everything has stopped") })
	r.world = newWorld(t, setup{yaml: yaml, nats: s.nats, database: s.database, replicas: s.replicas})
	return r
}

// end returns the sequence of the stream's last entry.
func (r *faultRig) end() (uint64, error) {
	info, err := r.info()
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// info asks for the stream, which may be away.
func (r *faultRig) info() (*jetstream.StreamInfo, error) {
	ctx, cancel := contextFor(5 * time.Second)
	defer cancel()
	s, err := r.js.Stream(ctx, r.stream)
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// awaitEnd is end as soon as the stream can be asked.
func (r *faultRig) awaitEnd() (seq uint64) {
	r.t.Helper()
	testenv.Eventually(r.t, faultPatience, func() (ok bool, _ string) {
		var err error
		seq, err = r.end()
		return err == nil, fmt.Sprint("the stream cannot be asked for its end: ", err)
	})
	return seq
}

// awaitProgress waits until the tables have reached what is now the end of the
// stream, and returns how long that took.
func (r *faultRig) awaitProgress(within time.Duration, what string) time.Duration {
	r.t.Helper()
	end := r.awaitEnd()
	began := time.Now()
	testenv.Eventually(r.t, within, func() (bool, string) {
		ctx, cancel := contextFor(5 * time.Second)
		defer cancel()
		var seq uint64
		err := r.pool.QueryRow(ctx, "SELECT min(seq) FROM ledger.checkpoints").Scan(&seq)
		return err == nil && seq >= end, fmt.Sprintf("%s: the tables are at %d of %d: %v", what, seq, end, err)
	})
	return time.Since(began)
}

// requireRunning fails the test if one of the processes has ended by itself.
func (r *faultRig) requireRunning(processes ...*process) {
	r.t.Helper()
	for _, p := range processes {
		require.False(r.t, p.ended(), "serve --roles %s has ended by itself: %v", p.roles, p.cmd.ProcessState)
	}
}

// A logLine is one line of a process's log.
type logLine struct {
	at      time.Time
	text    string
	members map[string]string
}

// logMember matches a member of a line of slog's text format.
var logMember = regexp.MustCompile(`([A-Za-z_.]+)=("(?:[^"\\]|\\.)*"|\S*)`)

// lines returns what the process logged between two moments; a zero moment is
// no limit.
func (p *process) lines(from, to time.Time) []logLine {
	var list []logLine
	for text := range strings.Lines(p.log.String()) {
		line := logLine{text: strings.TrimSpace(text), members: map[string]string{}}
		for _, m := range logMember.FindAllStringSubmatch(text, -1) {
			value := m[2]
			if unquoted, err := strconv.Unquote(value); err == nil {
				value = unquoted
			}
			if _, taken := line.members[m[1]]; !taken {
				line.members[m[1]] = value
			}
		}
		var err error
		if line.at, err = time.Parse(time.RFC3339Nano, line.members["time"]); err != nil {
			continue // not of the log: the server libraries' own words
		}
		if line.at.Before(from) || !to.IsZero() && line.at.After(to) {
			continue
		}
		list = append(list, line)
	}
	return list
}
