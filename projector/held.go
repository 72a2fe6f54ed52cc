package projector

import (
	"github.com/google/uuid"

	"jobledger/ledger"
)

// Bounds of the starts that are held back.
const (
	heldMost      = 10_000
	heldMostBytes = 32 << 20 // of inputs; those of more are fetched again
)

// An attemptKey names an attempt.
type attemptKey struct {
	job    uuid.UUID
	number int
}

// A held start waits until it is known whether it was appended before.
type heldStart struct {
	seq    uint64 // of the entry that it follows from
	effect ledger.Effect
	trace  string // of the request, if the start has its input
}

// heldStarts are the starts that follow from entries which were in the stream
// before the session began. Whoever folds tables that were restored from an
// older backup comes by entries whose starts have long been appended, too long
// ago for the stream to recognise a repetition; but those starts then follow in
// the stream itself. So such a start is held back until the reader has come by
// it, or has come to where the stream ended when the session began. What is
// left has never been appended.
//
// In the usual backlog none was, and there may be very many: beyond heldMost the
// oldest is let go. That is safe too, since a start that is appended twice is
// claimed once. The zero value holds nothing back.
type heldStarts struct {
	until uint64 // where the stream ended
	order []attemptKey
	by    map[attemptKey]heldStart
	bytes int
	most  int // heldMost, less in tests
	// missed says that a start was let go before it was known whether it is in the
	// stream; before it, up to knownTo, it is known of all.
	missed  bool
	knownTo uint64
}

func newHeldStarts(until uint64) heldStarts {
	return heldStarts{until: until, by: map[attemptKey]heldStart{}, most: heldMost}
}

// add takes the effects of the entry at seq, with the traces of the requests at
// hand, and returns those that need not be held back.
func (h *heldStarts) add(seq uint64, effects []ledger.Effect, traces map[uint64]string) []ledger.Effect {
	if seq > h.until {
		return effects
	}
	var rest []ledger.Effect
	for _, e := range effects {
		if e.Kind != ledger.StartAttempt {
			rest = append(rest, e)
			continue
		}
		if h.bytes+len(e.Start.Input) > heldMostBytes {
			e.Start.Input = nil
		}
		h.bytes += len(e.Start.Input)
		key := attemptKey{e.Job, e.Attempt}
		h.order, h.by[key] = append(h.order, key), heldStart{seq, e, traces[e.RequestSeq]}
	}
	return rest
}

// appended drops the start of an attempt: the reader has come by it.
func (h *heldStarts) appended(key attemptKey) { h.take(key) }

// release returns the starts to append now that everything up to seq is folded.
func (h *heldStarts) release(seq uint64) []heldStart {
	var list []heldStart
	for len(h.order) > 0 && (seq >= h.until || len(h.by) > h.most) {
		if s, ok := h.take(h.order[0]); ok {
			list = append(list, s)
			if seq < h.until && !h.missed {
				h.missed, h.knownTo = true, s.seq-1
			}
		}
		h.order = h.order[1:]
	}
	h.forgetDropped()
	return list
}

func (h *heldStarts) take(key attemptKey) (heldStart, bool) {
	s, ok := h.by[key]
	if ok {
		delete(h.by, key)
		h.bytes -= len(s.effect.Start.Input)
	}
	return s, ok
}

// forgetDropped leaves the oldest start that is held at the head of the order,
// and the order not much longer than what is held.
func (h *heldStarts) forgetDropped() {
	for len(h.order) > 0 {
		if _, held := h.by[h.order[0]]; held {
			break
		}
		h.order = h.order[1:]
	}
	if len(h.order) <= 2*len(h.by)+batchEntries {
		return
	}
	kept := make([]attemptKey, 0, len(h.by))
	for _, key := range h.order {
		if _, held := h.by[key]; held {
			kept = append(kept, key)
		}
	}
	h.order = kept
}

// appendedUpTo returns up to where, of the entries folded up to seq, every start
// is known to be in the stream, if all of them were held back.
func (h *heldStarts) appendedUpTo(seq uint64) uint64 {
	if h.missed {
		return min(h.knownTo, seq)
	}
	return h.doneUpTo(seq)
}

// doneUpTo returns up to where, of the entries folded up to seq, no start is
// held back.
func (h *heldStarts) doneUpTo(seq uint64) uint64 {
	if len(h.order) == 0 {
		return seq
	}
	return h.by[h.order[0]].seq - 1
}
