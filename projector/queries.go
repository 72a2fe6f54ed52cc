package projector

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"jobledger/ledger"
)

// Queries reads the live generation through the views of the schema ledger. It
// never writes.
type Queries struct {
	pool *pgxpool.Pool
}

// NewQueries returns Queries on a pool, which they do not close.
func NewQueries(pool *pgxpool.Pool) *Queries { return &Queries{pool} }

// jobsView selects what readers see of a job, input and result included.
const jobsView = "SELECT " + jobsSelect + ", t.input, t.result FROM ledger.jobs AS t"

func scanWholeJob(row pgx.CollectableRow) (*ledger.Job, error) {
	j := &ledger.Job{}
	return j, scanInto(row, append(jobDestinations(j), &j.Input, &j.Result)...)
}

// Job returns the job with its attempts, input and result, or nil if there is
// none.
func (q *Queries) Job(ctx context.Context, id uuid.UUID) (*ledger.Job, error) {
	jobs, err := collect(ctx, q, "read a job", scanWholeJob, jobsView+" WHERE t.id = $1", id)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	return jobs[0], q.addAttempts(ctx, jobs)
}

// Jobs returns a page of jobs, newest first, with their attempts.
func (q *Queries) Jobs(ctx context.Context, f ledger.JobFilter) ([]*ledger.Job, error) {
	var w where
	w.equal("t.state", string(f.State))
	w.equal("t.kind", f.Kind)
	w.equal("t.owner_id", f.Owner)
	w.equal("t.idempotency_key", f.Key)
	w.equal("t.provider", f.Provider)
	if !f.After.IsZero() {
		w.add("(t.created_at, t.id) < (" + w.arg(f.After.At) + ", " + w.arg(f.After.Job) + ")")
	}
	sql := jobsView + w.String() + " ORDER BY t.created_at DESC, t.id DESC LIMIT " + w.arg(pageSize(f.Limit))
	jobs, err := collect(ctx, q, "list jobs", scanWholeJob, sql, w.args...)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	return jobs, q.addAttempts(ctx, jobs)
}

// Attempts returns a page of attempts, oldest first.
func (q *Queries) Attempts(ctx context.Context, f ledger.AttemptFilter) ([]*ledger.Attempt, error) {
	var w where
	w.equal("t.state", string(f.State))
	w.equal("t.provider", f.Provider)
	if f.Owner != "" {
		w.add("t.job_id IN (SELECT j.id FROM ledger.jobs AS j WHERE j.owner_id = " + w.arg(f.Owner) + ")")
	}
	if f.Kind != "" {
		w.add("EXISTS (SELECT 1 FROM ledger.jobs AS j WHERE j.id = t.job_id AND j.kind = " + w.arg(f.Kind) + ")")
	}
	if !f.RequestedBefore.IsZero() {
		w.add("t.requested_at < " + w.arg(f.RequestedBefore))
	}
	if !f.StartedBefore.IsZero() {
		w.add("t.started_at < " + w.arg(f.StartedBefore))
	}
	if !f.After.IsZero() {
		w.add("(t.requested_at, t.job_id, t.number) > (" + w.arg(f.After.At) + ", " + w.arg(f.After.Job) + ", " + w.arg(f.After.Attempt) + ")")
	}
	sql := "SELECT " + attemptsSelect + " FROM ledger.attempts AS t" + w.String() +
		" ORDER BY t.requested_at, t.job_id, t.number LIMIT " + w.arg(pageSize(f.Limit))
	return collect(ctx, q, "list attempts", scanAttempt, sql, w.args...)
}

// Rejections returns the latest rejections, newest first; job selects those of
// one job unless it is the zero UUID.
func (q *Queries) Rejections(ctx context.Context, job uuid.UUID, before uint64, limit int) ([]*ledger.Rejection, error) {
	var w where
	if job != (uuid.UUID{}) {
		w.add("t.job_id = " + w.arg(job))
	}
	if before > 0 {
		w.add("t.seq < " + w.arg(int64(before)))
	}
	sql := "SELECT t.seq, t.at, t.entry, t.actor, t.owner_id, t.idempotency_key, t.kind, t.provider, t.job_id, t.attempt," +
		" t.decision, t.reason, t.detail, t.raw FROM ledger.rejections AS t" + w.String() +
		" ORDER BY t.seq DESC LIMIT " + w.arg(pageSize(limit))
	return collect(ctx, q, "list rejections", scanRejection, sql, w.args...)
}

func scanRejection(row pgx.CollectableRow) (*ledger.Rejection, error) {
	r := &ledger.Rejection{}
	return r, scanInto(row, &r.Seq, timeInto{&r.At}, &r.Entry, nullable(&r.Actor), nullable(&r.Owner), nullable(&r.Key),
		nullable(&r.Kind), nullable(&r.Provider), nullable(&r.Job), nullable(&r.Attempt), &r.Decision, &r.Reason,
		nullable(&r.Detail), &r.Raw)
}

// Kind returns the definition of a kind that holds now, or nil.
func (q *Queries) Kind(ctx context.Context, name string) (*ledger.Kind, error) {
	kinds, err := q.kinds(ctx, " WHERE t.name = $1 ORDER BY t.seq DESC LIMIT 1", name)
	if err != nil || len(kinds) == 0 {
		return nil, err
	}
	return &kinds[0].Kind, nil
}

// KindAt returns the definition of a kind that was appended as seq, or nil.
func (q *Queries) KindAt(ctx context.Context, name string, seq uint64) (*ledger.Kind, error) {
	kinds, err := q.kinds(ctx, " WHERE t.name = $1 AND t.seq = $2", name, int64(seq))
	if err != nil || len(kinds) == 0 {
		return nil, err
	}
	return &kinds[0].Kind, nil
}

// Kinds returns the definitions that hold now, by name.
func (q *Queries) Kinds(ctx context.Context) ([]*ledger.KindRow, error) {
	return q.kinds(ctx, " WHERE t.seq = (SELECT max(u.seq) FROM ledger.kinds AS u WHERE u.name = t.name) ORDER BY t.name")
}

func (q *Queries) kinds(ctx context.Context, rest string, args ...any) ([]*ledger.KindRow, error) {
	return collect(ctx, q, "read kinds", scanKind, "SELECT "+kindsSelect+" FROM ledger.kinds AS t"+rest, args...)
}

// Providers returns the definitions of providers that hold now, by name.
func (q *Queries) Providers(ctx context.Context) ([]*ledger.ProviderRow, error) {
	return collect(ctx, q, "read providers", scanProvider, "SELECT "+providersSelect+
		" FROM ledger.providers AS t WHERE t.seq = (SELECT max(u.seq) FROM ledger.providers AS u WHERE u.name = t.name) ORDER BY t.name")
}

// newsSelect reads no input and no result, however big, and finds rows by their
// keys only.
const newsSelect = "SELECT t.id, t.state, t.version, GREATEST(t.seqs[array_length(t.seqs, 1)]," +
	" (SELECT max(a.seqs[array_length(a.seqs, 1)]) FROM ledger.attempts AS a WHERE a.job_id = t.id))" +
	" FROM ledger.jobs AS t WHERE t.id = ANY($1)"

// States returns what state the jobs are in and when they changed last, in one
// query. Jobs that are not there are left out.
func (q *Queries) States(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]ledger.JobNews, error) {
	type row struct {
		id   uuid.UUID
		news ledger.JobNews
	}
	scan := func(r pgx.CollectableRow) (found row, err error) {
		return found, r.Scan(&found.id, &found.news.State, &found.news.Version, &found.news.Seq)
	}
	rows, err := collect(ctx, q, "read the states of jobs", scan, newsSelect, ids)
	if err != nil {
		return nil, err
	}
	states := make(map[uuid.UUID]ledger.JobNews, len(rows))
	for _, r := range rows {
		states[r.id] = r.news
	}
	return states, nil
}

// Applied returns the sequences up to which the jobs' shards are in the tables,
// in the order of the jobs.
func (q *Queries) Applied(ctx context.Context, jobs []uuid.UUID) ([]uint64, error) {
	points, err := q.Checkpoints(ctx)
	if err != nil {
		return nil, err
	}
	applied := make([]uint64, len(jobs))
	for i, job := range jobs {
		applied[i] = points[jobShard(job, len(points))]
	}
	return applied, nil
}

// Checkpoints returns the sequences up to which the shards are in the tables.
func (q *Queries) Checkpoints(ctx context.Context) ([]uint64, error) {
	scan := func(row pgx.CollectableRow) (uint64, error) {
		var seq uint64
		return seq, row.Scan(&seq)
	}
	points, err := collect(ctx, q, "read the checkpoints", scan, "SELECT c.seq FROM ledger.checkpoints AS c ORDER BY c.shard")
	if err == nil && len(points) == 0 {
		return nil, errors.New("the live generation has no checkpoints; run jobledger init")
	}
	return points, err
}

func (q *Queries) addAttempts(ctx context.Context, jobs []*ledger.Job) error {
	attempts, err := collect(ctx, q, "read attempts", scanAttempt, "SELECT "+attemptsSelect+
		" FROM ledger.attempts AS t WHERE t.job_id = ANY($1) ORDER BY t.job_id, t.number", idsOf(jobs))
	attach(jobs, attempts)
	return err
}

// readTimeout bounds a reader's query: whoever asked waits for it.
const readTimeout = 8 * time.Second

func collect[T any](ctx context.Context, q *Queries, what string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	rows, err := q.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	list, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}

func pageSize(limit int) int {
	if limit < 1 || limit > ledger.MaxPage {
		return ledger.MaxPage
	}
	return limit
}

// where builds a WHERE clause with numbered parameters.
type where struct {
	conds []string
	args  []any
}

func (w *where) arg(v any) string {
	w.args = append(w.args, v)
	return "$" + strconv.Itoa(len(w.args))
}

func (w *where) add(cond string) { w.conds = append(w.conds, cond) }

// equal adds a condition unless the value is "".
func (w *where) equal(column, v string) {
	if v != "" {
		w.add(column + " = " + w.arg(v))
	}
}

func (w *where) String() string {
	if len(w.conds) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conds, " AND ")
}
