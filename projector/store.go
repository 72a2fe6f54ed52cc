package projector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
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
	// sessionTimeouts end what a frozen projector would hold: the row of the
	// checkpoint, for at most this long.
	sessionTimeout = 5 * time.Second
)

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
	token      uuid.UUID // of this writer
	sql        statements
}

// statements are the texts that depend on the generation.
type statements struct {
	copyJobs, copyAttempts, copyRejections      string
	updateJobs, updateAttempts                  updateStatement
	kinds, providers, verifications             string
	loadJobs, loadAttempts, checkpoint, dueRows string
}

// OpenStore finds the live generation and returns its store, with a token that
// is new for each call.
func OpenStore(ctx context.Context, pool *pgxpool.Pool) (*Store, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	s := &Store{pool: pool, token: uuid.New()}
	err := pool.QueryRow(ctx, "SELECT a.name, a.epoch FROM ledger.active AS a WHERE a.id = 1").Scan(&s.generation, &s.epoch)
	if err != nil {
		return nil, fmt.Errorf("read which generation is live: %w", err)
	}
	s.sql = makeStatements(s.generation)
	return s, nil
}

func makeStatements(gen string) statements {
	return statements{
		copyJobs:       copyStatement(gen, jobsTable),
		copyAttempts:   copyStatement(gen, attemptsTable),
		copyRejections: copyStatement(gen, rejectionsTable),
		updateJobs: makeUpdate(gen, jobsTable, "t.id = u.id AND t.version = u.was_version"+
			" AND t.completed_by IS NOT DISTINCT FROM u.was_completed_by",
			"was_version", "was_completed_by"),
		updateAttempts: makeUpdate(gen, attemptsTable, "t.job_id = u.job_id AND t.number = u.number"),
		kinds:          definitionStatement(gen, kindsTable),
		providers:      definitionStatement(gen, providersTable),
		verifications:  definitionStatement(gen, verificationsTable),
		loadJobs:       "SELECT " + jobsSelect + " FROM " + gen + ".jobs AS t WHERE t.id = ANY($1)",
		loadAttempts: "SELECT " + attemptsSelect + " FROM " + gen + ".attempts AS t WHERE t.job_id = ANY($1)" +
			" ORDER BY t.job_id, t.number",
		checkpoint: "UPDATE " + gen + ".checkpoints SET seq = $1, chain = $2, chain_prev = $3, effects_seq = $4," +
			" rules = $5, token = $6, updated_at = now() WHERE shard = $7 AND seq = $8 AND epoch = $9",
		dueRows: "SELECT t.id, 0::INT8, t.due_at FROM " + gen + ".jobs AS t WHERE t.due_at <= $1" +
			" UNION ALL SELECT t.job_id, t.number, t.due_at FROM " + gen + ".attempts AS t WHERE t.due_at <= $1" +
			" LIMIT $2",
	}
}

func copyStatement[T any](gen string, t table[T]) string {
	return "COPY " + gen + "." + t.name + " (" + t.columnList() + ") FROM STDIN BINARY"
}

// definitionStatement inserts definitions; every shard inserts the same ones.
func definitionStatement[T any](gen string, t table[T]) string {
	return "INSERT INTO " + gen + "." + t.name + " (" + t.columnList() + ") SELECT " + unnestList(t.cols) +
		" FROM " + unnestFrom(t.cols) + " ON CONFLICT (name, seq) DO NOTHING"
}

// An updateStatement updates many rows of a table by arrays, one for each
// column.
type updateStatement struct {
	text  string
	extra int // arrays after the columns': conditions
}

func makeUpdate[T any](gen string, t table[T], where string, extra ...string) updateStatement {
	keys, sets := updateColumns(t)
	cols := append(keys, sets...)
	var b strings.Builder
	b.WriteString("UPDATE " + gen + "." + t.name + " AS t SET ")
	for i, c := range sets {
		if i > 0 {
			b.WriteString(", ")
		}
		if c.name == "result" { // set once; the fold does not keep it in memory
			b.WriteString("result = COALESCE(u.result::JSONB, t.result)")
			continue
		}
		b.WriteString(c.name + " = " + castFromText("u."+c.name, c.typ))
	}
	for _, name := range extra {
		cols = append(cols, column[T]{name: name, typ: typInt})
	}
	b.WriteString(" FROM " + unnestFrom(cols) + " WHERE " + where)
	return updateStatement{b.String(), len(extra)}
}

// updateColumns returns the columns of the key and those that an update sets.
func updateColumns[T any](t table[T]) (keys, sets []column[T]) {
	for _, c := range t.cols {
		switch {
		case c.name == "id" || c.name == "job_id" || c.name == "number":
			keys = append(keys, c)
		case !c.fixed:
			sets = append(sets, c)
		}
	}
	return keys, sets
}

// Arrays of jsonb and of arrays cannot be sent as such on both databases: their
// elements travel as text and are cast row by row.
func castFromText(expr string, t colType) string {
	if t == typJSON || t == typSeqs {
		return expr + "::" + t.name
	}
	return expr
}

func arrayType(t colType) colType {
	if t == typJSON || t == typSeqs {
		return typText
	}
	return t
}

func unnestList[T any](cols []column[T]) string {
	exprs := make([]string, len(cols))
	for i, c := range cols {
		exprs[i] = castFromText("u."+c.name, c.typ)
	}
	return strings.Join(exprs, ", ")
}

func unnestFrom[T any](cols []column[T]) string {
	args, names := make([]string, len(cols)), make([]string, len(cols))
	for i, c := range cols {
		args[i] = "$" + strconv.Itoa(i+1) + "::" + arrayType(c.typ).name + "[]"
		names[i] = c.name
	}
	return "unnest(" + strings.Join(args, ", ") + ") AS u (" + strings.Join(names, ", ") + ")"
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
	return crdb.ExecuteCtx(ctx, func(ctx context.Context, _ ...any) error {
		if tries++; tries > 1 {
			if tries > txTries {
				return fmt.Errorf("gave up after %d tries", txTries)
			}
			if err := pause(ctx, time.Duration(tries)*10*time.Millisecond); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, commitTimeout)
		defer cancel()
		return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
			return w.run(ctx, tx.Conn().PgConn())
		})
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
// whatever its size, and none for a table that does not change.
type write struct {
	copies  []copyRows
	updates []arrayStatement
	// point moves the checkpoint.
	point arrayStatement
}

type copyRows struct {
	sql  string
	data []byte
	rows int
}

// An arrayStatement is a statement with binary parameters.
type arrayStatement struct {
	what   string // for messages
	sql    string
	params [][]byte
	oids   []uint32
	rows   int // that it must affect; -1: any
}

func (s *Store) encode(c *Commit) *write {
	w := &write{}
	newJobs, oldJobs := split(c.Changes.Jobs, (*ledger.Job).IsNew)
	newAttempts, oldAttempts := split(c.Changes.Attempts, (*ledger.Attempt).IsNew)
	addCopy(w, s.sql.copyJobs, jobsTable, newJobs)
	addCopy(w, s.sql.copyAttempts, attemptsTable, newAttempts)
	addCopy(w, s.sql.copyRejections, rejectionsTable, c.Rejections)
	addUpdate(w, "jobs", s.sql.updateJobs, jobsTable, oldJobs, func(b []byte, j *ledger.Job, i int) []byte {
		version, completedBy := j.StoredVersion()
		if i == 0 {
			return putInt(b, version)
		}
		return putOptInt(b, int64(completedBy))
	})
	addUpdate(w, "attempts", s.sql.updateAttempts, attemptsTable, oldAttempts, nil)
	addDefinitions(w, s.sql.kinds, kindsTable, c.Changes.Kinds)
	addDefinitions(w, s.sql.providers, providersTable, c.Changes.Providers)
	addDefinitions(w, s.sql.verifications, verificationsTable, c.Changes.Verifications)
	w.point = s.checkpointStatement(c)
	return w
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

func addCopy[T any](w *write, sql string, t table[T], rows []*T) {
	if len(rows) > 0 {
		w.copies = append(w.copies, copyRows{sql, t.copyRows(rows), len(rows)})
	}
}

func addUpdate[T any](w *write, what string, u updateStatement, t table[T], rows []*T, extra func([]byte, *T, int) []byte) {
	if len(rows) == 0 {
		return
	}
	keys, sets := updateColumns(t)
	st := arrayStatement{what: what, sql: u.text, rows: len(rows)}
	for _, c := range append(keys, sets...) {
		st.add(arrayType(c.typ), encodeColumn(c, rows))
	}
	for i := range u.extra {
		st.add(typInt, encodeArray(typInt, rows, func(b []byte, r *T) []byte { return extra(b, r, i) }))
	}
	w.updates = append(w.updates, st)
}

func addDefinitions[T any](w *write, sql string, t table[T], rows []T) {
	if len(rows) == 0 {
		return
	}
	all, _ := split(rows, func(*T) bool { return true })
	st := arrayStatement{what: t.name, sql: sql, rows: -1}
	for _, c := range t.cols {
		st.add(arrayType(c.typ), encodeColumn(c, all))
	}
	w.updates = append(w.updates, st)
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

// run sends a batch within a transaction. The checkpoint moves last, so that
// its lock is held for as short as can be.
func (w *write) run(ctx context.Context, conn *pgconn.PgConn) error {
	for _, c := range w.copies {
		tag, err := conn.CopyFrom(ctx, bytes.NewReader(c.data), c.sql)
		if isUnique(err) {
			return fmt.Errorf("%w: %w", ErrOtherWriter, err)
		}
		if err != nil {
			return err
		}
		if int(tag.RowsAffected()) != c.rows {
			return fmt.Errorf("%s: stored %d rows of %d", c.sql, tag.RowsAffected(), c.rows)
		}
	}
	formats := []int16{1}
	for _, st := range append(w.updates, w.point) {
		res := conn.ExecParams(ctx, st.sql, st.params, st.oids, formats, nil).Read()
		if res.Err != nil {
			return fmt.Errorf("write %s: %w", st.what, res.Err)
		}
		if n := int(res.CommandTag.RowsAffected()); st.rows >= 0 && n != st.rows {
			return fmt.Errorf("%w: %d rows of %s are as expected, of %d", ErrOtherWriter, n, st.what, st.rows)
		}
	}
	return nil
}

// isUnique reports a violation of a unique constraint.
func isUnique(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505"
}
