package projector

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

// A Position is a place in the stream: the last entry that was read, and the
// hash chain up to it. The zero value is the stream's beginning.
type Position struct {
	Seq   uint64
	Chain [sha256.Size]byte // SHA-256(Prev ‖ entry at Seq)
	Prev  [sha256.Size]byte // the chain before the entry at Seq
}

// next returns the position after the entry that is given. The chain covers all
// that the fold sees of an entry: sequence, stored time, subject and body.
func (p Position) next(seq uint64, at time.Time, subject string, data []byte) Position {
	h := sha256.New()
	var head [20]byte
	h.Write(p.Chain[:])
	binary.BigEndian.PutUint64(head[:], seq)
	binary.BigEndian.PutUint64(head[8:], uint64(at.UnixNano()))
	binary.BigEndian.PutUint32(head[16:], uint32(len(subject)))
	h.Write(head[:])
	h.Write([]byte(subject))
	h.Write(data)
	n := Position{Seq: seq, Prev: p.Chain}
	h.Sum(n.Chain[:0])
	return n
}

// A StreamError says that the stream is not the one that the tables were folded
// from, or that a part of it is gone. The projector must stop: every further
// entry would be folded into the wrong tables.
type StreamError struct {
	Seq     uint64 // where it was noticed; 0: at none in particular
	Problem string
	Advice  string
}

func (e *StreamError) Error() string {
	if e.Seq == 0 {
		return fmt.Sprintf("the stream does not fit the tables: %s; %s", e.Problem, e.Advice)
	}
	return fmt.Sprintf("the stream does not fit the tables at sequence %d: %s; %s", e.Seq, e.Problem, e.Advice)
}
