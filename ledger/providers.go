package ledger

import (
	"bytes"
	"crypto/sha256"
)

// decodeProvider reads a provider's definition or, if it has the member paused,
// its brake.
func decodeProvider(e *Entry) error {
	b := &ProviderDefinition{}
	brake, isBrake := &ProviderBrake{}, false
	var canonical []byte
	err := body(e, func(name string, r *reader) bool {
		switch name {
		case "name":
			b.Name = r.named()
		case "type":
			b.Type = r.named()
		case "definition":
			if r.peek() != '{' {
				r.expect("an object")
			}
			b.Definition, canonical = r.document()
		case "paused":
			brake.Paused, isBrake = r.bool(), true
		case "reason":
			brake.Reason = r.freeText()
		default:
			return false
		}
		return true
	})
	switch {
	case err != nil:
		return err
	case isBrake && (b.Type != "" || b.Definition != nil):
		return fault("/paused", "it stands beside a definition; say one of them at a time")
	case isBrake:
		brake.Name, brake.Actor = b.Name, e.Actor
		e.Body = brake
		return required("name", b.Name != "")
	case brake.Reason != "":
		return fault("/reason", "it stands beside a definition; it belongs to paused")
	}
	b.Actor, b.digest = e.Actor, providerDigest(b.Type, canonical)
	e.Body = b
	return required("name", b.Name != "", "type", b.Type != "", "definition", b.Definition != nil)
}

func providerDigest(kind string, canonical []byte) Digest {
	return sha256.Sum256(append(append([]byte(kind), 0), canonical...))
}

// ProviderDigest returns the digest that the fold gives to a provider's
// definition, which must be an accepted JSON document.
func ProviderDigest(kind string, definition []byte) (Digest, error) {
	canonical, err := Canonical(nil, definition)
	if err != nil {
		return Digest{}, err
	}
	return providerDigest(kind, canonical), nil
}

// defineProvider takes over a provider's meaning. Its brake stays as it is.
func (st *step) defineProvider(b *ProviderDefinition) {
	row := ProviderRow{Name: b.Name, Type: b.Type, Definition: bytes.Clone(b.Definition), Digest: b.digest}
	if old := st.s.defs.providers[b.Name]; old != nil {
		if old.Digest == b.digest {
			st.duplicate()
			return
		}
		row.Paused, row.PauseReason = old.Paused, old.PauseReason
	}
	st.changeProvider(row, b.Actor)
}

// brake pauses a provider or lets it go on.
func (st *step) brake(b *ProviderBrake) {
	old := st.s.defs.providers[b.Name]
	switch {
	case old == nil:
		st.refuse(UnknownProvider, "no provider %s is defined", Quote(b.Name))
	case old.Paused == b.Paused:
		st.duplicate()
	default:
		row := *old
		row.Paused, row.PauseReason = b.Paused, b.Reason
		st.changeProvider(row, b.Actor)
	}
}

func (st *step) changeProvider(row ProviderRow, actor string) {
	row.Seq, row.At, row.Actor = st.e.Seq, st.s.defs.change(st.e.At), actor
	st.s.LoadProvider(row)
	st.s.changes.Providers = append(st.s.changes.Providers, row)
	st.accept()
}

// paused reports whether no attempt may start on provider by itself.
func (d *definitions) paused(provider string) bool {
	row := d.providers[provider]
	return row != nil && row.Paused
}

// replays reports whether provider's definition promises that the same request
// under the same idempotency key has its effect once: reconcile.replay is true.
func (d *definitions) replays(provider string) bool {
	row := d.providers[provider]
	return row != nil && promisesReplay(row.Definition)
}

func promisesReplay(definition []byte) bool {
	promised := false
	err := members(definition, func(name string, r *reader) error {
		if name != "reconcile" || r.peek() != '{' {
			r.skip()
			return r.err
		}
		return r.each(func(name string, r *reader) error {
			if name == "replay" && (r.peek() == 't' || r.peek() == 'f') {
				promised = r.bool()
				return r.err
			}
			r.skip()
			return r.err
		})
	})
	return err == nil && promised
}
