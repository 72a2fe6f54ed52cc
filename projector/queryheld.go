package projector

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"jobledger/ledger"
)

// A HeldAttempt is a running attempt with the worker that holds it.
type HeldAttempt struct {
	Job         uuid.UUID
	Number      int
	Worker      string
	RequestedAt time.Time
	// HeartbeatTimeout is how long the worker may be silent, by the definition
	// of its kind under which the job was accepted; above 0.
	HeartbeatTimeout time.Duration
}

// attemptsHeldBy is served by the index of attempts in flight, which holds those
// that run in this order: no more of them than all workers together have slots.
// The worker is no column of it, because an index for a question that is asked
// when a worker has died would cost every claim.
const attemptsHeldBy = "SELECT t.job_id, t.number, t.worker, t.requested_at, (k.definition->>'heartbeat_timeout_ms')::INT8" +
	" FROM ledger.attempts AS t JOIN ledger.jobs AS j ON j.id = t.job_id" +
	" JOIN ledger.kinds AS k ON k.name = j.kind AND k.seq = j.kind_seq" +
	" WHERE t.state = 'running' AND t.worker = ANY($1::TEXT[]) AND (k.definition->>'heartbeat_timeout_ms')::INT8 > 0" +
	" AND (t.requested_at, t.job_id, t.number) > ($2::TIMESTAMPTZ, $3::UUID, $4::INT8)" +
	" ORDER BY t.requested_at, t.job_id, t.number LIMIT $5"

// AttemptsHeldBy returns a page of the running attempts that the named workers
// hold and whose kinds have a heartbeat timeout, the oldest first. after is the
// last one of the page before; an empty page is the end.
func (q *Queries) AttemptsHeldBy(ctx context.Context, workers []string, after ledger.Cursor) ([]HeldAttempt, error) {
	return collect(ctx, q, "list what workers hold", scanHeldAttempt, attemptsHeldBy,
		workers, after.At, after.Job, after.Attempt, ledger.MaxPage)
}

func scanHeldAttempt(row pgx.CollectableRow) (HeldAttempt, error) {
	var a HeldAttempt
	var heartbeatMS int64
	err := scanInto(row, &a.Job, &a.Number, &a.Worker, timeInto{&a.RequestedAt}, &heartbeatMS)
	a.HeartbeatTimeout = time.Duration(heartbeatMS) * time.Millisecond
	return a, err
}

// ProviderAt returns the definition of a provider that held when the entry at
// seq was appended, or nil if there was none.
func (q *Queries) ProviderAt(ctx context.Context, name string, seq uint64) (*ledger.ProviderRow, error) {
	rows, err := collect(ctx, q, "read a provider", scanProvider, "SELECT "+providersSelect+
		" FROM ledger.providers AS t WHERE t.name = $1 AND t.seq < $2 ORDER BY t.seq DESC LIMIT 1", name, int64(seq))
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}
