package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/testenv"
)

// spoolWorld is a ledger on a NATS server of the test's own, whose workers have
// a spool.
func spoolWorld(t *testing.T) (*world, *stub, *testenv.NATSProcess) {
	t.Helper()
	nats := testenv.StartNATS(t, natsserver.Options{SyncAlways: true})
	main := newStub(t, "main")
	w := newWorld(t, setup{nats: nats.URL(), yaml: "workers: {spool: spool}\n" + oneKind("attempt_timeout: 10m", main)})
	w.attach(main)
	return w, main, nats
}

// spooled waits until so many completions are in the spool.
func (w *world) spooled(n int) {
	w.t.Helper()
	testenv.Eventually(w.t, patience, func() (bool, string) {
		found, err := filepath.Glob(filepath.Join(w.dir, "spool", "worker-main", "*.completion"))
		return err == nil && len(found) == n, fmt.Sprintf("the spool has %v (%v), expected %d", found, err, n)
	})
}

// TestCompletionsOutliveTheWorker kills NATS while calls run and ends the worker
// before NATS is back: in an orderly way, which it survives with status 0, and by
// SIGKILL. Either way the results are there when both are back, with one call for
// each job.
func TestCompletionsOutliveTheWorker(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, main, nats := spoolWorld(t)
			served, worker := w.serve("api,projector"), w.serve("worker")
			w.apply()
			c := served.client("acme")
			a, b := c.create("a", pay(`"stall"`)), c.create("b", pay(`"stall"`))
			main.arrived(a, 1)
			main.arrived(b, 1)

			nats.Kill()
			main.release(a)
			w.spooled(1)
			if signal == syscall.SIGKILL {
				main.release(b)
				w.spooled(2)
				worker.kill()
			} else {
				worker.terminate()
				main.release(b) // a call may go on while the worker is told to end
				w.spooled(2)
				worker.stop()
			}
			nats.Restart()
			worker.start()
			for _, id := range []string{a, b} {
				job := c.finished(id, "succeeded")
				require.Equal(t, "1", job.text("completed_by"))
				require.Equal(t, `{"attempt":1,"by":"main"}`, job.text("result"))
				require.Equal(t, 1, main.count(id))
			}
			w.spooled(0)
			w.verify()
		})
	}
}

// Two processes on one spool would append and remove each other's files.
func TestASpoolIsOneProcesss(t *testing.T) {
	t.Parallel()
	w, _, _ := spoolWorld(t)
	gone := filepath.Join(w.dir, "spool", "worker-gone")
	require.NoError(t, os.MkdirAll(gone, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(gone, "x.completion"), nil, 0o600))
	worker := w.serve("worker")
	testenv.Eventually(t, patience, func() (bool, string) { // the spool is its own from then on
		text := worker.log.String()
		return strings.Contains(text, "completions wait in the spool for a provider that this process does not serve"), text
	})
	testenv.Eventually(t, patience, func() (bool, string) {
		out := w.run("serve", "--roles", "worker", "--spool", filepath.Join(w.dir, "spool"))
		held := out.code == 4 && strings.Contains(out.stderr, fmt.Sprintf("in use by process %d", worker.cmd.Process.Pid))
		return held, out.stderr
	})
	w.serve("worker", func(p *process) { p.args = append(p.args, "--spool", filepath.Join(w.dir, "another")) })
	testenv.Eventually(t, patience, func() (bool, string) {
		consumer, err := w.js.Consumer(w.ctx(), w.stream, "worker-main")
		if err != nil {
			return false, err.Error()
		}
		return consumer.CachedInfo().NumWaiting == 2, "both do not pull"
	})
}
