package projector

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"jobledger/ledger"
)

// Bounds of what is counted for metrics: rows that one question reads, groups
// that it returns, and how long the database may take for it.
const (
	gaugeAttempts = 10_000
	gaugeJobs     = 20_000
	gaugeGroups   = 500
	gaugeTimeout  = 2 * time.Second
	// unknownAttempts bounds the rows when somebody asks once, and can wait.
	unknownAttempts = 1_000_000
)

// Gauges are figures of the tables as they are now.
type Gauges struct {
	// Unknown has the unknown attempts, of which the 10,000 that were requested
	// first are looked at. One that had no effects and whose job is settled, such
	// as the stopped loser of a race, is nobody's concern and is not counted.
	Unknown []UnknownGroup
	// Waiting has the waiting jobs by reason, of which the 20,000 oldest are
	// counted.
	Waiting map[ledger.StateReason]int64
	// Proofs has what is proved of providers for kinds, as ProviderStates has it.
	Proofs []ProofGauge
	// Checkpoints are the sequences up to which the shards are in the tables.
	Checkpoints []uint64
}

// An UnknownGroup is the unknown attempts of one kind on one provider.
type UnknownGroup struct {
	Provider, Kind string
	Attempts       int64
	Since          time.Time // when the oldest became unknown
}

// A ProofGauge is what is proved of a provider for a kind.
type ProofGauge struct {
	Provider, Kind string
	Lapsed         string    // why it is no proof, as of a ledger.ProviderProof; "": it is one
	ExpiresAt      time.Time // zero: there is none
}

// Gauges reads figures for metrics, within some seconds. What it reads is bounded, however much is unknown or waits, and comes
// from the indexes of attempts in flight and of jobs that need attention.
func (q *Queries) Gauges(ctx context.Context) (Gauges, error) {
	ctx, cancel := context.WithTimeout(ctx, gaugeTimeout)
	defer cancel()
	g := Gauges{Waiting: map[ledger.StateReason]int64{}}
	err := pgx.BeginTxFunc(ctx, q.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		// The context ends the wait for an answer; this ends the work.
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", gaugeTimeout.Milliseconds())); err != nil {
			return err
		}
		return g.read(ctx, tx)
	})
	if err == nil {
		err = g.readProofs(ctx, q)
	}
	if err != nil {
		return Gauges{}, fmt.Errorf("read figures of the tables: %w", err)
	}
	return g, nil
}

// Unknown returns what Gauges does, of all unknown attempts, up to a million: for
// somebody who asks once. The group whose oldest has been unknown longest comes
// first; of more than 500 groups the others are left out.
func (q *Queries) Unknown(ctx context.Context) ([]UnknownGroup, error) {
	return collect(ctx, q, "count the unknown attempts", scanUnknownGroup, unknownSQL, unknownAttempts, gaugeGroups)
}

func scanUnknownGroup(row pgx.CollectableRow) (g UnknownGroup, err error) {
	return g, row.Scan(&g.Provider, &g.Kind, &g.Attempts, &g.Since)
}

func (g *Gauges) readProofs(ctx context.Context, q *Queries) error {
	states, err := q.ProviderStates(ctx)
	now := time.Now()
	for _, s := range states {
		for i := range s.Proofs {
			p := &s.Proofs[i]
			if len(g.Proofs) < gaugeGroups {
				g.Proofs = append(g.Proofs, ProofGauge{Provider: s.Name, Kind: p.Kind, Lapsed: p.Lapsed(&s.ProviderRow, now), ExpiresAt: p.ExpiresAt})
			}
		}
	}
	return err
}

const (
	unknownSQL = "SELECT u.provider, j.kind, count(*), min(u.unknown_since) AS oldest FROM (SELECT t.job_id, t.provider, t.unknown_since" +
		" FROM ledger.attempts AS t WHERE t.state = 'unknown' ORDER BY t.requested_at, t.job_id, t.number LIMIT $1) AS u" +
		" JOIN ledger.jobs AS j ON j.id = u.job_id JOIN ledger.kinds AS k ON k.name = j.kind AND k.seq = j.kind_seq" +
		" WHERE j.state NOT IN ('succeeded', 'failed', 'cancelled') OR k.definition ->> 'effects' = 'external'" +
		" GROUP BY u.provider, j.kind ORDER BY oldest, u.provider, j.kind LIMIT $2"
	waitingSQL = "SELECT w.reason, count(*) FROM (SELECT coalesce(t.state_reason, '') AS reason FROM ledger.jobs AS t WHERE t.state = 'waiting'" +
		" ORDER BY t.created_at, t.id LIMIT $1) AS w GROUP BY w.reason"
)

func (g *Gauges) read(ctx context.Context, tx pgx.Tx) error {
	rows, _ := tx.Query(ctx, unknownSQL, gaugeAttempts, gaugeGroups) // its error is CollectRows' too
	var err error
	if g.Unknown, err = pgx.CollectRows(rows, scanUnknownGroup); err != nil {
		return err
	}
	var reason ledger.StateReason
	var jobs int64
	rows, _ = tx.Query(ctx, waitingSQL, gaugeJobs)
	_, err = pgx.ForEachRow(rows, []any{&reason, &jobs}, func() error {
		g.Waiting[reason] = jobs
		return nil
	})
	if err != nil {
		return err
	}
	rows, _ = tx.Query(ctx, "SELECT c.seq FROM ledger.checkpoints AS c ORDER BY c.shard")
	g.Checkpoints, err = pgx.CollectRows(rows, pgx.RowTo[uint64])
	return err
}
