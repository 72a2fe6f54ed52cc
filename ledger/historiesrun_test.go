package ledger_test

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// A said is an entry as the stream stores it, but for its sequence, which is
// its place in the history.
type said struct {
	at      time.Time
	subject string
	data    []byte
}

// A history is what a stream might hold. Any sublist of one is a history too,
// which is what shrink rests on.
type history []said

func (h history) String() string {
	var b strings.Builder
	for i, s := range h {
		fmt.Fprintf(&b, "%3d %s %s %s\n", i+1, s.at.Format("15:04:05.000000"), s.subject, s.data)
	}
	return b.String()
}

// A run folds a history entry by entry and checks each step.
type run struct {
	state    *ledger.State
	twin     *twin
	watch    *watch
	entries  []*ledger.Entry
	verdicts []ledger.Verdict
}

func newRun(c *ledger.Coverage) *run {
	r := &run{state: ledger.NewState(0), twin: newTwin(), watch: newWatch()}
	r.state.Coverage = c
	return r
}

// step folds the next entry with the fold and its twin, and compares.
func (r *run) step(s said) (err error) {
	e := ledger.Decode(uint64(len(r.entries)+1), s.at, s.subject, s.data)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		if err != nil {
			err = fmt.Errorf("entry %d (%s): %w", e.Seq, e.Kind, err)
		}
	}()
	want := r.twin.apply(e)
	got, err := applyTo(r.state, e)
	if err != nil {
		return err
	}
	r.entries, r.verdicts = append(r.entries, e), append(r.verdicts, got)
	job := r.state.Job(e.Job)
	after := rowsOf(job)
	if err := r.watch.see(e, got, after); err != nil {
		return err
	}
	if err := differVerdict(r.twin, e, got, want); err != nil {
		return fmt.Errorf("the twin disagrees: %w", err)
	}
	if err := differ(after, rowsOfTwin(r.twin.jobs[e.Job])); err != nil {
		return fmt.Errorf("the twin disagrees: %w", err)
	}
	return checkNextDue(job, after)
}

// applyTo folds an entry into a state that may not have heard of its job.
func applyTo(state *ledger.State, e *ledger.Entry) (ledger.Verdict, error) {
	if e.Job != uuid.Nil && !state.Knows(e.Job) {
		state.LoadAbsent(e.Job)
	}
	return state.Apply(e)
}

// checkNextDue wants the earliest due time, the job's own before its attempts'.
func checkNextDue(job *ledger.Job, r rows) error {
	if job == nil {
		return nil
	}
	due, attempt := r.job.due, 0
	for _, a := range r.attempts {
		if a.due != 0 && (due == 0 || a.due < due) {
			due, attempt = a.due, a.number
		}
	}
	at, n := job.NextDue()
	if micros(at) != due || due != 0 && n != attempt {
		return fmt.Errorf("NextDue says %d of attempt %d, want %d of %d", micros(at), n, due, attempt)
	}
	return nil
}

// replay checks a whole history; seed drives the cuts and the reorderings.
func replay(h history, seed uint64) error {
	r := newRun(nil)
	for _, s := range h {
		if err := r.step(s); err != nil {
			return err
		}
	}
	return r.finish(newDice(seed))
}

// finish checks what holds of a history as a whole.
func (r *run) finish(d *dice) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return errors.Join(
		label("I10, batches and reloads", r.foldInBatches(d)),
		label("I10, shards", r.foldInShards()),
		label("said twice", r.foldTwice()),
		label("reordered", r.foldReordered(d)),
	)
}

func label(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// shrink drops entries from a failing history as long as it fails, in pieces
// that get smaller. It tries at most shrinkTries histories.
func shrink(h history, seed uint64) history {
	tries := 0
	for size := max(len(h)/2, 1); ; {
		smaller := false
		for from := 0; from < len(h) && tries < shrinkTries; {
			candidate := append(h[:from:from], h[min(from+size, len(h)):]...)
			tries++
			if replay(candidate, seed) != nil {
				h, smaller = candidate, true
			} else {
				from += size
			}
		}
		switch {
		case tries >= shrinkTries, size == 1 && !smaller:
			return h
		case size > 1:
			size /= 2
		}
	}
}

const shrinkTries = 3000

// dice are a reproducible source of choices (splitmix64), the same on every
// version of Go.
type dice struct{ state uint64 }

func newDice(seed uint64) *dice { return &dice{state: seed} }

func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// n returns a number from 0 to n-1.
func (d *dice) n(n int) int { return int(d.next() % uint64(n)) }

// percent is true in p of a hundred cases.
func (d *dice) percent(p int) bool { return d.n(100) < p }

// one picks an element.
func one[T any](d *dice, list ...T) T { return list[d.n(len(list))] }
