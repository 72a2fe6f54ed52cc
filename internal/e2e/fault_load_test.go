package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

const (
	faultProducers = 8
	// faultRetry is how long a producer waits before it repeats a request that
	// was not acknowledged. The API asks for a second; these are in a hurry.
	faultRetry = 200 * time.Millisecond
)

// A faultLoad is producers that submit one job after the other over HTTP, each
// repeating a request with the same key until it is acknowledged, as callers
// are told to.
type faultLoad struct {
	t      *testing.T
	url    string
	client *http.Client
	ctx    context.Context
	end    context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	acked    map[string]string // ids of acknowledged jobs, with their keys
	answers  map[int]int       // by HTTP status
	refusals []string          // answers that no fault excuses
}

// startLoad starts producers that each submit about one job in the given time,
// or fewer if the answers take longer. They end with the test.
func (r *faultRig) startLoad(api *process, every time.Duration) *faultLoad {
	l := &faultLoad{
		t: r.t, url: api.url,
		client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: faultProducers}},
		acked:  map[string]string{}, answers: map[int]int{},
	}
	l.ctx, l.end = context.WithCancel(context.Background())
	for p := range faultProducers {
		l.done.Go(func() { l.produce(p, every) })
	}
	r.t.Cleanup(l.stop)
	return l
}

// stop ends the producers, whatever they are waiting for: a request that is
// then unanswered was not acknowledged. It may be called again.
func (l *faultLoad) stop() {
	l.end()
	l.done.Wait()
	l.client.CloseIdleConnections()
}

func (l *faultLoad) produce(producer int, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; l.ctx.Err() == nil; n++ {
		key := fmt.Sprintf("p%d-%d", producer, n)
		for !l.submit(key) && l.pause(faultRetry) {
		}
		select {
		case <-tick.C:
		case <-l.ctx.Done():
		}
	}
}

func (l *faultLoad) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// submit sends one request and reports whether it was acknowledged.
func (l *faultLoad) submit(key string) bool {
	body := fmt.Sprintf(`{"kind":%q,"input":{"key":%q}}`, faultKind, key)
	req, err := http.NewRequestWithContext(l.ctx, http.MethodPost, l.url+"/v1/jobs", bytes.NewBufferString(body))
	if err != nil {
		l.refuse(err.Error())
		return true
	}
	req.Header.Set("Ledger-Owner", faultOwner)
	req.Header.Set("Idempotency-Key", key)
	res, err := l.client.Do(req)
	if err != nil { // the API is down, or the load ends
		return false
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	if err != nil {
		return false
	}
	return l.take(key, res, answer)
}

func (l *faultLoad) take(key string, res *http.Response, answer []byte) (acknowledged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[res.StatusCode]++
	switch res.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted:
	case http.StatusServiceUnavailable:
		return false
	default:
		l.refusals = append(l.refusals, fmt.Sprintf("%s: %s %s", key, res.Status, answer))
		return true
	}
	id := res.Header.Get("Ledger-Job-Id")
	if want := ledger.JobID(faultOwner, key).String(); id != want {
		l.refusals = append(l.refusals, fmt.Sprintf("%s: acknowledged as job %q; expected %s", key, id, want))
	}
	l.acked[id] = key
	return true
}

func (l *faultLoad) refuse(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusals = append(l.refusals, why)
}

// acknowledged returns how many jobs were acknowledged so far.
func (l *faultLoad) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// jobs returns the acknowledged jobs and their keys.
func (l *faultLoad) jobs() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.acked)
}

// byStatus returns how many answers of each HTTP status came so far.
func (l *faultLoad) byStatus() map[int]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.answers)
}

// awaitMore waits until n more jobs have been acknowledged.
func (l *faultLoad) awaitMore(n int) {
	l.t.Helper()
	want := l.acknowledged() + n
	testenv.Eventually(l.t, faultPatience, func() (bool, string) {
		now := l.acknowledged()
		return now >= want, fmt.Sprintf("%d of %d jobs are acknowledged; answers so far: %v", now, want, l.byStatus())
	})
}

// requireNoRefusals fails the test if an answer was neither an acknowledgement
// nor 503.
func (l *faultLoad) requireNoRefusals() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(l.t, l.refusals, "answers that no fault excuses")
}
