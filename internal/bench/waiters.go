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
	"syscall"
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
	conn, err := b.dial(ctx, 0)
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

// dial connects to the API; receive is what the system may keep of what is not
// read, in bytes, 0 for its default.
func (b *waitBench) dial(ctx context.Context, receive int) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// Later would be too late: the window that was offered holds.
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		if receive == 0 {
			return nil
		}
		var err error
		control := raw.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, receive)
		})
		return errors.Join(control, err)
	}}
	conn, err := d.DialContext(ctx, "tcp4", b.addr)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

const (
	// stallFor is how long a stalled reader holds its stream before it looks
	// whether it still is one, and begins anew.
	stallFor = 20 * time.Second
	// stallBuffer is what the system may keep of what it does not read, in bytes.
	stallBuffer = 4 << 10
)

// stall follows a job's events and reads none of them, again and again.
func (b *waitBench) stall(ctx context.Context, job uuid.UUID, dropped, kept *atomic.Int64) error {
	for ctx.Err() == nil {
		conn, err := b.dial(ctx, stallBuffer)
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

// A hotJob changes all the time.
type hotJob struct {
	id      uuid.UUID
	changes int
}

// churn changes a job again and again: its attempt is cancelled, another is
// asked for.
func (b *waitBench) churn(ctx context.Context, job *hotJob) error {
	tick := time.NewTicker(churnEvery)
	defer tick.Stop()
	for number := job.changes/2 + 1; number < ledger.MaxAttemptsPerJob; number = job.changes/2 + 1 {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var body ledger.Body = &ledger.Resolution{Job: job.id, Attempt: number, As: ledger.OutcomeCancelled, Reason: "to change something"}
		if job.changes%2 == 1 {
			body = &ledger.AttemptAsk{Job: job.id, Key: strconv.Itoa(number), Force: true}
		}
		if err := b.say(context.WithoutCancel(ctx), body); err != nil {
			return err
		}
		job.changes++
	}
	return nil
}
