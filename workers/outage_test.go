package workers

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// The connection breaks while a call runs, and its acknowledgement is lost: the
// start comes again and is not carried out twice. Then work goes on.
func TestWorkerOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	called, release := make(chan Call, 10), make(chan struct{})
	r := newRig(t, 2, providerFunc(func(_ context.Context, c Call) (Result, error) {
		called <- c
		<-release
		return Result{Body: []byte("1")}, nil
	}))
	proxy := testenv.NewProxy(t, testenv.NATSURL(t))
	nc := testenv.Connect(t, proxy.URL(testenv.NATSURL(t)))
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	r.w.o.JetStream, r.w.timing.ackWait = js, time.Second
	r.start()
	r.publish("a")
	receive(t, called)

	proxy.Cut()
	close(release)
	require.Equal(t, ledger.OutcomeSucceeded, r.completed(1)[0].Outcome)
	r.publish("b")
	proxy.Restore()
	require.Equal(t, ledger.OutcomeSucceeded, r.completed(2)[1].Outcome)
	require.Equal(t, ledger.JobID("acme", "b"), receive(t, called).JobID)
	r.settled()
	require.Empty(t, called)
}

// Run returns if its connection is closed for good.
func TestWorkerEndsWhenItsConnectionIsClosed(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, counted(&calls))
	nc := testenv.NATS(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	r.w.o.JetStream = js
	r.start()
	r.publish("a")
	r.completed(1)
	r.settled()
	nc.Close()
	require.ErrorContains(t, r.stopped(), "the connection was closed")
}

const execChildEnv = "JOBLEDGER_TEST_EXEC_CHILD"

// A worker that is killed takes the running program with it. The test runs
// itself again as that worker.
func TestExecEndsWithTheWorker(t *testing.T) {
	t.Parallel()
	if os.Getenv(execChildEnv) != "" {
		e := shell(t, "echo $$ > "+os.Getenv(execChildEnv)+"; exec sleep 600")
		_, err := e.Call(callContext(t, ample), testCall())
		t.Fatalf("the program ended: %v", err)
	}
	fifo := t.TempDir() + "/pid"
	require.NoError(t, exec.Command("mkfifo", fifo).Run())
	worker := exec.CommandContext(callContext(t, ample), os.Args[0], "-test.run", "^"+t.Name()+"$")
	worker.Env = append(os.Environ(), execChildEnv+"="+fifo)
	require.NoError(t, worker.Start())
	pid := readPid(t, fifo)
	require.True(t, alive(pid))
	require.NoError(t, worker.Process.Kill())
	require.Error(t, worker.Wait())
	testenv.Eventually(t, ample, func() (bool, string) { return !alive(pid), fmt.Sprintf("process %d lives", pid) })
}

func readPid(t *testing.T, fifo string) int {
	t.Helper()
	f, err := os.OpenFile(fifo, os.O_RDWR, 0) // for writing too, so that opening does not wait
	require.NoError(t, err)
	defer f.Close()
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(f).ReadString('\n') // what is missing shows below
		line <- text
	}()
	pid, err := strconv.Atoi(strings.TrimSpace(receive(t, line)))
	require.NoError(t, err)
	return pid
}
