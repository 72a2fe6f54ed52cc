package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
)

const (
	readyWithin = time.Minute
	stopWithin  = time.Minute
	// logTail is how much of a process's log a failed test shows, in bytes.
	logTail = 16 << 10
)

// A process is `jobledger serve` with some roles.
type process struct {
	w     *world
	roles string
	args  []string
	env   []string
	url   string // of the API, the same over restarts; "" without that role

	cmd    *exec.Cmd
	log    logBuffer     // of all its lives
	lives  int           // in which its projector had been at work before this one
	done   chan struct{} // closed when cmd has ended
	asked  bool          // it was told to end
	frozen bool
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// A serveOption changes how a process is served.
type serveOption func(*process)

// viaNATS makes a process reach NATS at another URL, such as a proxy's.
func viaNATS(url string) serveOption {
	return func(p *process) { p.args = append(p.args, "--nats", url) }
}

// viaDatabase makes a process reach the database at another URL.
func viaDatabase(url string) serveOption {
	return func(p *process) { p.env = p.w.environment(url) }
}

// serve starts a process with the given roles, such as "api,worker", and waits
// until it is ready. It ends with the test.
func (w *world) serve(roles string, options ...serveOption) *process {
	w.t.Helper()
	p := &process{w: w, roles: roles, args: []string{"serve", "--roles", roles}, env: w.environment(w.database)}
	if p.has("api") {
		address := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(w.t))
		p.url = "http://" + address
		p.args = append(p.args, "--http", address)
	}
	for _, o := range options {
		o(p)
	}
	w.processes = append(w.processes, p)
	p.start()
	return p
}

func (p *process) has(role string) bool { return slices.Contains(strings.Split(p.roles, ","), role) }

// start starts the process, for the first time or again, and waits until it is
// ready.
func (p *process) start() {
	p.w.t.Helper()
	p.launch()
	p.awaitReady()
}

// launch is start without the wait.
func (p *process) launch() {
	p.w.t.Helper()
	path, err := p.w.executable()
	require.NoError(p.w.t, err)
	cmd := exec.Command(path, p.args...)
	cmd.Dir, cmd.Env = p.w.dir, p.env
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	// A process of its own group, which a panic of the tests ends as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.lives = strings.Count(p.log.String(), projectorReady)
	require.NoError(p.w.t, cmd.Start())
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its status is looked at by stop
		close(done)
	}()
	p.cmd, p.done, p.asked, p.frozen = cmd, done, false, false
}

// awaitReady waits until the API says that it is ready, or the projector that it
// projects. A worker has nothing to wait for: its starts wait for it.
func (p *process) awaitReady() {
	p.w.t.Helper()
	testenv.Eventually(p.w.t, readyWithin, func() (bool, string) {
		if p.ended() {
			p.w.t.Fatalf("serve --roles %s ended before it was ready:\n%s", p.roles, p.log.String())
		}
		switch {
		case p.has("api"):
			return p.answersReady(), "/readyz of serve --roles " + p.roles + " is not 200"
		case p.has("projector"):
			text := p.log.String()
			return strings.Count(text, projectorReady) > p.lives || strings.Contains(text, "standing by"), "the projector does not project:\n" + text
		}
		return true, ""
	})
}

// projectorReady is what a projector's log says when it is at work.
const projectorReady = "msg=projecting"

func (p *process) answersReady() bool {
	resp, err := probe.Get(p.url + "/readyz")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// probe asks without keeping connections.
var probe = &http.Client{
	Timeout:   5 * time.Second,
	Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext},
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.w.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.w.t.Errorf("send %v to serve --roles %s: %v", sig, p.roles, err)
	}
}

// terminate asks the process to stop; stop waits for it.
func (p *process) terminate() {
	p.w.t.Helper()
	p.thaw()
	if p.asked {
		return // a second signal would end it at once
	}
	p.asked = true
	p.signal(syscall.SIGTERM)
}

// stop asks the process to stop, and waits until it has ended with status 0.
func (p *process) stop() {
	p.w.t.Helper()
	early := p.ended() && !p.asked
	p.terminate()
	select {
	case <-p.done:
	case <-time.After(stopWithin):
		p.w.t.Errorf("serve --roles %s has not stopped within %s", p.roles, stopWithin)
		p.kill()
		return
	}
	if early || p.cmd.ProcessState.ExitCode() != 0 && !p.wasKilled() {
		p.w.t.Errorf("serve --roles %s ended with %v (before it was asked to: %v)", p.roles, p.cmd.ProcessState, early)
	}
}

func (p *process) wasKilled() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// kill ends the process as a crash would, and waits until it is gone.
func (p *process) kill() {
	p.w.t.Helper()
	p.asked = true
	p.signal(syscall.SIGKILL)
	<-p.done
}

// restart stops the process if it runs, and starts it again.
func (p *process) restart() {
	p.w.t.Helper()
	if !p.ended() {
		p.stop()
	}
	p.start()
}

// freeze stops the process in its tracks, and returns when each of its threads
// stands still. The test's end thaws it.
func (p *process) freeze() {
	p.w.t.Helper()
	p.signal(syscall.SIGSTOP)
	p.frozen = true
	testenv.Eventually(p.w.t, patience, func() (bool, string) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			return false, fmt.Sprintf("the process has no threads to be seen: %v", err)
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if err == nil && !bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" T")) {
				return false, fmt.Sprintf("%s still runs: %s", thread, stat)
			}
		}
		return true, ""
	})
}

// thaw lets a frozen process go on.
func (p *process) thaw() {
	p.w.t.Helper()
	if p.frozen {
		p.signal(syscall.SIGCONT)
		p.frozen = false
	}
}

// stopAll ends what still runs, and shows the logs of a test that failed.
func (w *world) stopAll() {
	for _, s := range w.stubs {
		s.releaseAll()
	}
	for _, p := range w.processes {
		if !p.ended() {
			p.terminate()
		}
	}
	for _, p := range w.processes {
		p.stop()
	}
	if !w.t.Failed() {
		return
	}
	for i, p := range w.processes {
		text := p.log.String()
		w.t.Logf("log of process %d, serve --roles %s:\n%s", i, p.roles, text[max(0, len(text)-logTail):])
	}
}
