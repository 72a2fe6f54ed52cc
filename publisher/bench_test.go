package publisher_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/testenv"
	"jobledger/ledger"
	"jobledger/publisher"
)

// BenchmarkAppend measures appends of 400-byte bodies by 2,000 callers at once.
// cpu-µs/op is what the whole process used, the server in it included.
func BenchmarkAppend(b *testing.B) {
	for _, always := range []bool{true, false} {
		for _, inProcess := range []bool{true, false} {
			for _, mode := range []publisher.Mode{publisher.Grouped, publisher.Single} {
				for _, batches := range []int{1, 2, 4} {
					if mode == publisher.Single && batches != 1 {
						continue
					}
					name := fmt.Sprintf("always=%t/inprocess=%t/single=%t/batches=%d", always, inProcess, mode == publisher.Single, batches)
					b.Run(name, func(b *testing.B) {
						benchmarkAppend(b, always, inProcess, publisher.Options{Mode: mode, Batches: batches})
					})
				}
			}
		}
	}
}

func benchmarkAppend(b *testing.B, always, inProcess bool, o publisher.Options) {
	const callers = 2000
	server, err := natsserver.Start(natsserver.Options{Dir: b.TempDir(), SyncAlways: always})
	require.NoError(b, err)
	b.Cleanup(func() { _ = server.Stop(context.Background()) })
	var options []nats.Option
	if inProcess {
		options = append(options, server.InProcessConn())
	}
	nc := testenv.Connect(b, server.URL(), options...)
	_, o.Stream, o.SubjectPrefix = testenv.StreamOn(b, nc)
	a, err := publisher.NewAppender(nc, o)
	require.NoError(b, err)
	input := append(append([]byte{'"'}, bytes.Repeat([]byte("x"), 300)...), '"')

	next := make(chan int, callers)
	var wg sync.WaitGroup
	failures := make(chan error, callers)
	started, used := time.Now(), processCPU(b)
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for i := range next {
				m := (&ledger.Request{Owner: "bench", Key: fmt.Sprint("key-", i), Kind: "echo", Input: input}).Message()
				if _, err := a.Append(context.Background(), m, "_INBOX.reply"); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	for i := range b.N {
		next <- i
	}
	close(next)
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(started).Seconds(), "appends/s")
	b.ReportMetric(float64((processCPU(b)-used).Microseconds())/float64(b.N), "cpu-µs/op")
	require.NoError(b, a.Close(context.Background()))
	select {
	case err := <-failures:
		b.Fatal(err)
	default:
	}
}

// processCPU is the processor time that this process has used.
func processCPU(b *testing.B) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
