package ledger

import (
	"time"

	"github.com/google/uuid"
)

// A Rules entry sets the version of the fold's rules from here on.
type Rules struct {
	Rules int
	Actor string
}

// Message implements Body.
func (b *Rules) Message() Message {
	o := envelope()
	o.int("rules", int64(b.Rules))
	o.optText("actor", b.Actor)
	return plain(RulesSet, "", o.close())
}

// A KindDefinition entry defines, or defines anew, a kind of work.
type KindDefinition struct {
	Kind  Kind
	Actor string
}

// Message implements Body.
func (b *KindDefinition) Message() Message {
	o := envelope()
	o.raw("kind", b.Kind.AppendJSON(nil))
	o.optText("actor", b.Actor)
	return plain(KindDefine, "", o.close())
}

// A ProviderDefinition entry records what a provider means: its settings
// without secrets, as JSON. Its digest is what verifications refer to.
type ProviderDefinition struct {
	Name       string
	Type       string
	Definition []byte // a JSON object
	Actor      string
	digest     Digest
}

// Message implements Body.
func (b *ProviderDefinition) Message() Message {
	o := envelope()
	o.text("name", b.Name)
	o.text("type", b.Type)
	o.raw("definition", b.Definition)
	o.optText("actor", b.Actor)
	return plain(ProviderDefine, "", o.close())
}

// A ProviderBrake entry pauses a provider or lets it go on. While a provider is
// paused no attempt starts on it, unless an operator forces one; what has
// started goes on. It shares its subject with the provider's definition, which
// it leaves as it is.
type ProviderBrake struct {
	Name   string
	Paused bool
	Reason string // optional
	Actor  string
}

// Message implements Body.
func (b *ProviderBrake) Message() Message {
	o := envelope()
	o.text("name", b.Name)
	o.bool("paused", b.Paused)
	o.optText("reason", b.Reason)
	o.optText("actor", b.Actor)
	return plain(ProviderDefine, "", o.close())
}

// A Verification entry says that a provider's definition passed or failed a
// kind's contract.
type Verification struct {
	Provider       string
	Kind           string
	Contract       string // the contract's digest as the kind names it; "" for a kind without one
	ProviderDigest string // hex, of the provider's definition; "" for one that was never defined
	Passed         bool
	Report         []byte // JSON, may be nil
	ExpiresAt      time.Time
	Actor          string
}

// Message implements Body.
func (b *Verification) Message() Message {
	o := envelope()
	o.text("provider", b.Provider)
	o.text("kind", b.Kind)
	o.optText("contract", b.Contract)
	o.optText("provider_digest", b.ProviderDigest)
	o.bool("passed", b.Passed)
	o.optRaw("report", b.Report)
	o.time("expires_at", b.ExpiresAt)
	o.optText("actor", b.Actor)
	return message(ProviderVerified, "", uuid.UUID{}, 0, o.close())
}
