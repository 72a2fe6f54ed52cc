package ledger

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// KindRow is a stored definition of a kind: a row of the kinds table.
type KindRow struct {
	Seq    uint64
	At     time.Time
	Actor  string
	Kind   Kind
	Digest Digest
}

// ProviderRow is a stored definition of a provider, or the same definition with
// the brake on or off.
type ProviderRow struct {
	Seq         uint64
	At          time.Time // the entry's, but after that of every earlier provider and verification
	Actor       string
	Name, Type  string
	Definition  []byte
	Digest      Digest
	Paused      bool
	PauseReason string
}

// VerificationRow is a stored verification. Its time is as that of a ProviderRow.
type VerificationRow struct {
	Seq uint64
	At  time.Time
	Verification
}

// proof names what a verification is about.
type proof struct{ provider, kind, contract string }

// definitions are what jobs refer to. Every shard folds all of them, so each
// sees exactly those below the entry that it folds.
type definitions struct {
	kinds     map[string][]*KindRow // by name, in the order of the stream
	providers map[string]*ProviderRow
	proofs    map[proof]*VerificationRow // the latest of each
	// changedAt is when a provider or a verification changed last.
	changedAt time.Time
}

// change returns the time to note for a change of a provider or a verification:
// that of its entry, but always after the change before, so that a job that
// waits for a brake can tell by the time alone whether anything has changed.
// The stream's clock may step back when its leader changes.
func (d *definitions) change(at time.Time) time.Time {
	if at.After(d.changedAt) {
		return at
	}
	return d.changedAt.Add(time.Microsecond)
}

func (d *definitions) changed(at time.Time) {
	if at.After(d.changedAt) {
		d.changedAt = at
	}
}

func newDefinitions() definitions {
	return definitions{
		kinds:     map[string][]*KindRow{},
		providers: map[string]*ProviderRow{},
		proofs:    map[proof]*VerificationRow{},
	}
}

// latest returns the definition of a kind that holds now, or nil.
func (d *definitions) latest(name string) *KindRow {
	rows := d.kinds[name]
	if len(rows) == 0 {
		return nil
	}
	return rows[len(rows)-1]
}

// kind returns the definition of a kind that was appended as seq, or nil.
func (d *definitions) kind(name string, seq uint64) *Kind {
	rows := d.kinds[name]
	for i := len(rows) - 1; i >= 0; i-- {
		if rows[i].Seq == seq {
			return &rows[i].Kind
		}
	}
	return nil
}

// verified reports whether provider has a passing verification of kind's
// contract that is current at the given time: not expired, and made of the
// provider's definition that holds now.
func (d *definitions) verified(provider string, kind *Kind, at time.Time) bool {
	v := d.proofs[proof{provider, kind.Name, kind.Contract}]
	if v == nil || !v.Passed || !v.ExpiresAt.After(at) {
		return false
	}
	digest := ""
	if p := d.providers[provider]; p != nil {
		digest = p.Digest.String()
	}
	return v.ProviderDigest == digest
}

// firstChoice returns the provider on which a job starts without proof: the
// one that its request names, else the kind's first.
func firstChoice(j *Job, k *Kind) string {
	if j.Provider != "" {
		return j.Provider
	}
	return k.Providers[0]
}

// LoadKind adds a stored definition; the shell calls it in the order of the
// stream before it folds anything.
func (s *State) LoadKind(row KindRow) {
	s.defs.kinds[row.Kind.Name] = append(s.defs.kinds[row.Kind.Name], &row)
}

// LoadProvider adds a stored definition, in the order of the stream.
func (s *State) LoadProvider(row ProviderRow) {
	s.defs.providers[row.Name] = &row
	s.defs.changed(row.At)
}

// LoadVerification adds a stored verification, in the order of the stream.
func (s *State) LoadVerification(row VerificationRow) {
	s.defs.proofs[proof{row.Provider, row.Kind, row.Contract}] = &row
	s.defs.changed(row.At)
}

// Defined reports whether an entry that defines something is the one that did,
// or an older one; an entry that repeated a definition is not. It serves to
// tell again what was decided.
func (s *State) Defined(e *Entry) bool {
	switch b := e.Body.(type) {
	case *KindDefinition:
		return s.defs.kind(b.Kind.Name, e.Seq) != nil
	case *ProviderDefinition:
		return s.defs.changedSince(b.Name, e.Seq)
	case *ProviderBrake:
		return s.defs.changedSince(b.Name, e.Seq)
	case *Verification:
		row := s.defs.proofs[proof{b.Provider, b.Kind, b.Contract}]
		return row != nil && row.Seq >= e.Seq
	}
	return true
}

// changedSince reports whether the provider's row is that of the entry at seq, or
// of a later one.
func (d *definitions) changedSince(provider string, seq uint64) bool {
	row := d.providers[provider]
	return row != nil && row.Seq >= seq
}

func (st *step) defineKind(b *KindDefinition) {
	digest := b.Kind.Digest()
	if old := st.s.defs.latest(b.Kind.Name); old != nil && old.Digest == digest {
		st.duplicate()
		return
	}
	row := KindRow{Seq: st.e.Seq, At: st.e.At, Actor: b.Actor, Kind: b.Kind, Digest: digest}
	row.Kind.Providers = slices.Clone(b.Kind.Providers)
	st.s.LoadKind(row)
	st.s.changes.Kinds = append(st.s.changes.Kinds, row)
	st.accept()
}

func (st *step) verify(b *Verification) {
	if st.s.defs.latest(b.Kind) == nil {
		st.refuse(UnknownKind, "no kind %s is defined", Quote(b.Kind))
		return
	}
	row := VerificationRow{Seq: st.e.Seq, At: st.s.defs.change(st.e.At), Verification: *b}
	row.Report = bytes.Clone(b.Report)
	st.s.LoadVerification(row)
	st.s.changes.Verifications = append(st.s.changes.Verifications, row)
	st.accept()
}

// currentRules is the version of the rules that a ledger begins with.
//
// A change of what the fold decides, limits included, is a new version. Both
// stay in the code for ever, and the old one decides all that comes before the
// rules.set that names the new one.
const currentRules = 1

// MaxRules is the newest version of the fold's rules that this binary knows.
const MaxRules = currentRules + trialRules

func (st *step) setRules(b *Rules) error {
	if b.Rules > MaxRules {
		return &CorruptionError{Seq: st.e.Seq, Problem: fmt.Sprintf(
			"it sets version %d of the rules, and this binary knows versions up to %d; run a newer jobledger", b.Rules, MaxRules)}
	}
	if b.Rules < st.s.rules {
		st.refuse(Forbidden, "rules %d are older than the rules %d that hold", b.Rules, st.s.rules)
		return nil
	}
	if b.Rules == st.s.rules && st.s.rulesSet {
		st.duplicate()
		return nil
	}
	st.s.rules, st.s.rulesSet = b.Rules, true
	st.accept()
	return nil
}
