package publisher_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
	"jobledger/publisher"
)

// notes is an Observer that writes down what it is told.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}

func (n *notes) Appended(subject string, ack publisher.Ack, err error, took time.Duration) {
	n.add("appended %s duplicate=%v lost=%v timed=%v", subject, ack.Duplicate, errors.Is(err, publisher.ErrNotAppended), took > 0)
}

func (n *notes) Decided(subject string, answer ledger.Answer, err error, took time.Duration) {
	n.add("decided %s %q undecided=%v timed=%v", subject, answer.Decision, errors.Is(err, publisher.ErrNoDecision), took > 0)
}

// TestObserverLearnsOfEveryEnd: what is stored, stored before, not stored and
// not decided is told once each, with the subject as the ledger knows it.
func TestObserverLearnsOfEveryEnd(t *testing.T) {
	t.Parallel()
	js, name, prefix := testenv.Stream(t)
	projector(t, js, name, func(_ uint64, msg jetstream.Msg) (ledger.Answer, bool) {
		return ledger.Answer{Decision: ledger.Accepted}, !strings.Contains(string(msg.Data()), "silent")
	})
	n := &notes{}
	nc := testenv.NATS(t)
	a := newAppender(t, nc, publisher.Options{Stream: name, SubjectPrefix: prefix, Observer: n})
	c, err := publisher.NewClient(nc, a, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })

	_, err = c.Decide(testContext(t), request("heard"))
	require.NoError(t, err)
	require.Equal(t, []string{"appended job.request duplicate=false lost=false timed=true",
		`decided job.request "accepted" undecided=false timed=true`}, n.take())

	_, err = c.Append(testContext(t), request("heard"))
	require.NoError(t, err)
	require.Equal(t, []string{"appended job.request duplicate=true lost=false timed=true"}, n.take())

	short, cancel := context.WithTimeout(testContext(t), 300*time.Millisecond)
	defer cancel()
	_, err = c.Decide(short, request("silent"))
	require.ErrorIs(t, err, publisher.ErrNoDecision)
	require.Equal(t, []string{"appended job.request duplicate=false lost=false timed=true",
		`decided job.request "" undecided=true timed=true`}, n.take())

	require.NoError(t, c.Close())
	_, err = c.Decide(testContext(t), request("late"))
	require.ErrorIs(t, err, publisher.ErrNotAppended)
	require.Equal(t, []string{`decided job.request "" undecided=false timed=true`}, n.take())
	require.NoError(t, a.Close(testContext(t)))
	_, err = a.Append(testContext(t), request("later"), "")
	require.ErrorIs(t, err, publisher.ErrClosed)
	require.Equal(t, []string{"appended job.request duplicate=false lost=true timed=true"}, n.take())
}
