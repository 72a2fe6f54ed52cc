package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// heard is what a waiter was told of its job when the wait was over.
type heard struct {
	job   uuid.UUID
	state string
	at    time.Time
}

// wait waits for a job, again and again on one connection, until it is settled
// or ctx ends.
func (b *waitBench) wait(ctx context.Context, job uuid.UUID, answers chan<- heard) error {
	conn, err := b.dial(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	text := bufio.NewReader(conn)
	for {
		if _, err := conn.Write(b.get("/v1/jobs/" + job.String() + "?wait=60s")); err != nil {
			return ended(ctx, err)
		}
		state, err := readState(text)
		if err != nil {
			return ended(ctx, fmt.Errorf("wait for job %s: %w", job, err))
		}
		if ledger.JobState(state).Settled() {
			answers <- heard{job, state, time.Now()}
			return nil
		}
	}
}

func readState(text *bufio.Reader) (string, error) {
	res, err := http.ReadResponse(text, nil)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", errors.New(res.Status)
	}
	var job struct {
		State string `json:"state"`
	}
	err = json.NewDecoder(res.Body).Decode(&job)
	_, rest := io.Copy(io.Discard, res.Body)
	return job.State, errors.Join(err, rest)
}

func (b *waitBench) dial(ctx context.Context) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp4", b.addr)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

const (
	// stallFor is how long a stalled reader holds its stream before it looks
	// whether it still is one, and begins anew.
	stallFor = 15 * time.Second
	// stallBuffer is what the system may keep of what it does not read, in bytes.
	stallBuffer = 4 << 10
)

// stall follows a job's events and reads none of them, again and again.
func (b *waitBench) stall(ctx context.Context, job uuid.UUID, dropped, kept *atomic.Int64) error {
	for ctx.Err() == nil {
		conn, err := b.dial(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		cut, err := b.stallOnce(ctx, conn, job)
		conn.Close()
		switch {
		case err != nil:
			return ended(ctx, err)
		case cut:
			dropped.Add(1)
		default:
			kept.Add(1)
		}
	}
	return nil
}

// stallOnce returns whether the stream had been cut when it looked.
func (b *waitBench) stallOnce(ctx context.Context, conn *net.TCPConn, job uuid.UUID) (cut bool, err error) {
	if err := conn.SetReadBuffer(stallBuffer); err != nil {
		return false, err
	}
	if _, err := conn.Write(b.get("/v1/jobs/" + job.String() + "/events")); err != nil {
		return false, err
	}
	select {
	case <-ctx.Done():
	case <-time.After(stallFor):
	}
	if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		return false, err
	}
	_, err = io.Copy(io.Discard, conn)
	var network net.Error
	return !errors.As(err, &network) || !network.Timeout(), nil
}

// churn changes the hot jobs, one after the other: an attempt of theirs is
// cancelled, another is asked for.
func (b *waitBench) churn(ctx context.Context) error {
	tick := time.NewTicker(churnEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		job := b.hot[b.wishes/2%hotJobs]
		number := b.wishes/2/hotJobs + 1
		if number >= ledger.MaxAttemptsPerJob {
			return nil // they have changed as often as they can
		}
		var body ledger.Body = &ledger.Resolution{Job: job, Attempt: number, As: ledger.OutcomeCancelled, Reason: "to change something"}
		if b.wishes%2 == 1 {
			body = &ledger.AttemptAsk{Job: job, Key: strconv.Itoa(number), Force: true}
		}
		if err := b.say(context.WithoutCancel(ctx), body); err != nil {
			return err
		}
		b.wishes++
	}
}
