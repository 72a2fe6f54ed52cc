package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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
	faultStream   = "LEDGER"
)

// A faultRig is a ledger of processes: real servers, and `jobledger serve` for
// the roles. Tests break parts of it under load and then hold the tables, the
// stream and the provider's own count of calls against each other.
type faultRig struct {
	t      *testing.T
	dir    string
	config string
	// nats and database are the servers themselves; processes may be told to
	// use others, such as proxies in front of them.
	nats, database string
	api            string // URL
	stub           *faultStub
	js             jetstream.JetStream
}

// faultSettings are what differs from test to test.
type faultSettings struct {
	nats, database string
	replicas       int
	// attemptTimeout is short where attempts are to be lost, long where none is.
	attemptTimeout string
	concurrency    int // of the worker
	// callTime is the mean time that a call of the provider takes.
	callTime time.Duration
}

// newFaultRig creates the ledger; no process of it runs yet.
func newFaultRig(t *testing.T, s faultSettings) *faultRig {
	t.Helper()
	r := &faultRig{
		t: t, dir: t.TempDir(), nats: s.nats, database: s.database,
		api: fmt.Sprintf("http://127.0.0.1:%d", testenv.FreePort(t)), stub: newFaultStub(t, s.callTime),
	}
	r.config = filepath.Join(r.dir, "jobledger.yaml")
	config := fmt.Sprintf("kinds:\n  %s: {providers: [stub], effects: external, attempt_timeout: %s}\n"+
		"providers:\n  stub: {type: http, url: %s/run, concurrency: %d}\n", faultKind, s.attemptTimeout, r.stub.url, s.concurrency)
	require.NoError(t, os.WriteFile(r.config, []byte(config), 0o600))
	var err error
	r.js, err = jetstream.New(testenv.Connect(t, r.nats))
	require.NoError(t, err)
	r.command("init", "--replicas", fmt.Sprint(max(s.replicas, 1)))
	return r
}

// define applies the kind and the provider, which takes a projector.
func (r *faultRig) define() {
	r.t.Helper()
	r.command("kind", "apply", r.config)
}

// command runs a command on the servers themselves, to success, and returns
// what it says.
func (r *faultRig) command(args ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), faultPatience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, faultProgram(r.t), append(args, "--config", r.config, "--nats", r.nats, "--database", r.database)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, &stdout, &stderr
	require.NoError(r.t, cmd.Run(), "jobledger %v\n%s%s", args, &stdout, &stderr)
	return stdout.String()
}

// query runs a query of one row on the database itself.
func (r *faultRig) query(sql string, into ...any) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.database)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, sql).Scan(into...)
}

// lastSeq is the sequence of the stream's last entry.
func (r *faultRig) lastSeq() (uint64, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	s, err := r.js.Stream(ctx, faultStream)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.LastSeq, nil
}

// awaitLastSeq is lastSeq as soon as the stream can be asked.
func (r *faultRig) awaitLastSeq() (seq uint64) {
	r.t.Helper()
	testenv.Eventually(r.t, faultPatience, func() (ok bool, _ string) {
		var err error
		seq, err = r.lastSeq()
		return err == nil, fmt.Sprint("the stream's end: ", err)
	})
	return seq
}

// awaitProgress waits until the tables have reached what is now the end of the
// stream.
func (r *faultRig) awaitProgress(within time.Duration, what string) {
	r.t.Helper()
	end := r.awaitLastSeq()
	testenv.Eventually(r.t, within, func() (bool, string) {
		var seq uint64
		err := r.query("SELECT min(seq) FROM ledger.checkpoints", &seq)
		return err == nil && seq >= end, fmt.Sprintf("%s: the tables are at %d of %d: %v", what, seq, end, err)
	})
}

// A faultProcess is a `jobledger serve`.
type faultProcess struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	log  *faultLog
	done chan struct{} // closed after err is set
	err  error
}

// serve starts roles in a process. Where nats and database are "" it uses the
// servers themselves.
func (r *faultRig) serve(name, roles, nats, database string) *faultProcess {
	r.t.Helper()
	if nats == "" {
		nats = r.nats
	}
	if database == "" {
		database = r.database
	}
	p := &faultProcess{t: r.t, name: name, log: &faultLog{}, done: make(chan struct{})}
	p.cmd = exec.Command(faultProgram(r.t), "serve", "--roles", roles, "--config", r.config, "--nats", nats, "--database", database,
		"--http", strings.TrimPrefix(r.api, "http://"), "--log-format", "json")
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = r.dir, p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(r.t, p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	r.t.Cleanup(p.finish)
	return p
}

// finish ends the process with the test, and tells what it logged if the test
// has failed.
func (p *faultProcess) finish() {
	if p.running() {
		p.kill()
	}
	if p.t.Failed() {
		p.t.Logf("the log of %s ends:\n%s", p.name, p.log.tail(30))
	}
}

func (p *faultProcess) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig, SIGKILL to end the process at once.
func (p *faultProcess) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("send %v to %s: %v", sig, p.name, err)
	}
}

// kill is kill -9, and waits for the end.
func (p *faultProcess) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait()
}

func (p *faultProcess) wait() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(faultPatience):
		p.t.Errorf("%s does not end", p.name)
	}
}

// stop asks the process to end, which it has to do without an error.
func (p *faultProcess) stop() {
	p.t.Helper()
	require.True(p.t, p.running(), "%s has ended by itself: %v", p.name, p.err)
	p.signal(syscall.SIGTERM)
	p.wait()
	require.NoError(p.t, p.err, p.name)
}

// requireRunning fails the test if one of the processes has ended.
func requireRunning(t *testing.T, processes ...*faultProcess) {
	t.Helper()
	for _, p := range processes {
		require.True(t, p.running(), "%s has ended by itself: %v", p.name, p.err)
	}
}

// awaitReady waits until the API says that it is ready.
func (r *faultRig) awaitReady(api *faultProcess) {
	r.t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	testenv.Eventually(r.t, faultPatience, func() (bool, string) {
		if !api.running() {
			r.t.Fatalf("%s has ended: %v\n%s", api.name, api.err, api.log.tail(30))
		}
		res, err := client.Get(r.api + "/readyz")
		if err != nil {
			return false, err.Error()
		}
		defer res.Body.Close()
		return res.StatusCode == http.StatusOK, res.Status
	})
}

// A faultLog keeps a process's lines, with the time at which they came.
type faultLog struct {
	mu    sync.Mutex
	rest  []byte
	lines []faultLine
}

type faultLine struct {
	at   time.Time
	text string
}

func (l *faultLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 {
			return len(p), nil
		}
		l.lines = append(l.lines, faultLine{time.Now(), string(l.rest[:end])})
		l.rest = l.rest[end+1:]
	}
}

// since returns the lines that came after a moment.
func (l *faultLog) since(at time.Time) []faultLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.lines, at, func(line faultLine, at time.Time) int { return line.at.Compare(at) })
	return slices.Clone(l.lines[i:])
}

func (l *faultLog) tail(n int) string {
	lines := l.since(time.Time{})
	var b strings.Builder
	for _, line := range lines[max(0, len(lines)-n):] {
		b.WriteString(line.text)
		b.WriteByte('\n')
	}
	return b.String()
}

// lastOf returns which of the given messages the process logged last, "" for
// none.
func (l *faultLog) lastOf(messages ...string) string {
	for _, line := range slices.Backward(l.since(time.Time{})) {
		if msg := line.member("msg"); slices.Contains(messages, msg) {
			return msg
		}
	}
	return ""
}

// member returns a text member of a line, "" if it has none.
func (l faultLine) member(name string) string {
	var members map[string]any
	if json.Unmarshal([]byte(l.text), &members) != nil {
		return ""
	}
	text, _ := members[name].(string)
	return text
}
