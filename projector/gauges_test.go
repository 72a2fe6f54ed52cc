package projector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

// counted is an Observer that adds up what was folded.
type counted chan CommitReport

func (c counted) Committed(r CommitReport) { c <- r }

// TestGauges: unknown attempts are grouped, with the age of the oldest, and
// waiting jobs by reason; what an Observer is told adds up to the same story.
func TestGauges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	reports := make(counted, 1000)
	w.project(func(o *Options) { o.Observer = reports })
	w.append(&ledger.Rules{Rules: 1})
	w.append(echoKind())
	unknown := func(key string) uint64 {
		seq := w.append(request(key))
		w.caughtUp(seq + 1)
		id := ledger.JobID("acme", key)
		w.append(claimOf(id, 1))
		c := completionOf(id, 1, ledger.OutcomeUnknown)
		c.Failure.Class = "timeout"
		return w.append(c)
	}
	first := unknown("a")
	m, err := w.stream.GetMsg(w.ctx(), first)
	require.NoError(t, err)
	unknown("b")
	for i := range 3 {
		w.append(&ledger.Request{Owner: "acme", Key: fmt.Sprint("later", i), Kind: "echo", Input: []byte(`1`), DelayMS: 3_600_000})
	}
	w.append(&ledger.Request{Owner: "acme", Key: "lost", Kind: "nobody-knows", Input: []byte(`1`)})
	last := w.last()
	w.caughtUp(last)

	g, err := NewQueries(w.pool).Gauges(w.ctx())
	require.NoError(t, err)
	require.Len(t, g.Unknown, 1)
	require.WithinDuration(t, m.Time, g.Unknown[0].Since, time.Microsecond)
	g.Unknown[0].Since = time.Time{}
	require.Equal(t, []UnknownGroup{{Provider: "primary", Kind: "echo", Attempts: 2}}, g.Unknown)
	require.Equal(t, map[ledger.StateReason]int64{ledger.Scheduled: 3}, g.Waiting)
	require.Equal(t, []uint64{last, last}, g.Checkpoints)
	require.Empty(t, g.Proofs, "no provider is defined")

	sum := map[Folded]int{}
	for len(reports) > 0 {
		for f, n := range (<-reports).Folded {
			sum[f] += n
		}
	}
	require.Equal(t, map[Folded]int{
		{ledger.RulesSet, ledger.Accepted, ""}:                  1,
		{ledger.KindDefine, ledger.Accepted, ""}:                1,
		{ledger.JobRequest, ledger.Accepted, ""}:                5,
		{ledger.JobRequest, ledger.Refused, ledger.UnknownKind}: 1,
		{ledger.AttemptClaim, ledger.Accepted, ""}:              2,
		{ledger.AttemptComplete, ledger.Accepted, ""}:           2,
	}, sum)
}

// TestGaugesLeaveOutWhatNobodyAsks: an unknown attempt of a settled job matters
// only if it may have had an effect.
func TestGaugesLeaveOutWhatNobodyAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.project()
	w.append(echoKind())
	w.append(echoKind(func(k *ledger.Kind) { k.Name, k.Effects = "pure", ledger.EffectsNone }))
	for _, kind := range []string{"echo", "pure"} {
		r := request(kind)
		r.Kind = kind
		w.append(r)
		id := ledger.JobID("acme", kind)
		w.append(claimOf(id, 1))
		c := completionOf(id, 1, ledger.OutcomeUnknown)
		c.Failure.Class = "timeout"
		w.append(c)
		w.append(&ledger.Cancel{Job: id})
	}
	w.caughtUp(w.last())
	g, err := NewQueries(w.pool).Gauges(w.ctx())
	require.NoError(t, err)
	require.Len(t, g.Unknown, 1)
	require.Equal(t, "echo", g.Unknown[0].Kind)
	all, err := NewQueries(w.pool).Unknown(w.ctx())
	require.NoError(t, err)
	require.Equal(t, g.Unknown, all)
}

// TestGaugesReadIndexes: what is unknown or waits is found without reading the
// rest of the tables.
func TestGaugesReadIndexes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	for sql, index := range map[string]string{unknownSQL: "attempts_in_flight_idx", waitingSQL: "jobs_attention_idx"} {
		sql = strings.NewReplacer("$1", "10", "$2", "10").Replace(sql)
		rows, _ := w.pool.Query(w.ctx(), "EXPLAIN "+sql)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Contains(t, strings.Join(plan, "\n"), index)
	}
}
