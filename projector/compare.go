package projector

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// verdict is what a comparison says of a job before the end.
type verdict int

const (
	isEqual verdict = iota
	isLater         // the tables hold what a later entry made of it
	isOther         // the row is final, and not what the fold says
)

// compareJobs compares jobs and their attempts with their rows. At the end what
// differs is reported; before, each job gets its verdict.
func (v *verifier) compareJobs(ctx context.Context, jobs []*foldedJob, last bool) error {
	ids := make([]uuid.UUID, len(jobs))
	for i, f := range jobs {
		ids[i] = f.job.ID
	}
	rows, err := v.snap.rows(ctx, ids)
	if err != nil {
		return err
	}
	for _, f := range jobs {
		stored := rows[f.job.ID]
		if last {
			v.compareJob(f, stored, v.differ)
			v.noteRows(f.job, stored)
			continue
		}
		f.verdict, f.storedLast = isEqual, stored.last
		if stored.last > f.last {
			f.verdict = isLater
			continue
		}
		v.compareJob(f, stored, func(d Difference) {
			switch {
			case f.verdict == isOther:
			case d.Table == jobsTable.name && d.Column == "due_at" && !f.job.State.Settled():
				f.verdict = isLater // a look for what a job waits for, or a race needs, leaves no sequence
			default:
				f.verdict = isOther
			}
		})
	}
	return nil
}

// compareJob compares one job and its attempts.
func (v *verifier) compareJob(f *foldedJob, stored *storedJob, differ func(Difference)) {
	digests := func(column string) (document, bool) {
		switch column {
		case "input":
			return f.input, true
		case "result":
			return f.result, true
		}
		return document{}, false
	}
	compareRow(v, jobsTable, f.job, stored.cells, f.job.Seqs, digests, differ)
	seen := 0
	for _, a := range stored.attempts {
		want := f.job.Attempt(int(a.number))
		if want == nil {
			differ(tooMany(attemptsTable, a.cells, attemptSeqs))
			continue
		}
		seen++
		compareRow(v, attemptsTable, want, a.cells, want.Seqs, nil, differ)
	}
	if seen == len(f.job.Attempts) {
		return
	}
	for _, a := range f.job.Attempts {
		if !stored.has(a.Number) {
			compareRow(v, attemptsTable, a, nil, a.Seqs, nil, differ)
		}
	}
}

func (s *storedJob) has(number int) bool {
	return slices.ContainsFunc(s.attempts, func(a storedAttempt) bool { return int(a.number) == number })
}

// noteRows notes which rows of a job are missing and which are too many, as was
// reported, for the comparison of all keys.
func (v *verifier) noteRows(j *ledger.Job, stored *storedJob) {
	if stored.cells == nil {
		v.keys.missing(rowKey{j.ID, jobRow})
	}
	for _, a := range j.Attempts {
		if !stored.has(a.Number) {
			v.keys.missing(rowKey{j.ID, int64(a.Number)})
		}
	}
	for _, a := range stored.attempts {
		if j.Attempt(int(a.number)) == nil {
			v.keys.tooMany(rowKey{j.ID, a.number}, v.limits.candidates)
		}
	}
}

// compareRow compares the cells of a row, nil if there is none. digests, if not
// nil, knows documents that are not in memory.
func compareRow[T any](v *verifier, t table[T], want *T, got [][]byte, seqs []uint64,
	digests func(column string) (document, bool), differ func(Difference),
) {
	if got == nil {
		differ(Difference{Table: t.name, Key: t.describe(t.cells(want)), Want: "a row", Got: "no row", Entries: lastOf(seqs)})
		return
	}
	for i, c := range t.cols {
		if digests != nil {
			if doc, ok := digests(c.name); ok {
				if found := documentDigest(got[i]); doc.known && found != doc.digest {
					differ(Difference{Table: t.name, Key: t.describe(got), Column: c.name, Entries: lastOf(seqs),
						Want: "a document with digest " + doc.digest.String(), Got: "one with digest " + found.String()})
				}
				continue
			}
		}
		v.scratch = c.put(v.scratch[:0], want)
		if bytes.Equal(v.scratch, got[i]) || c.typ == typJSON && bytes.Equal(canonicalCell(v.scratch), canonicalCell(got[i])) {
			continue
		}
		d := Difference{Table: t.name, Key: t.describe(got), Column: c.name, Entries: lastOf(seqs)}
		d.Want, d.Got = showBoth(c.typ, v.scratch, got[i])
		differ(d)
	}
}

// compareRows compares rows of a table, those that a condition selects, with
// the ones that the fold expects.
func compareRows[T any](ctx context.Context, v *verifier, t table[T], where string, want []*T, params ...param) error {
	expected := make(map[string]*T, len(want))
	for _, r := range want {
		expected[t.key(t.cells(r))] = r
	}
	sql := "SELECT " + t.columnList() + " FROM " + v.snap.store.generation + "." + t.name + " WHERE " + where
	seq := t.index("seq")
	err := v.snap.each(ctx, t.name, sql, params, func(raw [][]byte) {
		v.report.Rows++
		cells := encodedCells(raw)
		key := t.key(cells)
		r, ok := expected[key]
		if !ok {
			v.differ(tooMany(t, cells, seq))
			return
		}
		delete(expected, key)
		compareRow(v, t, r, cells, cellSeqs(cells[seq]), nil, v.differ)
	})
	if err != nil {
		return err
	}
	for _, r := range expected {
		compareRow(v, t, r, nil, cellSeqs(t.cells(r)[seq]), nil, v.differ)
	}
	return nil
}

// tooMany is the difference of a row that should not be there. seqs is where
// its entries stand.
func tooMany[T any](t table[T], cells [][]byte, seqs int) Difference {
	return Difference{Table: t.name, Key: t.describe(cells), Want: "no row", Got: "a row", Entries: lastOf(cellSeqs(cells[seqs]))}
}

// cellSeqs returns the sequences in an encoded value: one, or an array.
func cellSeqs(cell []byte) []uint64 {
	switch v := cell[4:]; {
	case len(v) == 8:
		return []uint64{binary.BigEndian.Uint64(v)}
	default:
		return decodeSeqs(v)
	}
}

// lastOf returns a copy of the last sequences: the fold's own may be changed
// later.
func lastOf(seqs []uint64) []uint64 { return slices.Clone(seqs[max(0, len(seqs)-entriesShown):]) }

// differ counts a difference and keeps it if it is among the first, in the order
// in which they are reported.
func (v *verifier) differ(d Difference) {
	v.report.Found++
	v.report.Differences = append(v.report.Differences, d)
	if most := v.o.MaxDifferences; len(v.report.Differences) >= 2*most+100 {
		v.report.settle(most)
	}
}

// settle puts the first differences in order: by table, row and column, so that
// the same ledger gives the same report.
func (r *VerifyReport) settle(most int) {
	slices.SortStableFunc(r.Differences, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(tableOrder[a.Table], tableOrder[b.Table]), cmp.Compare(a.Key, b.Key))
	})
	r.Differences = r.Differences[:min(len(r.Differences), most)]
}

var tableOrder = map[string]int{
	"jobs": 0, "attempts": 1, "rejections": 2, "kinds": 3, "providers": 4, "provider_verifications": 5, "checkpoints": 6,
}

// showBoth renders the two values of a difference for people.
func showBoth(typ colType, want, got []byte) (string, string) {
	w, g := showCell(typ, want), showCell(typ, got)
	if w == g { // they differ beyond what is shown
		w = fmt.Sprintf("%s (%d bytes)", w, len(want))
		g = fmt.Sprintf("%s (%d bytes, other ones from byte %d on)", g, len(got), firstByteApart(want, got))
	}
	return w, g
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

// key returns what identifies an encoded row: the columns of its key.
func (t table[T]) key(cells [][]byte) string { return string(bytes.Join(cells[:t.keys()], nil)) }

// keys is how many columns, the first ones, are the key.
func (t table[T]) keys() int {
	if t.name == jobsTable.name {
		return 1
	}
	return 2
}

// cells encodes all columns of a row.
func (t table[T]) cells(r *T) [][]byte {
	cells := make([][]byte, len(t.cols))
	for i, c := range t.cols {
		cells[i] = c.put(nil, r)
	}
	return cells
}

func (t table[T]) describe(cells [][]byte) string {
	s := ""
	for i, c := range t.cols[:t.keys()] {
		if i > 0 {
			s += " "
		}
		s += c.name + "=" + showCell(c.typ, cells[i])
	}
	return s
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
