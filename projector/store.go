package projector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/cockroachdb/cockroach-go/v2/crdb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"jobledger/ledger"
)

// Bounds of the work with the database.
const (
	// acquireTimeout bounds the wait for a connection of the pool.
	acquireTimeout = 5 * time.Second
	// commitTimeout bounds one try at a transaction.
	commitTimeout = 30 * time.Second
	// txTries bounds how often a transaction is tried when the database asks
	// for it (serialization failures, deadlocks).
	txTries = 8
	// sessionTimeout ends what a frozen projector would hold: the row of the
	// checkpoint, for at most this long.
	sessionTimeout = 5 * time.Second
)

// beginPostgres begins a transaction of a projector on PostgreSQL.
//
// A batch finds its rows by their keys; left to itself the planner reads whole
// tables for it as long as its statistics are young, and batches grow slower
// with every job. And a commit need not wait for the disk: a crash of the
// database takes the rows and the checkpoint back together, and what was lost
// is folded again from the stream, with the same outcome.
const beginPostgres = "BEGIN; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;" +
	" SET LOCAL enable_seqscan = off; SET LOCAL synchronous_commit = off"

// ErrOtherWriter says that another projector has moved a checkpoint: this one's
// memory is stale.
var ErrOtherWriter = errors.New("another projector has moved the checkpoint")

// NewPool opens a pool of connections for a projector, the API or a command.
// size bounds the connections; 0 means 8.
func NewPool(ctx context.Context, databaseURL string, size int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("the database's URL: %w", err)
	}
	if size == 0 {
		size = 8
	}
	cfg.MaxConns = int32(size)
	cfg.MaxConnLifetime = 20 * time.Minute
	cfg.MaxConnLifetimeJitter = 5 * time.Minute
	cfg.ConnConfig.ConnectTimeout = acquireTimeout
	// Statements are described, not kept on the server: nothing there can go
	// stale when the schema changes or a pooler swaps sessions.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	params := cfg.ConnConfig.RuntimeParams
	ms := strconv.FormatInt(sessionTimeout.Milliseconds(), 10)
	params["application_name"] = "jobledger"
	params["lock_timeout"] = ms
	params["idle_in_transaction_session_timeout"] = ms
	params["timezone"] = "UTC"
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return pool, nil
}

// A Store is the tables of one generation, as one projector writes them.
type Store struct {
	pool       *pgxpool.Pool
	generation string // schema of the tables
	epoch      int64
	shards     int
	token      uuid.UUID // of this writer
	tx         pgx.TxOptions
	sql        statements
	// bulk inserts by COPY: for a generation that nobody else writes.
	bulk bool
}

// activeSelect reads which generation is live, its epoch and the number of shards.
const activeSelect = "SELECT a.name, a.epoch, m.shards FROM ledger.active AS a, ledger.ledger_meta AS m" +
	" WHERE a.id = 1 AND m.id = 1"

var errNoLedger = errors.New("the tables belong to no ledger yet; run jobledger init")

// OpenStore finds the live generation and returns its store, with a token that
// is new for each call.
func OpenStore(ctx context.Context, pool *pgxpool.Pool) (*Store, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	s := &Store{pool: pool, token: uuid.New()}
	err := pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		s.tx = batchTx(c.Conn())
		return c.QueryRow(ctx, activeSelect).Scan(&s.generation, &s.epoch, &s.shards)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, errNoLedger
	}
	if err != nil {
		return nil, fmt.Errorf("read which generation is live: %w", err)
	}
	s.sql = makeStatements(s.generation)
	return s, nil
}

// batchTx says how the transaction of a batch begins.
func batchTx(conn *pgx.Conn) pgx.TxOptions {
	if conn.PgConn().ParameterStatus("crdb_version") != "" {
		return pgx.TxOptions{}
	}
	return pgx.TxOptions{BeginQuery: beginPostgres}
}

// A Commit is what one batch of a shard writes.
type Commit struct {
	Shard      int
	From, To   Position
	EffectsSeq uint64 // up to here the effects are known to be done
	Rules      int
	Changes    ledger.Changes
	Rejections []*ledger.Rejection
}

// Commit writes a batch and moves the checkpoint, in one transaction. It
// returns ErrOtherWriter if the checkpoint or a row is not what this writer's
// memory says. After any other error the batch may be stored or not: the
// checkpoint tells.
func (s *Store) Commit(ctx context.Context, c *Commit) error {
	w := s.encode(c)
	tries := 0
	var last error
	return crdb.ExecuteCtx(ctx, func(ctx context.Context, _ ...any) error {
		if tries++; tries > 1 {
			if tries > txTries {
				return fmt.Errorf("gave up after %d tries: %v", txTries, last)
			}
			if err := pause(ctx, time.Duration(tries)*10*time.Millisecond); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, commitTimeout)
		defer cancel()
		last = pgx.BeginTxFunc(ctx, s.pool, s.tx, func(tx pgx.Tx) error {
			conn := tx.Conn().PgConn()
			if err := s.copy(ctx, conn, c); err != nil {
				return err
			}
			return w.run(ctx, conn)
		})
		return last
	})
}

// pause waits between half of d and d.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A write is a batch encoded for the wire: the same number of statements
// whatever its size, and none for a table that does not change. The checkpoint
// moves last, so that its lock is held for as short as can be.
type write []arrayStatement

// An arrayStatement is a statement with binary parameters.
type arrayStatement struct {
	what   string // for messages
	sql    string
	params [][]byte
	oids   []uint32
	rows   int // that it must affect; -1: any
}

func (s *Store) encode(c *Commit) write {
	var w write
	newJobs, oldJobs := split(c.Changes.Jobs, (*ledger.Job).IsNew)
	newAttempts, oldAttempts := split(c.Changes.Attempts, (*ledger.Attempt).IsNew)
	if !s.bulk {
		w = addInsert(w, s.sql.insertJobs, jobsTable, newJobs, len(newJobs))
		w = addInsert(w, s.sql.insertAttempts, attemptsTable, newAttempts, len(newAttempts))
		w = addInsert(w, s.sql.insertRejections, rejectionsTable, c.Rejections, len(c.Rejections))
	}
	w = addUpdate(w, s.sql.updateJobs, jobsTable, oldJobs, func(b []byte, j *ledger.Job, i int) []byte {
		version, completedBy := j.StoredVersion()
		if i == 0 {
			return putInt(b, version)
		}
		return putOptInt(b, int64(completedBy))
	})
	w = addUpdate(w, s.sql.updateAttempts, attemptsTable, oldAttempts, nil)
	w = addInsert(w, s.sql.kinds, kindsTable, pointers(c.Changes.Kinds), -1)
	w = addInsert(w, s.sql.providers, providersTable, pointers(c.Changes.Providers), -1)
	w = addInsert(w, s.sql.verifications, verificationsTable, pointers(c.Changes.Verifications), -1)
	return append(w, s.checkpointStatement(c))
}

// copy inserts the new rows of a batch by COPY, if the store is for bulk.
func (s *Store) copy(ctx context.Context, conn *pgconn.PgConn, c *Commit) error {
	if !s.bulk {
		return nil
	}
	jobs, _ := split(c.Changes.Jobs, (*ledger.Job).IsNew)
	if err := copyInto(ctx, conn, s.generation, jobsTable, jobs); err != nil {
		return err
	}
	attempts, _ := split(c.Changes.Attempts, (*ledger.Attempt).IsNew)
	if err := copyInto(ctx, conn, s.generation, attemptsTable, attempts); err != nil {
		return err
	}
	return copyInto(ctx, conn, s.generation, rejectionsTable, c.Rejections)
}

func pointers[T any](rows []T) []*T {
	list := make([]*T, len(rows))
	for i := range rows {
		list[i] = &rows[i]
	}
	return list
}

func split[T any](rows []T, isNew func(*T) bool) (added, changed []*T) {
	for i := range rows {
		if isNew(&rows[i]) {
			added = append(added, &rows[i])
		} else {
			changed = append(changed, &rows[i])
		}
	}
	return added, changed
}

// addInsert adds the insertion of rows, of which affected must be new (-1: any
// number).
func addInsert[T any](w write, sql string, t table[T], rows []*T, affected int) write {
	if len(rows) == 0 {
		return w
	}
	st := arrayStatement{what: t.name, sql: sql, rows: affected}
	for _, c := range t.cols {
		st.add(arrayType(c.typ), encodeColumn(c, rows))
	}
	return append(w, st)
}

func addUpdate[T any](w write, u updateStatement, t table[T], rows []*T, extra func([]byte, *T, int) []byte) write {
	if len(rows) == 0 {
		return w
	}
	keys, sets := updateColumns(t)
	st := arrayStatement{what: t.name, sql: u.text, rows: len(rows)}
	for _, c := range append(keys, sets...) {
		st.add(arrayType(c.typ), encodeColumn(c, rows))
	}
	for i := range u.extra {
		st.add(typInt, encodeArray(typInt, rows, func(b []byte, r *T) []byte { return extra(b, r, i) }))
	}
	return append(w, st)
}

func (st *arrayStatement) add(t colType, param []byte) {
	st.params = append(st.params, param)
	st.oids = append(st.oids, t.array)
}

// encodeColumn encodes one column of rows as an array.
func encodeColumn[T any](c column[T], rows []*T) []byte {
	switch c.typ {
	case typJSON:
		return encodeArray(typText, rows, func(b []byte, r *T) []byte { return jsonAsText(c.put, b, r) })
	case typSeqs:
		return encodeArray(typText, rows, func(b []byte, r *T) []byte { return seqsAsText(c.put, b, r) })
	}
	return encodeArray(c.typ, rows, c.put)
}

func encodeArray[T any](t colType, rows []*T, put func([]byte, *T) []byte) []byte {
	b := appendArrayHeader(make([]byte, 0, 24*len(rows)+32), t.elem, len(rows), true)
	for _, r := range rows {
		b = put(b, r)
	}
	return b
}

func (s *Store) checkpointStatement(c *Commit) arrayStatement {
	st := arrayStatement{what: "checkpoint", sql: s.sql.checkpoint, rows: 1}
	put := func(oid uint32, field []byte) {
		st.oids = append(st.oids, oid)
		st.params = append(st.params, field[4:]) // a parameter carries its own length
	}
	put(pgtype.Int8OID, putInt(nil, int64(c.To.Seq)))
	put(pgtype.ByteaOID, putBytes(nil, c.To.Chain[:]))
	put(pgtype.ByteaOID, putBytes(nil, c.To.Prev[:]))
	put(pgtype.Int8OID, putInt(nil, int64(c.EffectsSeq)))
	put(pgtype.Int8OID, putInt(nil, int64(c.Rules)))
	put(pgtype.UUIDOID, putUUID(nil, s.token))
	put(pgtype.Int8OID, putInt(nil, int64(c.Shard)))
	put(pgtype.Int8OID, putInt(nil, int64(c.From.Seq)))
	put(pgtype.Int8OID, putInt(nil, s.epoch))
	return st
}

// run sends all statements of a batch at once, within a transaction, and reads
// their results. Each is one message, so that a writer that freezes while it
// sends holds nothing for longer than the session's timeouts allow.
func (w write) run(ctx context.Context, conn *pgconn.PgConn) error {
	pipeline := conn.StartPipeline(ctx)
	binary := []int16{1}
	for _, st := range w {
		pipeline.SendQueryParams(st.sql, st.params, st.oids, binary, nil)
	}
	err := pipeline.Sync()
	for _, st := range w {
		if err == nil {
			err = st.result(pipeline)
		}
	}
	return errors.Join(err, pipeline.Close())
}

// result reads the result of a statement and checks how many rows it affected.
func (st *arrayStatement) result(pipeline *pgconn.Pipeline) error {
	results, err := pipeline.GetResults()
	if err == nil {
		reader, ok := results.(*pgconn.ResultReader)
		if !ok {
			return fmt.Errorf("write %s: the database answered with %T", st.what, results)
		}
		var tag pgconn.CommandTag
		if tag, err = reader.Close(); err == nil && st.rows >= 0 && int(tag.RowsAffected()) != st.rows {
			return fmt.Errorf("%w: %d rows of %s are as expected, of %d", ErrOtherWriter, tag.RowsAffected(), st.what, st.rows)
		}
	}
	if isUnique(err) {
		return fmt.Errorf("%w: %w", ErrOtherWriter, err)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", st.what, err)
	}
	return nil
}

// isUnique reports a violation of a unique constraint.
func isUnique(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505"
}
