package projector

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"jobledger/ledger"
)

// compare compares every table with the fold.
func (v *verifier) compare(ctx context.Context, tx pgx.Tx, gen string) error {
	jobs, attempts, rejections := v.expected()
	docs := func(j *ledger.Job, column string) (ledger.Digest, bool) {
		d := v.shards[jobShard(j.ID, len(v.shards))].documents[j.ID]
		switch column {
		case "input":
			return d.input, true
		case "result":
			return d.result, true
		}
		return ledger.Digest{}, false
	}
	if err := compareTable(ctx, v, tx, gen, jobsTable, 1, jobs, docs); err != nil {
		return err
	}
	if err := compareTable(ctx, v, tx, gen, attemptsTable, 2, attempts, nil); err != nil {
		return err
	}
	if err := compareTable(ctx, v, tx, gen, rejectionsTable, 2, rejections, nil); err != nil {
		return err
	}
	for _, shard := range v.shards {
		if found := shard.storedRules; found != shard.state.Rules() {
			v.differ(Difference{Table: "checkpoints", Key: "shard=" + strconv.Itoa(shard.number), Column: "rules",
				Want: strconv.Itoa(shard.state.Rules()), Got: strconv.Itoa(found)})
		}
	}
	return v.compareDefinitions(ctx, tx, gen)
}

// compareDefinitions compares the tables that all shards write: they hold what
// the shard that is furthest has seen.
func (v *verifier) compareDefinitions(ctx context.Context, tx pgx.Tx, gen string) error {
	defs, to := v.shards[0].defs, v.shards[0].to
	for _, s := range v.shards {
		if s.to > to {
			defs, to = s.defs, s.to
		}
	}
	kinds := pointers(defs.Kinds)
	if err := compareTable(ctx, v, tx, gen, kindsTable, 2, kinds, nil); err != nil {
		return err
	}
	providers := pointers(defs.Providers)
	if err := compareTable(ctx, v, tx, gen, providersTable, 2, providers, nil); err != nil {
		return err
	}
	proofs := pointers(defs.Verifications)
	return compareTable(ctx, v, tx, gen, verificationsTable, 2, proofs, nil)
}

func (v *verifier) expected() (jobs []*ledger.Job, attempts []*ledger.Attempt, rejections []*ledger.Rejection) {
	for _, s := range v.shards {
		for _, id := range s.jobs {
			j := s.state.Job(id)
			jobs = append(jobs, j)
			attempts = append(attempts, j.Attempts...)
		}
		for _, r := range s.rejections {
			rejections = append(rejections, r)
		}
	}
	return jobs, attempts, rejections
}

// compareTable compares the rows of a table, whose first keys columns are its
// key, with those that the fold expects. docs gives the digest of a document
// that is not in memory.
func compareTable[T any](ctx context.Context, v *verifier, tx pgx.Tx, gen string, t table[T], keys int, want []*T,
	docs func(*T, string) (ledger.Digest, bool),
) error {
	expected := make(map[string]*T, len(want))
	for _, r := range want {
		expected[t.key(r, keys)] = r
	}
	rows, err := tx.Query(ctx, "SELECT "+t.columnList()+" FROM "+gen+"."+t.name,
		pgx.QueryResultFormats{pgx.BinaryFormatCode})
	if err != nil {
		return fmt.Errorf("read %s: %w", t.name, err)
	}
	defer rows.Close()
	for rows.Next() {
		v.report.Rows++
		cells, err := binaryCells(rows)
		if err != nil {
			return fmt.Errorf("read %s: %w", t.name, err)
		}
		key := string(joinCells(cells[:keys]))
		r, ok := expected[key]
		if !ok {
			v.differ(Difference{Table: t.name, Key: t.describe(cells, keys), Want: "no row", Got: "a row"})
			continue
		}
		delete(expected, key)
		v.compareRow(t.name, t.describe(cells, keys), func(visit func(string, colType, []byte, ledger.Digest, bool)) {
			var b []byte
			for _, c := range t.cols {
				b = c.put(b[:0], r)
				digest, byDigest := ledger.Digest{}, false
				if docs != nil {
					digest, byDigest = docs(r, c.name)
				}
				visit(c.name, c.typ, b, digest, byDigest)
			}
		}, cells)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read %s: %w", t.name, err)
	}
	for _, r := range expected {
		v.differ(Difference{Table: t.name, Key: t.describe(t.cells(r), keys), Want: "a row", Got: "no row"})
	}
	return nil
}

// compareRow compares the cells of a row, each encoded with its length.
func (v *verifier) compareRow(table, key string, each func(func(string, colType, []byte, ledger.Digest, bool)), cells [][]byte) {
	i := 0
	each(func(column string, typ colType, want []byte, digest ledger.Digest, byDigest bool) {
		got := cells[i]
		i++
		d := Difference{Table: table, Key: key, Column: column}
		switch {
		case byDigest:
			if found := documentDigest(got); found != digest {
				d.Want, d.Got = "a document with digest "+digest.String(), "one with digest "+found.String()
				v.differ(d)
			}
		case typ == typJSON && bytes.Equal(canonicalCell(want), canonicalCell(got)):
		case !bytes.Equal(want, got):
			d.Want, d.Got = showCell(typ, want), showCell(typ, got)
			if d.Want == d.Got { // they differ beyond what is shown
				d.Want = fmt.Sprintf("%s (%d bytes)", d.Want, len(want))
				d.Got = fmt.Sprintf("%s (%d bytes, other ones from byte %d on)", d.Got, len(got), firstByteApart(want, got))
			}
			v.differ(d)
		}
	})
}

func firstByteApart(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func (v *verifier) differ(d Difference) {
	v.report.Found++
	if len(v.report.Differences) < v.o.MaxDifferences {
		v.report.Differences = append(v.report.Differences, d)
	}
}

// key returns what identifies a row: its first columns, encoded.
func (t table[T]) key(r *T, keys int) string { return string(joinCells(t.cells(r)[:keys])) }

// cells encodes all columns of a row.
func (t table[T]) cells(r *T) [][]byte {
	cells := make([][]byte, len(t.cols))
	for i, c := range t.cols {
		cells[i] = c.put(nil, r)
	}
	return cells
}

func joinCells(cells [][]byte) []byte { return bytes.Join(cells, nil) }

func (t table[T]) describe(cells [][]byte, keys int) string {
	s := ""
	for i, c := range t.cols[:keys] {
		if i > 0 {
			s += " "
		}
		s += c.name + "=" + showCell(c.typ, cells[i])
	}
	return s
}

// binaryCells returns the values of a row in the form that columns encode.
func binaryCells(rows pgx.Rows) ([][]byte, error) {
	fields := rows.FieldDescriptions()
	cells := make([][]byte, len(fields))
	for i, raw := range rows.RawValues() {
		switch {
		case raw == nil:
			cells[i] = putNull(nil)
		case fields[i].Format != pgx.BinaryFormatCode:
			return nil, fmt.Errorf("column %s came in text format, which is not compared", fields[i].Name)
		default:
			cells[i] = putBytes(nil, raw)
		}
	}
	return cells, nil
}

// cellJSON returns the text of an encoded jsonb value, nil for NULL.
func cellJSON(cell []byte) []byte {
	if binary.BigEndian.Uint32(cell) == null {
		return nil
	}
	return cell[5:]
}

// canonicalCell returns the canonical form of an encoded jsonb value. What is
// not accepted as a document differs from everything that is.
func canonicalCell(cell []byte) []byte {
	text := cellJSON(cell)
	if text == nil {
		return nil
	}
	canonical, err := ledger.Canonical(nil, text)
	if err != nil {
		return append([]byte("not accepted: "), text...)
	}
	return canonical
}

func documentDigest(cell []byte) ledger.Digest {
	if cellJSON(cell) == nil {
		return ledger.Digest{}
	}
	return sha256.Sum256(canonicalCell(cell))
}

// shownBytes bounds how much of a value a difference repeats.
const shownBytes = 200

// showCell renders an encoded value for people.
func showCell(typ colType, cell []byte) string {
	if binary.BigEndian.Uint32(cell) == null {
		return "NULL"
	}
	v := cell[4:]
	switch typ {
	case typUUID:
		return uuid.UUID(v).String()
	case typInt:
		return strconv.FormatInt(int64(binary.BigEndian.Uint64(v)), 10)
	case typBool:
		return strconv.FormatBool(v[0] == 1)
	case typTime:
		return time.UnixMicro(int64(binary.BigEndian.Uint64(v)) + postgresEpoch).UTC().Format(time.RFC3339Nano)
	case typJSON:
		return cut(string(v[1:]))
	case typSeqs:
		return fmt.Sprint(decodeSeqs(v))
	case typBytes:
		return cut(fmt.Sprintf("%x", v))
	}
	return cut(strconv.Quote(string(v)))
}

func cut(s string) string {
	if len(s) > shownBytes {
		return s[:shownBytes] + "…"
	}
	return s
}

// decodeSeqs reads the binary form of an array of int8.
func decodeSeqs(v []byte) []uint64 {
	var seqs []uint64
	for i := 20; i+12 <= len(v); i += 12 {
		seqs = append(seqs, binary.BigEndian.Uint64(v[i+4:]))
	}
	return seqs
}
