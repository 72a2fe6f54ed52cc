package projector

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
)

// VerifyOptions say what to compare. Progress, MaxDifferences and Log are
// optional.
type VerifyOptions struct {
	Pool   *pgxpool.Pool
	Stream jetstream.Stream
	Prefix string // nats.subject_prefix, without the dot
	// MaxDifferences bounds the differences that are reported; 20 if 0. All are
	// counted.
	MaxDifferences int
	// Progress, if set, is called now and then with the last folded sequence.
	Progress func(seq uint64)
	Log      *slog.Logger
}

// A Difference is a cell, or a row, that is not what the fold of the stream
// says.
type Difference struct {
	Table  string
	Key    string // of the row
	Column string // "" if the whole row is missing or should not be there
	Want   string // what the fold says
	Got    string // what the table holds
}

func (d Difference) String() string {
	if d.Column == "" {
		return fmt.Sprintf("%s %s: expected %s, found %s", d.Table, d.Key, d.Want, d.Got)
	}
	return fmt.Sprintf("%s %s, column %s: expected %s, found %s", d.Table, d.Key, d.Column, d.Want, d.Got)
}

// A VerifyReport is what Verify found.
type VerifyReport struct {
	Generation  string
	Entries     uint64 // of the stream that were folded
	Rows        int    // of the tables that were compared
	Found       int    // differences in all
	Differences []Difference
	Checkpoints []uint64
}

// Verify folds each shard's part of the stream up to the shard's checkpoint and
// compares every cell of every row of the live generation with it, in one
// snapshot of the database. It changes nothing. It holds the folded jobs in
// memory, without inputs and results. A stream that does not fit the stored
// hash chain is a *StreamError.
func Verify(ctx context.Context, o VerifyOptions) (*VerifyReport, error) {
	if o.MaxDifferences == 0 {
		o.MaxDifferences = 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	store, err := OpenStore(ctx, o.Pool)
	if err != nil {
		return nil, err
	}
	v := &verifier{o: o, report: &VerifyReport{Generation: store.generation}}
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, o.Pool, snapshot, func(tx pgx.Tx) error {
		// The snapshot stays idle while the stream is folded.
		if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
			return err
		}
		points, err := snapshotPoints(ctx, store, tx)
		if err != nil {
			return err
		}
		if err := v.fold(ctx, points); err != nil {
			return err
		}
		return v.compare(ctx, tx, store.generation)
	})
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	return v.report, nil
}

type verifier struct {
	o      VerifyOptions
	report *VerifyReport
	shards []*foldedShard
}

// foldedShard is the fold of one shard's part of the stream.
type foldedShard struct {
	number, shards int
	to             uint64 // checkpoint
	storedRules    int
	state          *ledger.State
	rejections     map[uint64]*ledger.Rejection
	jobs           []uuid.UUID
	// documents are the digests of the canonical inputs and results.
	documents map[uuid.UUID]*documents
	defs      ledger.Changes // only the definitions
}

type documents struct{ input, result ledger.Digest }

// fold reads the stream up to the checkpoints and folds it, shard by shard.
func (v *verifier) fold(ctx context.Context, points []Checkpoint) error {
	r := &reader{
		stream: v.o.Stream, prefix: v.o.Prefix + ".", inbox: "-", log: v.o.Log,
		shards: make([]chan chunk, len(points)), after: make([]uint64, len(points)), until: make([]uint64, len(points)), marks: make([]Position, len(points)),
	}
	for i, c := range points {
		if err := checkPosition(ctx, v.o.Stream, c.Pos); err != nil {
			return err
		}
		r.shards[i], r.marks[i], r.until[i] = make(chan chunk, chunkAhead), c.Pos, c.Pos.Seq
		v.shards = append(v.shards, &foldedShard{
			number: i, shards: len(points), to: c.Pos.Seq, storedRules: c.Rules, state: ledger.NewState(0),
			rejections: map[uint64]*ledger.Rejection{}, documents: map[uuid.UUID]*documents{},
		})
		v.report.Checkpoints = append(v.report.Checkpoints, c.Pos.Seq)
		v.report.Entries = max(v.report.Entries, c.Pos.Seq)
	}
	if v.report.Entries == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var folding, reading errgroup.Group
	reading.Go(func() error { defer cancel(); return r.run(ctx) })
	for i, s := range v.shards {
		folding.Go(func() error { return s.run(ctx, r.shards[i], v.o.Progress) })
	}
	foldErr := folding.Wait()
	cancel()
	readErr := reading.Wait()
	var wrong *StreamError
	if errors.As(readErr, &wrong) {
		return readErr
	}
	return foldErr
}

// run folds what arrives until the checkpoint is reached. The reader hands a
// shard that has enough nothing more.
func (s *foldedShard) run(ctx context.Context, in <-chan chunk, progress func(uint64)) error {
	for last := uint64(0); last < s.to; {
		select {
		case c := <-in:
			if err := s.fold(c.items); err != nil {
				return err
			}
			last = c.pos.Seq
			if progress != nil {
				progress(min(last, s.to))
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *foldedShard) fold(items []item) error {
	for _, it := range items {
		if it.entry.Seq > s.to {
			break
		}
		if id := it.entry.Job; id != (uuid.UUID{}) && !s.state.Knows(id) {
			s.state.LoadAbsent(id)
		}
		v, err := s.state.Apply(it.entry)
		if err != nil {
			return err
		}
		home := it.entry.Job != (uuid.UUID{}) || homeShard(it.entry.Seq, s.shards) == s.number
		if v.Rejection != nil && home {
			s.rejections[it.entry.Seq] = v.Rejection
		}
	}
	return s.keep(s.state.Drain())
}

// keep notes what the state does not hold.
func (s *foldedShard) keep(c ledger.Changes) error {
	for i := range c.Jobs {
		j := &c.Jobs[i]
		if j.IsNew() {
			s.jobs = append(s.jobs, j.ID)
			s.documents[j.ID] = &documents{}
		}
		d := s.documents[j.ID]
		for _, doc := range []struct {
			raw []byte
			to  *ledger.Digest
		}{{j.Input, &d.input}, {j.Result, &d.result}} {
			if doc.raw == nil {
				continue
			}
			canonical, err := ledger.Canonical(nil, doc.raw)
			if err != nil {
				return fmt.Errorf("a document of job %s: %w", j.ID, err)
			}
			*doc.to = sha256.Sum256(canonical)
		}
	}
	s.defs.Kinds = append(s.defs.Kinds, c.Kinds...)
	s.defs.Providers = append(s.defs.Providers, c.Providers...)
	s.defs.Verifications = append(s.defs.Verifications, c.Verifications...)
	return nil
}

// snapshotPoints reads the checkpoints in the snapshot.
func snapshotPoints(ctx context.Context, store *Store, tx pgx.Tx) ([]Checkpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return store.checkpointsIn(ctx, tx, "")
}
