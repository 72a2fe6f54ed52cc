package projector

import (
	"time"

	"jobledger/ledger"
)

// Folded names what became of an entry, for counting.
type Folded struct {
	Entry    ledger.EntryKind
	Decision ledger.Decision
	Reason   ledger.Reason // "" when accepted or duplicate
}

// A CommitReport describes a stored batch.
type CommitReport struct {
	Shard  int
	Seq    uint64         // the shard's checkpoint now
	Folded map[Folded]int // entries of the batch that ask for a decision, by kind and decision
	Oldest time.Time      // when the batch's first entry was stored; zero for an empty batch
	Took   time.Duration  // of the transaction
	Late   int            // starts of the shard that could not be appended yet
}

// An Observer learns what a projector does. Its methods are called from the
// projector's goroutines and must not block.
type Observer interface {
	Committed(CommitReport)
}

type noObserver struct{}

func (noObserver) Committed(CommitReport) {}
