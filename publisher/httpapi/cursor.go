package httpapi

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// cursorKind says which list a cursor belongs to.
type cursorKind byte

const (
	jobsCursor     cursorKind = 'j'
	attemptsCursor cursorKind = 'a'
)

// cursorBytes: the kind, the time in microseconds, the job, the attempt.
const cursorBytes = 1 + 8 + 16 + 4

var errCursor = errors.New("the cursor does not belong to this list; take next_cursor as it is")

// encodeCursor makes the opaque text of a position.
func encodeCursor(kind cursorKind, c ledger.Cursor) string {
	b := append(make([]byte, 0, cursorBytes), byte(kind))
	b = binary.BigEndian.AppendUint64(b, uint64(c.At.UnixMicro()))
	b = append(b, c.Job[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(c.Attempt))
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(kind cursorKind, text string) (ledger.Cursor, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != cursorBytes || b[0] != byte(kind) {
		return ledger.Cursor{}, errCursor
	}
	at := time.UnixMicro(int64(binary.BigEndian.Uint64(b[1:]))).UTC()
	if at.Year() < 1970 || at.Year() > 9999 {
		return ledger.Cursor{}, errCursor
	}
	return ledger.Cursor{At: at, Job: uuid.UUID(b[9:25]), Attempt: int(binary.BigEndian.Uint32(b[25:]))}, nil
}
