package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// A faultOutcome is what the tables say once everything is quiet.
type faultOutcome struct {
	jobs     map[string]string       // states by id
	attempts map[faultAttempt]string // states
	byState  map[string]int          // jobs
}

// awaitQuiet waits until every acknowledged job is in the tables, every job has
// ended or is unknown, and the tables have reached the stream's end. So it fails
// if something acknowledged was lost, or if something is stuck.
func (r *faultRig) awaitQuiet(l *faultLoad) *faultOutcome {
	r.t.Helper()
	acked := l.jobs()
	testenv.Eventually(r.t, faultPatience, func() (bool, string) {
		o, err := r.outcome()
		if err != nil {
			return false, err.Error()
		}
		for id, key := range acked {
			if o.jobs[id] == "" {
				return false, fmt.Sprintf("the job %s (key %s) was acknowledged and is not in the tables; jobs: %v", id, key, o.byState)
			}
		}
		if open := o.byState["waiting"] + o.byState["running"]; open > 0 {
			return false, fmt.Sprintf("%d jobs have not ended: %v; such as %s", open, o.byState, r.describeOpen())
		}
		return true, ""
	})
	r.awaitProgress(faultPatience, "everything has ended")
	o, err := r.outcome()
	require.NoError(r.t, err)
	return o
}

func (r *faultRig) outcome() (*faultOutcome, error) {
	ctx, cancel := contextFor(20 * time.Second)
	defer cancel()
	o := &faultOutcome{jobs: map[string]string{}, attempts: map[faultAttempt]string{}, byState: map[string]int{}}
	rows, err := r.pool.Query(ctx, "SELECT id::text, state FROM ledger.jobs")
	if err != nil {
		return nil, err
	}
	var id, state string
	if _, err := pgx.ForEachRow(rows, []any{&id, &state}, func() error {
		o.jobs[id] = state
		o.byState[state]++
		return nil
	}); err != nil {
		return nil, err
	}
	rows, err = r.pool.Query(ctx, "SELECT job_id::text, number, state FROM ledger.attempts")
	if err != nil {
		return nil, err
	}
	var a faultAttempt
	_, err = pgx.ForEachRow(rows, []any{&a.job, &a.number, &state}, func() error {
		o.attempts[a] = state
		return nil
	})
	return o, err
}

// describeOpen shows a job that has not ended, for messages.
func (r *faultRig) describeOpen() string {
	ctx, cancel := contextFor(5 * time.Second)
	defer cancel()
	var text string
	err := r.pool.QueryRow(ctx, `SELECT concat_ws(' ', j.id, j.state, j.state_reason, 'attempt', a.number, a.state, 'by', a.worker,
		'requested', a.requested_at, 'started', a.started_at, 'deadline', a.deadline)
		FROM ledger.jobs AS j LEFT JOIN ledger.attempts AS a ON a.job_id = j.id
		WHERE j.state IN ('waiting', 'running') ORDER BY j.id, a.number DESC LIMIT 1`).Scan(&text)
	if err != nil {
		return err.Error()
	}
	return text
}

// requireSound checks what must hold after any fault: the tables are the fold of
// the stream, and the provider saw each job at most once. The latter is more
// than "each attempt at most once": an attempt that reached this provider ends as
// succeeded or as unknown, and neither may be followed by another.
func (r *faultRig) requireSound(o *faultOutcome) {
	r.t.Helper()
	r.verify()
	for _, p := range r.processes {
		require.NotContains(r.t, p.log.String(), "slow consumer", "serve --roles %s dropped what NATS had delivered", p.roles)
	}
	callsOfJob := map[string]int{}
	for a, calls := range r.stub.counts() {
		require.Equal(r.t, 1, calls, "wire calls of the attempt %v", a)
		callsOfJob[a.job]++
		require.Contains(r.t, []string{"succeeded", "unknown"}, o.attempts[a],
			"the attempt %v reached the provider, so that it cannot be in this state", a)
	}
	for job, calls := range callsOfJob {
		require.Equal(r.t, 1, calls, "wire calls of the job %s, over its attempts", job)
	}
	for a, state := range o.attempts {
		if state == "succeeded" {
			require.Equal(r.t, 1, callsOfJob[a.job], "wire calls of the attempt %v, which succeeded", a)
		}
	}
}

// requireAllSucceeded is for faults that must cost nothing but time.
func (r *faultRig) requireAllSucceeded(o *faultOutcome) {
	r.t.Helper()
	require.Equal(r.t, map[string]int{"succeeded": len(o.jobs)}, o.byState)
}

// claimedAndOpen returns, for each of the given sequences, which must grow, the
// attempts of which a claim and no completion was stored up to there.
func (r *faultRig) claimedAndOpen(at []uint64) []map[faultAttempt]bool {
	r.t.Helper()
	open := map[faultAttempt]bool{}
	var snapshots []map[faultAttempt]bool
	r.readStream(func(e *ledger.Entry) {
		for len(snapshots) < len(at) && e.Seq > at[len(snapshots)] {
			snapshots = append(snapshots, maps.Clone(open))
		}
		switch b := e.Body.(type) {
		case *ledger.Claim:
			open[faultAttempt{b.Job.String(), b.Attempt}] = true
		case *ledger.Completion:
			delete(open, faultAttempt{b.Job.String(), b.Attempt})
		}
	})
	for len(snapshots) < len(at) {
		snapshots = append(snapshots, maps.Clone(open))
	}
	return snapshots
}

// readStream hands over each entry of the stream in order.
func (r *faultRig) readStream(each func(*ledger.Entry)) {
	r.t.Helper()
	ctx, cancel := contextFor(faultPatience)
	defer cancel()
	end := r.awaitEnd()
	consumer, err := r.js.OrderedConsumer(ctx, r.stream, jetstream.OrderedConsumerConfig{})
	require.NoError(r.t, err)
	messages, err := consumer.Messages()
	require.NoError(r.t, err)
	defer messages.Stop()
	for seq := uint64(0); seq < end; {
		m, err := messages.Next(jetstream.NextContext(ctx))
		require.NoError(r.t, err)
		meta, err := m.Metadata()
		require.NoError(r.t, err)
		seq = meta.Sequence.Stream
		each(ledger.Decode(seq, meta.Timestamp, strings.TrimPrefix(m.Subject(), r.prefix+"."), m.Data()))
	}
}
