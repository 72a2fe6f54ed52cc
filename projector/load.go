package projector

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"jobledger/ledger"
)

// The columns that the fold needs; input and result stay in the tables.
const (
	jobsSelect = "t.id, t.owner_id, t.idempotency_key, t.kind, t.kind_seq, t.fingerprint, t.provider, t.state," +
		" t.state_reason, t.version, t.completed_by, t.failure_class, t.failure_message, t.failure_executed, t.run_at," +
		" t.created_at, t.updated_at, t.completed_at, t.cancelled_at, t.cancelled_by, t.due_at, t.requested_seq," +
		" t.completed_seq, t.seqs"
	attemptsSelect = "t.job_id, t.number, t.provider, t.state, t.reason, t.job_version, t.idempotency_key, t.worker," +
		" t.claim_hash, t.start_by, t.deadline, t.due_at, t.requested_at, t.started_at, t.unknown_since, t.finished_at," +
		" t.failure_class, t.failure_message, t.failure_reach, t.executed, t.provider_ref, t.usage, t.completion_digest," +
		" t.resolved_at, t.resolved_by, t.resolution_reason, t.start_seq, t.seqs, t.replays"
)

// opt scans a nullable column: NULL gives the zero value.
type opt[T any] struct{ v *T }

// nullable returns a destination that leaves the zero value in v for NULL.
func nullable[T any](v *T) *opt[T] { return &opt[T]{v} }

// scanInto scans a row into destinations, among which an opt may stand.
func scanInto(row pgx.CollectableRow, dest ...any) error {
	hold := make([]func(), 0, len(dest))
	for i, d := range dest {
		if o, ok := d.(interface{ pointer() (any, func()) }); ok {
			p, take := o.pointer()
			dest[i] = p
			hold = append(hold, take)
		}
	}
	if err := row.Scan(dest...); err != nil {
		return err
	}
	for _, take := range hold {
		take()
	}
	return nil
}

func (o *opt[T]) pointer() (any, func()) {
	var p *T
	return &p, func() {
		if p != nil {
			*o.v = *p
		}
	}
}

// digestInto scans a bytea into a digest; NULL gives the zero digest.
type digestInto struct{ d *ledger.Digest }

func (o digestInto) pointer() (any, func()) {
	var b []byte
	return &b, func() { copy(o.d[:], b) }
}

// seqsInto scans an array of int8.
type seqsInto struct{ s *[]uint64 }

func (o seqsInto) pointer() (any, func()) {
	var list []int64
	return &list, func() {
		seqs := make([]uint64, len(list))
		for i, v := range list {
			seqs[i] = uint64(v)
		}
		*o.s = seqs
	}
}

// timeInto scans a timestamptz, in UTC; NULL gives the zero time.
type timeInto struct{ t *time.Time }

func (o timeInto) pointer() (any, func()) {
	var p *time.Time
	return &p, func() {
		if p != nil {
			*o.t = p.UTC()
		}
	}
}

func jobDestinations(j *ledger.Job) []any {
	return []any{
		&j.ID, &j.Owner, &j.Key, &j.Kind, &j.KindSeq, digestInto{&j.Fingerprint}, nullable(&j.Provider), &j.State,
		nullable(&j.StateReason), &j.Version, nullable(&j.CompletedBy), nullable(&j.Failure.Class),
		nullable(&j.Failure.Message), nullable(&j.Failure.Executed), timeInto{&j.RunAt}, timeInto{&j.CreatedAt},
		timeInto{&j.UpdatedAt}, timeInto{&j.CompletedAt}, timeInto{&j.CancelledAt}, nullable(&j.CancelledBy),
		timeInto{&j.DueAt}, &j.RequestedSeq, nullable(&j.CompletedSeq), seqsInto{&j.Seqs},
	}
}

func attemptDestinations(a *ledger.Attempt) []any {
	return []any{
		&a.Job, &a.Number, &a.Provider, &a.State, &a.Reason, &a.JobVersion, nullable(&a.Key), nullable(&a.Worker),
		digestInto{&a.ClaimHash}, timeInto{&a.StartBy}, timeInto{&a.Deadline}, timeInto{&a.DueAt},
		timeInto{&a.RequestedAt}, timeInto{&a.StartedAt}, timeInto{&a.UnknownSince}, timeInto{&a.FinishedAt},
		nullable(&a.Failure.Class), nullable(&a.Failure.Message), nullable(&a.Failure.Reach),
		nullable(&a.Failure.Executed), nullable(&a.ProviderRef), &a.Usage, digestInto{&a.Completion},
		timeInto{&a.ResolvedAt}, nullable(&a.ResolvedBy), nullable(&a.ResolvedReason), nullable(&a.StartSeq),
		seqsInto{&a.Seqs}, &a.Replays,
	}
}

func scanJob(row pgx.CollectableRow) (*ledger.Job, error) {
	j := &ledger.Job{}
	return j, scanInto(row, jobDestinations(j)...)
}

func scanAttempt(row pgx.CollectableRow) (*ledger.Attempt, error) {
	a := &ledger.Attempt{}
	return a, scanInto(row, attemptDestinations(a)...)
}

// Load puts the stored jobs with the given ids, and their attempts, into the
// state, and notes which are not stored. Two queries, whatever their number.
func (s *Store) Load(ctx context.Context, state *ledger.State, ids []uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	var jobs []*ledger.Job
	err := pgx.BeginTxFunc(ctx, s.pool, s.tx, func(tx pgx.Tx) (err error) {
		jobs, err = s.loadJobs(ctx, tx, ids)
		return err
	})
	if err != nil {
		return fmt.Errorf("load %d jobs: %w", len(ids), err)
	}
	for _, j := range jobs {
		state.Load(j)
	}
	for _, id := range ids {
		if !state.Knows(id) {
			state.LoadAbsent(id)
		}
	}
	return nil
}

// loadJobs loads the stored jobs among ids, with their attempts, in a
// transaction.
func (s *Store) loadJobs(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) ([]*ledger.Job, error) {
	rows, err := tx.Query(ctx, s.sql.loadJobs, ids)
	if err != nil {
		return nil, err
	}
	jobs, err := pgx.CollectRows(rows, scanJob)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	return jobs, s.loadAttempts(ctx, tx, jobs)
}

func (s *Store) loadAttempts(ctx context.Context, tx pgx.Tx, jobs []*ledger.Job) error {
	rows, err := tx.Query(ctx, s.sql.loadAttempts, idsOf(jobs))
	if err != nil {
		return fmt.Errorf("attempts: %w", err)
	}
	attempts, err := pgx.CollectRows(rows, scanAttempt)
	if err != nil {
		return fmt.Errorf("attempts: %w", err)
	}
	attach(jobs, attempts)
	return nil
}

func idsOf(jobs []*ledger.Job) []uuid.UUID {
	ids := make([]uuid.UUID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	return ids
}

// attach gives each job its attempts, which come by number.
func attach(jobs []*ledger.Job, attempts []*ledger.Attempt) {
	byID := make(map[uuid.UUID]*ledger.Job, len(jobs))
	for _, j := range jobs {
		byID[j.ID] = j
	}
	for _, a := range attempts {
		j := byID[a.Job]
		j.Attempts = append(j.Attempts, a)
	}
}

// A Checkpoint is how far a shard has come in the stored tables.
type Checkpoint struct {
	Shard      int
	Pos        Position
	EffectsSeq uint64
	Rules      int
	Token      uuid.UUID // of the last writer
	UpdatedAt  time.Time // when it was written last, by the database's clock
}

// Checkpoints reads the checkpoints of all shards, by shard. With settle set it
// waits for transactions that hold one, so that what it reads is the truth
// after a commit whose answer was lost.
func (s *Store) Checkpoints(ctx context.Context, settle bool) ([]Checkpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	lock := ""
	if settle {
		lock = " FOR UPDATE"
	}
	var list []Checkpoint
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{}, func(tx pgx.Tx) (err error) {
		list, err = s.checkpointsIn(ctx, tx, lock)
		return err
	})
	return list, err
}

// checkpointsIn reads the checkpoints in a transaction.
func (s *Store) checkpointsIn(ctx context.Context, tx pgx.Tx, lock string) ([]Checkpoint, error) {
	rows, err := tx.Query(ctx, "SELECT c.shard, c.seq, c.chain, c.chain_prev, c.effects_seq, c.rules, c.token, c.updated_at, c.epoch FROM "+
		s.generation+".checkpoints AS c ORDER BY c.shard"+lock)
	if err != nil {
		return nil, fmt.Errorf("read the checkpoints: %w", err)
	}
	list, err := pgx.CollectRows(rows, s.scanCheckpoint)
	if err != nil {
		return nil, fmt.Errorf("read the checkpoints: %w", err)
	}
	return list, s.checkShards(list)
}

// checkShards checks that the checkpoints are those of all shards, by shard.
func (s *Store) checkShards(list []Checkpoint) error {
	for i, c := range list {
		if c.Shard != i {
			return fmt.Errorf("checkpoint %d of generation %s is missing", i, s.generation)
		}
	}
	if len(list) != s.shards {
		return fmt.Errorf("generation %s has %d checkpoints; ledger_meta says that there are %d shards", s.generation, len(list), s.shards)
	}
	return nil
}

func (s *Store) scanCheckpoint(row pgx.CollectableRow) (Checkpoint, error) {
	var c Checkpoint
	var chain, prev []byte
	var epoch int64
	err := scanInto(row, &c.Shard, &c.Pos.Seq, &chain, &prev, &c.EffectsSeq, &c.Rules, nullable(&c.Token), timeInto{&c.UpdatedAt}, &epoch)
	if err != nil {
		return c, err
	}
	if epoch != s.epoch {
		return c, fmt.Errorf("%w: the generation is at epoch %d, this writer at %d", ErrOtherWriter, epoch, s.epoch)
	}
	copy(c.Pos.Chain[:], chain)
	copy(c.Pos.Prev[:], prev)
	return c, nil
}

// LoadDefinitions puts into the state what was defined up to and with the
// sequence upTo, in the order of the stream. Another shard may have stored
// later ones already.
func (s *Store) LoadDefinitions(ctx context.Context, state *ledger.State, upTo uint64) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	from := func(cols, table string) string {
		return "SELECT " + cols + " FROM " + s.generation + "." + table + " AS t WHERE t.seq <= $1 ORDER BY t.seq"
	}
	err := each(ctx, s.pool, from(kindsSelect, "kinds"), upTo, func(row pgx.CollectableRow) error {
		r, err := scanKind(row)
		if err == nil {
			state.LoadKind(*r)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = each(ctx, s.pool, from(providersSelect, "providers"), upTo, func(row pgx.CollectableRow) error {
		r, err := scanProvider(row)
		if err == nil {
			state.LoadProvider(*r)
		}
		return err
	})
	if err != nil {
		return err
	}
	return each(ctx, s.pool, from(verificationsSelect, "provider_verifications"), upTo, func(row pgx.CollectableRow) error {
		r, err := scanVerification(row)
		if err == nil {
			state.LoadVerification(*r)
		}
		return err
	})
}

// The columns of definitions, for scanKind and scanProvider.
const (
	kindsSelect     = "t.seq, t.at, t.actor, t.definition"
	providersSelect = "t.seq, t.at, t.actor, t.name, t.type, t.definition, t.digest, t.paused, t.pause_reason"
)

func scanKind(row pgx.CollectableRow) (*ledger.KindRow, error) {
	r := &ledger.KindRow{}
	var definition []byte
	if err := scanInto(row, &r.Seq, timeInto{&r.At}, nullable(&r.Actor), &definition); err != nil {
		return nil, err
	}
	var err error
	if r.Kind, err = ledger.ParseKind(definition); err != nil {
		return nil, fmt.Errorf("the definition of a kind at sequence %d: %w", r.Seq, err)
	}
	r.Digest = r.Kind.Digest()
	return r, nil
}

func scanProvider(row pgx.CollectableRow) (*ledger.ProviderRow, error) {
	r := &ledger.ProviderRow{}
	return r, scanInto(row, providerDestinations(r)...)
}

// providerDestinations are where the columns of providersSelect go.
func providerDestinations(r *ledger.ProviderRow) []any {
	return []any{
		&r.Seq, timeInto{&r.At}, nullable(&r.Actor), &r.Name, &r.Type, &r.Definition, digestInto{&r.Digest},
		&r.Paused, nullable(&r.PauseReason),
	}
}

func each(ctx context.Context, pool *pgxpool.Pool, sql string, arg any, visit func(pgx.CollectableRow) error) error {
	rows, err := pool.Query(ctx, sql, arg)
	if err != nil {
		return fmt.Errorf("read definitions: %w", err)
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) { return struct{}{}, visit(row) })
	if err != nil {
		return fmt.Errorf("read definitions: %w", err)
	}
	return nil
}

// A DueRow is something that the clock must say is due.
type DueRow struct {
	Job     uuid.UUID
	Attempt int
	Due     time.Time
}

// DueRows returns at most limit rows that are due at the given time, the oldest
// first.
func (s *Store) DueRows(ctx context.Context, at time.Time, limit int) ([]DueRow, error) {
	return s.due(ctx, s.sql.dueRows, at, limit)
}

// PausedRows returns at most limit jobs that wait for a paused provider and have
// not looked since something changed that may let them go on.
func (s *Store) PausedRows(ctx context.Context, limit int) ([]DueRow, error) {
	return s.due(ctx, s.sql.pausedRows, limit)
}

func (s *Store) due(ctx context.Context, sql string, args ...any) ([]DueRow, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("look for what is due: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (DueRow, error) {
		var d DueRow
		return d, scanInto(row, &d.Job, &d.Attempt, timeInto{&d.Due})
	})
	if err != nil {
		return nil, fmt.Errorf("look for what is due: %w", err)
	}
	return list, nil
}
