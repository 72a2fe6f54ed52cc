package projector

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"jobledger/ledger"
)

// stallTimeout is how long a query of a snapshot may go without a row.
const stallTimeout = time.Minute

var errStalled = fmt.Errorf("the database gave no row for %s", stallTimeout)

// A snapshot is the tables as they were at one moment: a transaction, which
// goroutines use in turn.
type snapshot struct {
	mu       sync.Mutex
	tx       pgx.Tx
	store    *Store // for names and texts; it has no connections of its own
	postgres bool
}

// openSnapshot reads, in the transaction, which generation is live and where
// its checkpoints are.
func openSnapshot(ctx context.Context, tx pgx.Tx) (*snapshot, []Checkpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	s := &snapshot{tx: tx, store: &Store{}, postgres: tx.Conn().PgConn().ParameterStatus("crdb_version") == ""}
	// The snapshot stays idle while the stream is folded.
	if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		return nil, nil, err
	}
	err := tx.QueryRow(ctx, activeSelect).Scan(&s.store.generation, &s.store.epoch, &s.store.shards)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, errNoLedger
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read which generation is live: %w", err)
	}
	s.store.sql = makeStatements(s.store.generation)
	points, err := s.store.checkpointsIn(ctx, tx, "")
	if err != nil {
		return nil, nil, err
	}
	return s, points, s.byKeys(ctx, true)
}

// byKeys says whether the queries that follow find few rows by their keys. Left
// to itself PostgreSQL's planner reads the whole table for them while its
// statistics are young.
func (s *snapshot) byKeys(ctx context.Context, few bool) error {
	if !s.postgres {
		return nil
	}
	for _, set := range []string{"enable_seqscan", "enable_bitmapscan"} {
		value := "on"
		if few {
			value = "off"
		}
		if _, err := s.tx.Exec(ctx, "SET LOCAL "+set+" = "+value); err != nil {
			return fmt.Errorf("prepare the snapshot: %w", err)
		}
	}
	return nil
}

// A param is an encoded parameter of a query, without its length.
type param struct {
	oid   uint32
	value []byte
}

func idsParam(ids []uuid.UUID) param {
	b := appendArrayHeader(make([]byte, 0, 20+20*len(ids)), pgtype.UUIDOID, len(ids), false)
	for _, id := range ids {
		b = putUUID(b, id)
	}
	return param{pgtype.UUIDArrayOID, b}
}

func intParam(v int64) param { return param{pgtype.Int8OID, putInt(nil, v)[4:]} }

// each visits the rows of a query, whose values come in binary form and are the
// visitor's only until it returns.
func (s *snapshot) each(ctx context.Context, what, sql string, params []param, visit func(raw [][]byte)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	values, oids := make([][]byte, len(params)), make([]uint32, len(params))
	for i, p := range params {
		values[i], oids[i] = p.value, p.oid
	}
	binary := []int16{pgx.BinaryFormatCode}
	rows := s.tx.Conn().PgConn().ExecParams(ctx, sql, values, oids, binary, binary)
	for n := 0; rows.NextRow(); n++ {
		if n%1024 == 1023 {
			stall.Reset(stallTimeout)
		}
		visit(rows.Values())
	}
	if _, err := rows.Close(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(err, cause)
		}
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}

// load loads jobs with their attempts in the form in which they are folded.
func (s *snapshot) load(ctx context.Context, ids []uuid.UUID) ([]*ledger.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	jobs, err := s.store.loadJobs(ctx, s.tx, ids)
	if err != nil {
		return nil, fmt.Errorf("load %d jobs: %w", len(ids), err)
	}
	return jobs, nil
}

// storedJob is a job's row and the rows of its attempts. cells are nil if there
// is no such row.
type storedJob struct {
	cells    [][]byte
	attempts []storedAttempt
	// last is the last entry that touched the job, as the rows tell.
	last uint64
}

type storedAttempt struct {
	number int64
	cells  [][]byte
}

// rows reads the rows of jobs and of their attempts.
func (s *snapshot) rows(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]*storedJob, error) {
	found := make(map[uuid.UUID]*storedJob, len(ids))
	for _, id := range ids {
		found[id] = &storedJob{}
	}
	gen := s.store.generation
	sql := "SELECT " + jobsTable.columnList() + " FROM " + gen + ".jobs WHERE id = ANY($1)"
	err := s.each(ctx, "jobs", sql, []param{idsParam(ids)}, func(raw [][]byte) {
		j := found[uuid.UUID(raw[0])]
		j.cells = encodedCells(raw)
		j.last = max(j.last, lastSeq(raw[jobSeqs]))
	})
	if err != nil {
		return nil, err
	}
	sql = "SELECT " + attemptsTable.columnList() + " FROM " + gen + ".attempts WHERE job_id = ANY($1)"
	err = s.each(ctx, "attempts", sql, []param{idsParam(ids)}, func(raw [][]byte) {
		j := found[uuid.UUID(raw[0])]
		j.attempts = append(j.attempts, storedAttempt{int64(binary.BigEndian.Uint64(raw[1])), encodedCells(raw)})
		j.last = max(j.last, lastSeq(raw[attemptSeqs]))
	})
	return found, err
}

// Where the columns stand that say which entries touched a row.
var (
	jobSeqs     = jobsTable.index("seqs")
	attemptSeqs = attemptsTable.index("seqs")
)

func (t table[T]) index(column string) int {
	for i, c := range t.cols {
		if c.name == column {
			return i
		}
	}
	return -1
}

// lastSeq returns the highest element of an array of int8.
func lastSeq(v []byte) uint64 {
	last := uint64(0)
	for _, seq := range decodeSeqs(v) {
		last = max(last, seq)
	}
	return last
}

// encodedCells copies the values of a row into the form that columns encode.
func encodedCells(raw [][]byte) [][]byte {
	size := 0
	for _, v := range raw {
		size += 4 + len(v)
	}
	b := make([]byte, 0, size)
	cells := make([][]byte, len(raw))
	for i, v := range raw {
		from := len(b)
		b = putOptBytes(b, v)
		cells[i] = b[from:len(b):len(b)]
	}
	return cells
}
