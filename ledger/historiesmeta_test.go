package ledger_test

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// A store keeps what a database would: the rows that were drained, and nothing
// that shares memory with the state they came from.
type store struct {
	jobs          map[uuid.UUID]*ledger.Job
	kinds         []ledger.KindRow
	providers     []ledger.ProviderRow
	verifications []ledger.VerificationRow
	rules         int
}

func newStore() *store { return &store{jobs: map[uuid.UUID]*ledger.Job{}} }

// put writes changes as the shell does, with the compare-and-swap.
func (s *store) put(state *ledger.State) error {
	c := state.Drain()
	for i := range c.Jobs {
		if slices.ContainsFunc(c.Jobs[:i], func(j ledger.Job) bool { return j.ID == c.Jobs[i].ID }) {
			return fmt.Errorf("job %s is drained twice at once", c.Jobs[i].ID)
		}
		if err := s.putJob(&c.Jobs[i]); err != nil {
			return err
		}
	}
	for i := range c.Attempts {
		if err := s.putAttempt(&c.Attempts[i]); err != nil {
			return err
		}
	}
	s.kinds = append(s.kinds, c.Kinds...)
	s.providers = append(s.providers, c.Providers...)
	s.verifications = append(s.verifications, c.Verifications...)
	s.rules = state.Rules()
	again := state.Drain()
	if n := len(again.Jobs) + len(again.Attempts) + len(again.Kinds) + len(again.Providers) + len(again.Verifications); n != 0 {
		return fmt.Errorf("%d rows are drained twice", n)
	}
	return nil
}

func (s *store) putJob(row *ledger.Job) error {
	old := s.jobs[row.ID]
	if row.IsNew() != (old == nil) {
		return fmt.Errorf("job %s: new is %t, stored is %t", row.ID, row.IsNew(), old != nil)
	}
	j := *row
	j.Seqs, j.Attempts = slices.Clone(row.Seqs), nil
	if old != nil {
		if version, by := row.StoredVersion(); version != old.Version || by != old.CompletedBy {
			return fmt.Errorf("job %s: the write expects version %d won by %d, stored are %d and %d",
				row.ID, version, by, old.Version, old.CompletedBy)
		}
		j.Attempts, j.Input = old.Attempts, old.Input
		if row.Result == nil {
			j.Result = old.Result
		}
	}
	s.jobs[row.ID] = &j
	return nil
}

func (s *store) putAttempt(row *ledger.Attempt) error {
	j := s.jobs[row.Job]
	if j == nil || row.IsNew() != (row.Number == len(j.Attempts)+1) {
		return fmt.Errorf("attempt %d of job %s: new is %t, stored job %+v", row.Number, row.Job, row.IsNew(), j)
	}
	a := *row
	a.Seqs, a.Usage = slices.Clone(row.Seqs), slices.Clone(row.Usage)
	if row.IsNew() {
		j.Attempts = append(j.Attempts, &a)
	} else {
		j.Attempts[row.Number-1] = &a
	}
	return nil
}

// open makes a fresh state with all definitions and no job.
func (s *store) open() *ledger.State {
	state := ledger.NewState(s.rules)
	for _, k := range s.kinds {
		state.LoadKind(k)
	}
	for _, p := range s.providers {
		state.LoadProvider(p)
	}
	for _, v := range s.verifications {
		state.LoadVerification(v)
	}
	return state
}

// load brings a job's rows into the state, without input and result, in
// memory of their own.
func (s *store) load(state *ledger.State, id uuid.UUID) {
	old := s.jobs[id]
	if old == nil {
		state.LoadAbsent(id)
		return
	}
	j := *old
	j.Input, j.Result, j.Seqs, j.Attempts = nil, nil, slices.Clone(old.Seqs), nil
	for _, a := range old.Attempts {
		b := *a
		b.Seqs = slices.Clone(a.Seqs)
		j.Attempts = append(j.Attempts, &b)
	}
	state.Load(&j)
}

// same compares the stored rows with those of the run.
func (s *store) same(r *run) error {
	for id, want := range r.twin.jobs {
		got := s.jobs[id]
		if err := differ(rowsOf(got), rowsOf(r.state.Job(id))); err != nil {
			return err
		}
		if string(got.Input) != want.input || string(got.Result) != want.result {
			return fmt.Errorf("job %s is stored with input %s and result %s, want %s and %s",
				id, got.Input, got.Result, want.input, want.result)
		}
	}
	if len(s.jobs) != len(r.twin.jobs) {
		return fmt.Errorf("%d jobs are stored, want %d", len(s.jobs), len(r.twin.jobs))
	}
	return nil
}

// fold folds one entry and compares the verdict with the run's.
func (r *run) fold(state *ledger.State, e *ledger.Entry) error {
	got, err := state.Apply(e)
	if err != nil {
		return err
	}
	want := r.verdicts[e.Seq-1]
	if got.Answer != want.Answer || len(got.Effects) != len(want.Effects) {
		return fmt.Errorf("entry %d: verdict %+v, want %+v", e.Seq, got.Answer, want.Answer)
	}
	for i, g := range got.Effects {
		w := want.Effects[i]
		if g.Kind != w.Kind || g.Attempt != w.Attempt || g.Provider != w.Provider {
			return fmt.Errorf("entry %d: effect %+v, want %+v", e.Seq, g, w)
		}
		if g.Kind == ledger.StartAttempt && g.Start.Input != nil && string(g.Start.Input) != r.twin.jobs[e.Job].input {
			return fmt.Errorf("entry %d: the start has the input %s", e.Seq, g.Start.Input)
		}
	}
	return nil
}

// foldInBatches cuts the history anywhere, stores what each batch changed, and
// goes on from the rows: sometimes with a fresh state, sometimes with one that
// forgot some jobs.
func (r *run) foldInBatches(d *dice) error {
	s := newStore()
	state := s.open()
	most := one(d, 1, 3, 10, len(r.entries))
	for from := 0; from < len(r.entries); {
		to := min(from+1+d.n(most), len(r.entries))
		for _, e := range r.entries[from:to] {
			if e.Job != uuid.Nil && !state.Knows(e.Job) {
				s.load(state, e.Job)
			}
			if err := r.fold(state, e); err != nil {
				return err
			}
		}
		if err := s.put(state); err != nil {
			return err
		}
		if d.percent(50) {
			state = s.open()
		} else if e := r.entries[to-1]; e.Job != uuid.Nil {
			state.Forget(e.Job)
		}
		from = to
	}
	return s.same(r)
}

// foldInShards gives each job to one of several states, and definitions to all.
func (r *run) foldInShards() error {
	for _, shards := range []int{2, 5} {
		states := make([]*ledger.State, shards)
		stores := make([]*store, shards)
		for i := range states {
			stores[i] = newStore()
			states[i] = stores[i].open()
		}
		for _, e := range r.entries {
			for i, state := range states {
				if e.Job != uuid.Nil && int(e.Job[15])%shards != i {
					continue
				}
				if e.Job != uuid.Nil && !state.Knows(e.Job) {
					state.LoadAbsent(e.Job)
				}
				if err := r.fold(state, e); err != nil {
					return err
				}
			}
		}
		all := newStore()
		for i, s := range stores {
			if err := s.put(states[i]); err != nil {
				return err
			}
			for id, j := range s.jobs {
				all.jobs[id] = j
			}
		}
		if err := all.same(r); err != nil {
			return fmt.Errorf("%d shards: %w", shards, err)
		}
	}
	return nil
}

// foldTwice says every accepted request, claim and completion a second time
// right after the first: nothing may come of it.
func (r *run) foldTwice() error {
	s := newStore()
	state := s.open()
	for _, e := range r.entries {
		if e.Job != uuid.Nil && !state.Knows(e.Job) {
			state.LoadAbsent(e.Job)
		}
		if err := r.fold(state, e); err != nil {
			return err
		}
		repeatable := e.Kind == ledger.JobRequest || e.Kind == ledger.AttemptClaim || e.Kind == ledger.AttemptComplete
		if !repeatable || r.verdicts[e.Seq-1].Answer.Decision != ledger.Accepted {
			continue
		}
		again := *e
		again.Seq += 1 << 32
		got, err := state.Apply(&again)
		if err != nil {
			return err
		}
		if got.Answer.Decision != ledger.Duplicate || len(got.Effects) != 0 || got.Rejection != nil {
			return fmt.Errorf("entry %d again: %+v", e.Seq, got)
		}
	}
	if err := s.put(state); err != nil {
		return err
	}
	return s.same(r)
}

// foldReordered changes the order of entries that concern different jobs, with
// their sequences and times. Definitions keep their place among all.
func (r *run) foldReordered(d *dice) error {
	order := slices.Clone(r.entries)
	for range 2 * len(order) {
		i := d.n(len(order))
		for ; i+1 < len(order); i++ {
			a, b := order[i], order[i+1]
			if a.Job == b.Job || a.Job == uuid.Nil || b.Job == uuid.Nil || d.percent(20) {
				break
			}
			order[i], order[i+1] = b, a
		}
	}
	s := newStore()
	state := s.open()
	for _, e := range order {
		if e.Job != uuid.Nil && !state.Knows(e.Job) {
			state.LoadAbsent(e.Job)
		}
		if err := r.fold(state, e); err != nil {
			return err
		}
	}
	if err := s.put(state); err != nil {
		return err
	}
	return s.same(r)
}
