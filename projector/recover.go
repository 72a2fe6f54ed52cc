package projector

import (
	"context"
	"fmt"
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
		items, next, err := s.reread(ctx, r, seq, min(seq+chunkSize, from.Pos.Seq))
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
		if err := s.effects.perform(ctx, answers, effects); err != nil {
			return err
		}
		for _, it := range items {
			if it.entry.Job != (uuid.UUID{}) && s.state.Knows(it.entry.Job) {
				s.state.Forget(it.entry.Job)
			}
		}
		seq = next
	}
	s.effectsDone.Store(from.Pos.Seq)
	return nil
}

// reread fetches the shard's entries after the sequence after, up to last.
func (s *shard) reread(ctx context.Context, r *reader, after, last uint64) ([]item, uint64, error) {
	var items []item
	for seq := after + 1; seq <= last; seq++ {
		fetch, cancel := context.WithTimeout(ctx, fetchTimeout)
		m, err := r.stream.GetMsg(fetch, seq)
		cancel()
		if err != nil {
			return nil, 0, fmt.Errorf("fetch entry %d to perform its effects again: %w", seq, err)
		}
		it := item{entry: ledger.Decode(m.Sequence, m.Time, strings.TrimPrefix(m.Subject, r.prefix), m.Data)}
		it.reply = r.replySubject(m.Header)
		first, end := shardsOf(it.entry, s.shards)
		if first <= s.number && s.number <= end {
			items = append(items, it)
		}
	}
	return items, last, nil
}

// lookUp finds in the tables what was decided about entries.
func (s *shard) lookUp(ctx context.Context, items []item) ([]answer, []ledger.Effect, error) {
	var answers []answer
	var list []ledger.Effect
	for _, it := range items {
		seq := it.entry.Seq
		a := ledger.Answer{Seq: seq, Decision: ledger.Duplicate, Job: it.entry.Job}
		if j := s.state.Job(it.entry.Job); j != nil {
			a.State, a.Version = j.State, j.Version
			e, err := s.traces(j, it.entry, &a)
			if err != nil {
				return nil, nil, err
			}
			list = append(list, e...)
		}
		if it.reply == "" {
			continue
		}
		if err := s.store.rejection(ctx, seq, &a); err != nil {
			return nil, nil, err
		}
		answers = append(answers, answer{it.reply, a})
	}
	return answers, list, nil
}

// traces reads off a job's rows what an entry did to it.
func (s *shard) traces(j *ledger.Job, entry *ledger.Entry, a *ledger.Answer) ([]ledger.Effect, error) {
	seq := entry.Seq
	var list []ledger.Effect
	if has(j.Seqs, seq) {
		a.Decision = ledger.Accepted
		if n := len(j.Seqs); j.Seqs[n-1] == seq && (j.State.Settled() || j.State == ledger.JobUnknown) {
			list = append(list, ledger.AnnounceEffect(j))
		}
	}
	for _, at := range j.Attempts {
		if !has(at.Seqs, seq) {
			continue
		}
		a.Decision = ledger.Accepted
		if a.Attempt == 0 || at.Seqs[0] == seq {
			a.Attempt = at.Number
		}
		if at.Seqs[0] == seq && at.State == ledger.AttemptStarting {
			e, err := s.state.StartEffect(j, at)
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		if entry.Kind == ledger.AttemptClaim {
			a.TimeoutMS = at.Deadline.Sub(at.StartedAt).Milliseconds()
		}
	}
	return list, nil
}

func has(list []uint64, v uint64) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
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
