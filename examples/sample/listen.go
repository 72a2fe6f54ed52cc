package main

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/nats-io/nats.go"
)

// A listener hears what workers say about their attempts, as it goes into the
// stream. A worker may say that it knows nothing before or after the ledger has
// seen that by itself; the cases wait for both, so that they always run alike.
type listener struct {
	nc *nats.Conn

	mu    sync.Mutex
	heard map[string]int // completions by job
}

func listen(natsURL string) (*listener, error) {
	nc, err := nats.Connect(natsURL, nats.Name("sample"))
	if err != nil {
		return nil, err
	}
	l := &listener{nc: nc, heard: map[string]int{}}
	if _, err := nc.Subscribe(prefix+".attempt.complete.*", l.hear); err != nil {
		nc.Close()
		return nil, err
	}
	return l, nc.Flush()
}

func (l *listener) hear(m *nats.Msg) {
	var completion struct {
		Job string `json:"job"`
	}
	if json.Unmarshal(m.Data, &completion) != nil {
		return // not a worker of ours
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard[completion.Job]++
}

// await waits until workers have said at least n times how an attempt of the job
// ended.
func (l *listener) await(ctx context.Context, j job, n int) error {
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	return poll(ctx, "a worker's word", func() (bool, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.heard[j.ID] >= n, nil
	})
}

// close is for listeners that were never made, too.
func (l *listener) close() {
	if l != nil {
		l.nc.Close()
	}
}
