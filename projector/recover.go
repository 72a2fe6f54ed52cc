package projector

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"jobledger/ledger"
)

// redoMost is how many entries, of the last ones, are read again for the
// decisions on them and for announcements. Whoever has waited longer than for
// these has asked again, or has looked.
const redoMost = 20_000

// redo performs again the effects of the entries after the checkpoint's
// effects_seq: whoever committed them may have died before it performed them.
// The decisions are found in the tables. What was done before is harmless: the
// starts have the same message ids, and a second start is refused its claim.
func (s *shard) redo(ctx context.Context, r *reader, from Checkpoint, most uint64) error {
	const chunkSize = 500
	begin := from.EffectsSeq
	s.late.add(nil, begin)
	if from.Pos.Seq-begin > most { // after a rebuild, say
		cut := from.Pos.Seq - most
		if err := s.redoStarts(ctx, begin, cut); err != nil {
			return err
		}
		begin = cut
	}
	for seq := begin; seq < from.Pos.Seq; {
		last := min(seq+chunkSize, from.Pos.Seq)
		items, err := s.reread(ctx, r, seq, last)
		if err != nil {
			return err
		}
		if err := s.load(ctx, items); err != nil {
			return err
		}
		answers, effects, err := s.lookUp(ctx, items)
		if err != nil {
			return err
		}
		late, err := s.effects.perform(ctx, answers, effects, nil, s.late.room())
		if err != nil {
			return err
		}
		s.late.add(late, last)
		for _, it := range items {
			s.forget(it.entry.Job)
		}
		seq = last
	}
	s.late.add(nil, from.Pos.Seq)
	s.effectsDone.Store(s.late.doneUpTo())
	return nil
}

func (s *shard) forget(id uuid.UUID) {
	if id != (uuid.UUID{}) && s.state.Knows(id) {
		s.state.Forget(id)
	}
}

// redoStarts appends again the starts that follow from the entries after the
// sequence after, up to last, and that no worker has claimed yet.
func (s *shard) redoStarts(ctx context.Context, after, last uint64) error {
	const page = 500
	var from startingRow
	for {
		rows, err := s.store.starting(ctx, from, after, last, page)
		if err != nil || len(rows) == 0 {
			return err
		}
		from = rows[len(rows)-1]
		var list []ledger.Effect
		var ids []uuid.UUID
		for _, r := range rows {
			if jobShard(r.job, s.shards) == s.number {
				ids = append(ids, r.job)
			}
		}
		if len(ids) > 0 {
			if err := s.store.Load(ctx, s.state, ids); err != nil {
				return err
			}
		}
		for _, r := range rows {
			j := s.state.Job(r.job)
			if j == nil { // another shard's
				continue
			}
			e, err := s.state.StartEffect(j, j.Attempt(r.number))
			if err != nil {
				return err
			}
			list = append(list, e)
		}
		late, err := s.effects.perform(ctx, nil, list, nil, s.late.room())
		if err != nil {
			return err
		}
		s.late.add(late, after)
		for _, id := range ids {
			s.forget(id)
		}
	}
}

// A startingRow is an attempt that no worker has claimed, and its place in the
// order of such attempts.
type startingRow struct {
	at     time.Time
	job    uuid.UUID
	number int
}

// starting returns a page of the attempts that no worker has claimed and that
// follow from an entry after the sequence after, up to last.
func (s *Store) starting(ctx context.Context, from startingRow, after, last uint64, limit int) ([]startingRow, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, "SELECT t.requested_at, t.job_id, t.number FROM "+s.generation+".attempts AS t"+
		" WHERE t.state = 'starting' AND t.seqs[1] > $1 AND t.seqs[1] <= $2 AND (t.requested_at, t.job_id, t.number) > ($3, $4, $5)"+
		" ORDER BY t.requested_at, t.job_id, t.number LIMIT $6", int64(after), int64(last), from.at, from.job, int64(from.number), int64(limit))
	if err != nil {
		return nil, fmt.Errorf("look for starts to append again: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r startingRow, err error) {
		return r, row.Scan(&r.at, &r.job, &r.number)
	})
	if err != nil {
		return nil, fmt.Errorf("look for starts to append again: %w", err)
	}
	return list, nil
}

// reread fetches the shard's entries after the sequence after, up to last.
func (s *shard) reread(ctx context.Context, r *reader, after, last uint64) ([]item, error) {
	var items []item
	for seq := after + 1; seq <= last; seq++ {
		m, err := fetchEntry(ctx, r.stream, seq)
		if err != nil {
			return nil, err
		}
		it := item{entry: ledger.Decode(m.Sequence, m.Time, strings.TrimPrefix(m.Subject, r.prefix), m.Data)}
		it.reply = r.replySubject(m.Header)
		first, end := shardsOf(it.entry, s.shards)
		if first <= s.number && s.number <= end {
			items = append(items, it)
		}
	}
	return items, nil
}

// lookUp finds in the tables what was decided about entries and what has to be
// done for them. Job states in the answers are those of the checkpoint.
func (s *shard) lookUp(ctx context.Context, items []item) ([]answer, []ledger.Effect, error) {
	var answers []answer
	var list []ledger.Effect
	for _, it := range items {
		j := s.state.Job(it.entry.Job)
		if j != nil {
			e, err := s.pending(j, it.entry.Seq)
			if err != nil {
				return nil, nil, err
			}
			list = append(list, e...)
		}
		if it.reply == "" || it.entry.Job == (uuid.UUID{}) && homeShard(it.entry.Seq, s.shards) != s.number {
			continue
		}
		a, err := s.decided(ctx, it.entry, j)
		if err != nil {
			return nil, nil, err
		}
		if a.Decision != "" {
			answers = append(answers, answer{it.reply, a})
		}
	}
	return answers, list, nil
}

// pending returns the effects of the entry at seq that may still be missing.
func (s *shard) pending(j *ledger.Job, seq uint64) ([]ledger.Effect, error) {
	var list []ledger.Effect
	if n := len(j.Seqs); j.Seqs[n-1] == seq && (j.State.Settled() || j.State == ledger.JobUnknown) {
		list = append(list, ledger.AnnounceEffect(j))
	}
	for _, a := range j.Attempts {
		if a.State != ledger.AttemptStarting || a.Seqs[0] != seq {
			continue
		}
		e, err := s.state.StartEffect(j, a)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// decided tells again what the fold answered to an entry.
func (s *shard) decided(ctx context.Context, e *ledger.Entry, j *ledger.Job) (ledger.Answer, error) {
	a := ledger.Answer{Seq: e.Seq, Job: e.Job}
	if err := s.store.rejection(ctx, e.Seq, &a); err != nil {
		return a, err
	}
	if j != nil && a.Reason != ledger.UnknownJob {
		a.State, a.Version = j.State, j.Version
	}
	if a.Decision != "" {
		return a, nil
	}
	done := false
	switch b := e.Body.(type) {
	case *ledger.Claim:
		at := j.Attempt(b.Attempt)
		a.Attempt, done = b.Attempt, slices.Contains(at.Seqs, e.Seq)
		start, err := s.state.StartEffect(j, at)
		if err != nil {
			return a, err
		}
		a.TimeoutMS = start.Start.TimeoutMS
	case *ledger.Completion:
		a.Attempt, done = b.Attempt, slices.Contains(j.Attempt(b.Attempt).Seqs, e.Seq)
	case *ledger.Resolution:
		a.Attempt, done = b.Attempt, slices.Contains(j.Attempt(b.Attempt).Seqs, e.Seq)
	case *ledger.AttemptAsk:
		for _, at := range j.Attempts {
			if at.Key == b.Key {
				a.Attempt, done = at.Number, slices.Contains(at.Seqs, e.Seq)
			}
		}
	case *ledger.Request:
		if done = j.RequestedSeq == e.Seq; done && len(j.Attempts) > 0 && j.Attempts[0].Seqs[0] == e.Seq {
			a.Attempt = 1
		}
	case *ledger.Cancel:
		done = slices.Contains(j.Seqs, e.Seq)
	case *ledger.Due: // nobody waits for the clock
		return a, nil
	default:
		done = s.state.Defined(e)
	}
	a.Decision = ledger.Duplicate
	if done {
		a.Decision = ledger.Accepted
	}
	return a, nil
}

// rejection completes the answer if the entry was rejected.
func (s *Store) rejection(ctx context.Context, seq uint64, a *ledger.Answer) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, "SELECT r.decision, r.reason, r.detail, r.attempt FROM "+s.generation+
		".rejections AS r WHERE r.bucket = $1 AND r.seq = $2", int64(seq%ledger.RejectionBuckets), int64(seq))
	if err != nil {
		return fmt.Errorf("look for a rejection of entry %d: %w", seq, err)
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		return struct{}{}, scanInto(row, &a.Decision, &a.Reason, nullable(&a.Detail), nullable(&a.Attempt))
	})
	if err != nil {
		return fmt.Errorf("look for a rejection of entry %d: %w", seq, err)
	}
	return nil
}
