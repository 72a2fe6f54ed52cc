package projector

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"jobledger/ledger"
)

// redo performs again the effects of the entries after the checkpoint's
// effects_seq: whoever committed them may have died before it performed them.
// The decisions are found in the tables. What was done before is harmless: the
// starts have the same message ids, and a second start is refused its claim.
func (s *shard) redo(ctx context.Context, r *reader, from Checkpoint) error {
	const chunkSize = 500
	for seq := from.EffectsSeq; seq < from.Pos.Seq; {
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
		if err := s.effects.perform(ctx, answers, effects, nil); err != nil {
			return err
		}
		for _, it := range items {
			if it.entry.Job != (uuid.UUID{}) && s.state.Knows(it.entry.Job) {
				s.state.Forget(it.entry.Job)
			}
		}
		seq = last
	}
	s.effectsDone.Store(from.Pos.Seq)
	return nil
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
