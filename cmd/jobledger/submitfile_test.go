package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

// A fakeAPI answers POST /v1/jobs as a test says, and keeps what it has seen.
type fakeAPI struct {
	*httptest.Server
	mu    sync.Mutex
	calls []string // "<owner> <key> <body>"
}

func newFakeAPI(t *testing.T, answer func(call int, w http.ResponseWriter, r *http.Request)) *fakeAPI {
	t.Helper()
	f := &fakeAPI{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		f.mu.Lock()
		f.calls = append(f.calls, fmt.Sprintf("%s %s %s", r.Header.Get("Ledger-Owner"), r.Header.Get("Idempotency-Key"), body))
		n := len(f.calls)
		f.mu.Unlock()
		answer(n, w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeAPI) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// submitLines runs submit --file - in this process.
func (f *fakeAPI) submitLines(ctx context.Context, lines io.Reader, args ...string) (report submitReport, stderr string, code int) {
	var out, errOut bytes.Buffer
	c := newCLI(lines, &out, &errOut)
	code = c.execute(ctx, append([]string{"submit", "--file", "-", "--owner", "acme", "--kind", "echo", "--api", f.URL, "-o", "json"}, args...))
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		panic(fmt.Sprintf("%v in %q; %s", err, &out, &errOut))
	}
	return report, errOut.String(), code
}

func created(w http.ResponseWriter) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{}`)
}

func problemAnswer(w http.ResponseWriter, status int, name string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type":"urn:jobledger:problem:%s","status":%d,"detail":"because"}`, name, status)
}

func manyLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"key":"k%d","input":{"n":%d}}`+"\n", i%50, i)
	}
	return b.String()
}

// Lines with the same key arrive one after the other and in their order, as
// many others as allowed at the same time.
func TestSubmitFileOrderAndConcurrency(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	inFlight, most := 0, 0
	full := make(chan struct{})
	f := newFakeAPI(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		inFlight++
		if most = max(most, inFlight); most == 4 && inFlight == 4 {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		<-full // nobody goes on before all four are here
		mu.Lock()
		inFlight--
		mu.Unlock()
		created(w)
	})
	report, stderr, code := f.submitLines(t.Context(), strings.NewReader(manyLines(500)), "--concurrency", "4")
	require.Zero(t, code, stderr)
	require.Equal(t, submitReport{Lines: 500, New: 500, Complete: true, Faults: []lineFault{}}, report)
	require.Equal(t, 4, most)
	last := map[string]int{}
	for _, call := range f.seen() {
		var key string
		var n int
		_, err := fmt.Sscanf(call, `acme %s {"input":{"n":%d},"kind":"echo"}`, &key, &n)
		require.NoError(t, err, call)
		require.GreaterOrEqual(t, n, last[key], "%s came out of order", key)
		last[key] = n
	}
}

// What may pass is waited for, a line at a time.
func TestSubmitFileRepeats(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, func(call int, w http.ResponseWriter, _ *http.Request) {
		switch call {
		case 1:
			problemAnswer(w, http.StatusServiceUnavailable, "append-unconfirmed")
		case 2:
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, `{"id":"x","seq":7}`)
		default:
			w.Header().Set("Idempotent-Replayed", "true")
			fmt.Fprint(w, `{}`)
		}
	})
	report, stderr, code := f.submitLines(t.Context(), strings.NewReader(`{"key":"k","input":1}`))
	require.Zero(t, code, stderr)
	require.Equal(t, 1, report.Existing)
	calls := f.seen()
	require.Len(t, calls, 3)
	require.Equal(t, calls[0], calls[2], "every repetition is the same request")
}

// What does not pass stops the run, with the status that says why.
func TestSubmitFileStops(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		name   string
		code   int
	}{
		"unreachable":    {http.StatusServiceUnavailable, "not-appended", exitUnreachable},
		"no decision":    {http.StatusAccepted, "", exitTimedOut},
		"no such token":  {http.StatusUnauthorized, "unauthorized", exitRefused},
		"not an API":     {http.StatusNotFound, "not-found", exitNotFound},
		"a broken API":   {http.StatusInternalServerError, "internal", exitFailed},
		"a redirect":     {http.StatusFound, "x", exitFailed},
		"another server": {http.StatusTeapot, "x", exitOK}, // a refusal of the line; below
	} {
		f := newFakeAPI(t, func(call int, w http.ResponseWriter, _ *http.Request) {
			if call == 1 {
				created(w)
				return
			}
			problemAnswer(w, tc.status, tc.name)
		})
		report, stderr, code := f.submitLines(t.Context(), strings.NewReader(manyLines(20)), "--concurrency", "1", "--retry-for", "0")
		if tc.code == exitOK {
			require.Equal(t, exitRefused, code, name)
			require.Equal(t, 19, report.Refused, name)
			continue
		}
		require.Equal(t, tc.code, code, "%s: %s", name, stderr)
		require.Equal(t, 1, report.New, name)
		require.False(t, report.Complete, name)
		require.NotZero(t, report.Unfinished, name)
		require.Len(t, f.seen(), 2, name)
		require.Contains(t, stderr, "the same command again", name)
	}
}

// An interruption ends the run at once, although nothing comes from the pipe
// that it reads, and says what was done.
func TestSubmitFileInterrupted(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, func(_ int, w http.ResponseWriter, _ *http.Request) { created(w) })
	from, to := io.Pipe()
	t.Cleanup(func() { require.NoError(t, to.Close()) })
	ctx, cancel := context.WithCancel(t.Context())
	type end struct {
		report submitReport
		stderr string
		code   int
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		e.report, e.stderr, e.code = f.submitLines(ctx, from)
		ended <- e
	}()
	_, err := io.WriteString(to, `{"key":"k","input":1}`+"\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(f.seen()) == 1 }, 10*time.Second, time.Millisecond)
	cancel()
	select {
	case e := <-ended:
		require.Equal(t, exitFailed, e.code)
		require.Equal(t, 1, e.report.Lines)
		require.False(t, e.report.Complete)
		require.Contains(t, e.stderr, "interrupted")
	case <-time.After(20 * time.Second):
		require.Fail(t, "it has not ended")
	}
}

// A run that is killed is repeated, and every line is one job in the end.
func TestSubmitFileKilled(t *testing.T) {
	t.Parallel()
	dev := shared.get(t)
	const all, before = 200, 80
	var lines []string
	for i := range all {
		lines = append(lines, fmt.Sprintf(`{"owner":"killed","key":"k%d","kind":"echo","input":{"n":%d},"delay":"1h"}`, i, i))
	}
	args := []string{"submit", "--file", "-", "--data", dev.dir, "--concurrency", "8", "-o", "json"}
	cmd := program(args...)
	cmd.Dir = t.TempDir()
	to, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.WriteString(to, strings.Join(lines[:before], "\n")+"\n")
	require.NoError(t, err)
	stored := func() int {
		out, stderr, code := result(t, "job", "list", "--data", dev.dir, "--owner", "killed", "--limit", "500", "-o", "json")
		require.Zero(t, code, stderr)
		return strings.Count(out, `"owner":"killed"`)
	}
	testenv.Eventually(t, 30*time.Second, func() (bool, string) { return stored() > 0, "no line is stored" })
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	again := func() (report submitReport) {
		cmd := program(args...)
		cmd.Dir = t.TempDir()
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
		out, err := cmd.Output()
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(out, &report))
		require.True(t, report.Complete)
		return report
	}
	report := again()
	require.Equal(t, all, report.New+report.Existing)
	require.NotZero(t, report.Existing)
	require.NotZero(t, report.New)
	require.Equal(t, all, again().Existing)
	require.Equal(t, all, stored())
}

// An address at which nothing answers is a wrong one at first; once something
// has answered there, whatever it said, it is waited for.
func TestSubmitFileWrongAddress(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		problemAnswer(w, http.StatusConflict, "idempotency-conflict")
	})
	b := &batch{api: &apiClient{base: f.URL, http: f.Client()}}
	refused := exitWith(exitUnreachable, "x: %w", &net.OpError{Op: "dial", Err: errors.New("refused")})
	require.False(t, b.passing(refused))
	require.True(t, b.passing(exitWith(exitUnreachable, "the connection was lost")))
	outcome, err := b.try(t.Context(), intent{owner: "acme", key: "k"})
	require.Equal(t, lineConflicting, outcome)
	require.Error(t, err)
	require.True(t, b.passing(refused))
}
