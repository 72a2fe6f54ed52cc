package publisher

import (
	"time"

	"jobledger/ledger"
)

// An Observer learns what becomes of entries, for counting. Its methods are
// called by the goroutines that append; they must be quick, must not block and
// must be safe for concurrent use. Subjects are given without the ledger's
// prefix, as ledger.ParseSubject takes them.
type Observer interface {
	// Appended is called after each append, with the error that its caller gets:
	// nil or an *AppendError. took is all of it, repetitions included.
	Appended(subject string, ack Ack, err error, took time.Duration)
	// Decided is called after each Decide of a Client, with what its caller
	// gets. Appended was called before unless the append was never tried.
	Decided(subject string, answer ledger.Answer, err error, took time.Duration)
}

type noObserver struct{}

func (noObserver) Appended(string, Ack, error, time.Duration)          {}
func (noObserver) Decided(string, ledger.Answer, error, time.Duration) {}
