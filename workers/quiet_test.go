package workers

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAQuietPullIsBegunAnew: pulls end and begin all the time while starts come
// now and then; each is called once, and none is left to wait for the ack wait.
func TestAQuietPullIsBegunAnew(t *testing.T) {
	t.Parallel()
	const starts = 60
	var calls atomic.Int32
	r := newRig(t, 2, providerFunc(func(context.Context, Call) (Result, error) {
		calls.Add(1)
		return Result{Body: []byte(`1`)}, nil
	}))
	r.w.timing.quiet = 5 * time.Millisecond
	r.start()
	began := time.Now()
	pace := time.NewTicker(13 * time.Millisecond)
	defer pace.Stop()
	for i := range starts {
		<-pace.C
		r.publish(fmt.Sprint("job ", i))
	}
	require.Len(t, r.completed(starts), starts)
	require.EqualValues(t, starts, calls.Load())
	require.Less(t, time.Since(began), r.w.timing.ackWait)
	r.settled()
}
