package ledger

import (
	"fmt"
	"reflect"
	"slices"
)

// endBatch writes what has changed to the story's store, as a projector does,
// and begins the next batch.
func (s *story) endBatch(mode batching) error {
	if mode == oneBatch {
		return nil
	}
	c := s.state.Drain()
	s.defs.Kinds = append(s.defs.Kinds, c.Kinds...)
	s.defs.Providers = append(s.defs.Providers, c.Providers...)
	s.defs.Verifications = append(s.defs.Verifications, c.Verifications...)
	for i := range c.Jobs {
		if err := s.storeJob(&c.Jobs[i]); err != nil {
			return err
		}
	}
	for i := range c.Attempts {
		if err := s.storeAttempt(&c.Attempts[i]); err != nil {
			return err
		}
	}
	if again := s.state.Drain(); !reflect.DeepEqual(again, Changes{Jobs: []Job{}, Attempts: []Attempt{}}) {
		return fmt.Errorf("drained twice, the state gives %+v", again)
	}
	if err := s.compare(); err != nil {
		return err
	}
	if mode == reloaded {
		s.reload()
	}
	return nil
}

// storeJob is the compare-and-swap that a projector's write repeats.
func (s *story) storeJob(row *Job) error {
	stored := s.store[row.ID]
	if row.IsNew() != (stored == nil) || row.IsNew() != (row.Input != nil) {
		return fmt.Errorf("job %s: new is %v, but it is stored: %v; its input is %q",
			row.Key, row.IsNew(), stored != nil, row.Input)
	}
	attempts := []*Attempt(nil)
	if stored != nil {
		version, completedBy := row.StoredVersion()
		if stored.Version != version || stored.CompletedBy != completedBy {
			return fmt.Errorf("job %s: the write expects version %d by %d; version %d by %d is stored",
				row.Key, version, completedBy, stored.Version, stored.CompletedBy)
		}
		attempts = stored.Attempts
	}
	row.Attempts = attempts
	s.store[row.ID] = row
	return nil
}

func (s *story) storeAttempt(row *Attempt) error {
	j := s.store[row.Job]
	isNew := row.Number == len(j.Attempts)+1
	if row.IsNew() != isNew {
		return fmt.Errorf("attempt %d: new is %v, but %d are stored", row.Number, row.IsNew(), len(j.Attempts))
	}
	if isNew {
		j.Attempts = append(j.Attempts, row)
	} else {
		j.Attempts[row.Number-1] = row
	}
	return nil
}

// compare checks that the store holds what the state holds, cell by cell: a
// change that was not noted would be lost with the batch.
func (s *story) compare() error {
	for id, row := range s.store {
		live := s.state.Job(id)
		if live.Input != nil || live.Result != nil {
			return fmt.Errorf("job %s keeps its input or result in memory after they were stored", row.Key)
		}
		if stored, held := unmarked(row), unmarked(live); !reflect.DeepEqual(stored, held) {
			return fmt.Errorf("job %s is stored as\n%+v\nbut the state holds\n%+v", row.Key, stored, held)
		}
	}
	return nil
}

// unmarked copies a job without what is not a part of its stored row.
func unmarked(j *Job) *Job {
	c := *j
	c.Input, c.Result, c.mark = nil, nil, mark{}
	c.Seqs = slices.Clone(j.Seqs)
	c.Attempts = make([]*Attempt, len(j.Attempts))
	for i, a := range j.Attempts {
		copied := *a
		copied.Seqs, copied.mark = slices.Clone(a.Seqs), mark{}
		c.Attempts[i] = &copied
	}
	return &c
}

// reload begins with a new state and what is stored.
func (s *story) reload() {
	s.state = NewState(s.state.Rules())
	s.state.Coverage = s.coverage
	for _, row := range s.defs.Kinds {
		s.state.LoadKind(row)
	}
	for _, row := range s.defs.Providers {
		s.state.LoadProvider(row)
	}
	for _, row := range s.defs.Verifications {
		s.state.LoadVerification(row)
	}
	for _, row := range s.store {
		s.state.Load(unmarked(row))
	}
}
