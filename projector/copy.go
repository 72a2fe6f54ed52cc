package projector

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Bounds of one COPY.
const (
	copyRowsMost  = 5000
	copyBytesMost = 4 << 20
)

// The frame of PostgreSQL's binary COPY format: the signature with no flags and
// no extension, and the trailer.
var (
	copyHeader  = []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	copyTrailer = []byte{0xff, 0xff}
)

// copyInto inserts rows that are not stored yet by COPY, which costs the
// database about half of an INSERT. A rebuild may use it and a projector may
// not: see docs/decisions/0004-rows-as-arrays.md.
func copyInto[T any](ctx context.Context, conn *pgconn.PgConn, gen string, t table[T], rows []*T) error {
	sql := "COPY " + gen + "." + t.name + " (" + t.columnList() + ") FROM STDIN BINARY"
	for from := 0; from < len(rows); {
		buf := append(make([]byte, 0, 64<<10), copyHeader...)
		to := from
		for ; to < len(rows) && to-from < copyRowsMost && len(buf) < copyBytesMost; to++ {
			buf = binary.BigEndian.AppendUint16(buf, uint16(len(t.cols)))
			for _, c := range t.cols {
				buf = c.put(buf, rows[to])
			}
		}
		buf = append(buf, copyTrailer...)
		tag, err := conn.CopyFrom(ctx, bytes.NewReader(buf), sql)
		switch {
		case isUnique(err):
			return fmt.Errorf("%w: %w", ErrOtherWriter, err)
		case err != nil:
			return fmt.Errorf("copy into %s: %w", t.name, err)
		case tag.RowsAffected() != int64(to-from):
			return fmt.Errorf("copy into %s: %d rows of %d arrived", t.name, tag.RowsAffected(), to-from)
		}
		from = to
	}
	return nil
}
