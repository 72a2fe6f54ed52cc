package projector

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"jobledger/ledger"
)

// The functions below append one value in PostgreSQL's binary format, preceded
// by its length: the form of an element in a binary array. Rows are encoded by hand because reflection would cost
// more than the rest of a batch.

// null is the length that stands for NULL.
const null = ^uint32(0)

func putNull(b []byte) []byte { return binary.BigEndian.AppendUint32(b, null) }

func putText(b []byte, v string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
	return append(b, v...)
}

// putOptText stores "" as NULL.
func putOptText[T ~string](b []byte, v T) []byte {
	if v == "" {
		return putNull(b)
	}
	return putText(b, string(v))
}

func putBytes(b, v []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
	return append(b, v...)
}

func putOptBytes(b, v []byte) []byte {
	if v == nil {
		return putNull(b)
	}
	return putBytes(b, v)
}

func putDigest(b []byte, v ledger.Digest) []byte {
	if v.IsZero() {
		return putNull(b)
	}
	return putBytes(b, v[:])
}

func putInt(b []byte, v int64) []byte {
	b = binary.BigEndian.AppendUint32(b, 8)
	return binary.BigEndian.AppendUint64(b, uint64(v))
}

// putOptInt stores 0 as NULL.
func putOptInt(b []byte, v int64) []byte {
	if v == 0 {
		return putNull(b)
	}
	return putInt(b, v)
}

func putBool(b []byte, v bool) []byte {
	b = binary.BigEndian.AppendUint32(b, 1)
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func putUUID(b []byte, v uuid.UUID) []byte {
	b = binary.BigEndian.AppendUint32(b, 16)
	return append(b, v[:]...)
}

func putOptUUID(b []byte, v uuid.UUID) []byte {
	if v == (uuid.UUID{}) {
		return putNull(b)
	}
	return putUUID(b, v)
}

// postgresEpoch is the zero of binary timestamps.
var postgresEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func putTime(b []byte, v time.Time) []byte { return putInt(b, v.UnixMicro()-postgresEpoch) }

// putOptTime stores the zero time as NULL.
func putOptTime(b []byte, v time.Time) []byte {
	if v.IsZero() {
		return putNull(b)
	}
	return putTime(b, v)
}

// putJSON appends a jsonb value: the format's version, then the text.
func putJSON(b, v []byte) []byte {
	if v == nil {
		return putNull(b)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(v)+1))
	b = append(b, 1)
	return append(b, v...)
}

// putSeqs appends an array of int8, one-dimensional and never empty.
func putSeqs(b []byte, v []uint64) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(20+12*len(v)))
	b = appendArrayHeader(b, pgtype.Int8OID, len(v), false)
	for _, seq := range v {
		b = putInt(b, int64(seq))
	}
	return b
}

// appendArrayHeader appends the head of a one-dimensional array's binary form.
func appendArrayHeader(b []byte, elem uint32, n int, nulls bool) []byte {
	flag := uint32(0)
	if nulls {
		flag = 1
	}
	for _, v := range [...]uint32{1, flag, elem, uint32(n), 1} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

func decodeHex(v string) []byte {
	b, err := hex.DecodeString(v)
	if err != nil {
		panic("projector: a digest that the codec let through is not hex: " + v)
	}
	return b
}

// jsonAsText turns an encoded jsonb value into an encoded text.
func jsonAsText[T any](put func([]byte, *T) []byte, b []byte, r *T) []byte {
	at := len(b)
	b = put(b, r)
	n := binary.BigEndian.Uint32(b[at:])
	if n == null {
		return b
	}
	binary.BigEndian.PutUint32(b[at:], n-1)
	copy(b[at+4:], b[at+5:]) // drop the format's version
	return b[:len(b)-1]
}

// seqsAsText turns an encoded array of int8 into its encoded text.
func seqsAsText[T any](put func([]byte, *T) []byte, b []byte, r *T) []byte {
	var few [256]byte
	array := put(few[:0], r)[4+20:]
	at := len(b)
	b = append(b, 0, 0, 0, 0, '{')
	for i := 0; i < len(array); i += 12 {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, binary.BigEndian.Uint64(array[i+4:]), 10)
	}
	b = append(b, '}')
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}
