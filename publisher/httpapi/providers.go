package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// The members of the body of a pause, and of its end.
var brakeMembers = []string{"reason"}

type brakeBody struct {
	Reason string `json:"reason,omitempty"`
}

type providerView struct {
	Name          string             `json:"name"`
	Type          string             `json:"type"`
	Digest        string             `json:"digest" doc:"SHA-256 of the definition, in hex"`
	Paused        bool               `json:"paused" doc:"no attempt starts on it"`
	PauseReason   *string            `json:"pause_reason"`
	ChangedAt     time.Time          `json:"changed_at" doc:"when it was defined, paused or resumed last"`
	ChangedBy     *string            `json:"changed_by"`
	DefinedAt     time.Time          `json:"defined_at"`
	DefinedBy     *string            `json:"defined_by"`
	Definition    json.RawMessage    `json:"definition" doc:"for operators; null for others"`
	Verifications []verificationView `json:"verifications" doc:"the latest for each kind, also for those of the provider's kinds that fail over and have none"`
}

type verificationView struct {
	Kind      string     `json:"kind"`
	Contract  *string    `json:"contract" doc:"digest of the contract that it is about"`
	Passed    bool       `json:"passed"`
	Valid     bool       `json:"valid" doc:"jobs of the kind may fail over to the provider"`
	Lapsed    *string    `json:"lapsed" doc:"why it is not valid: none, contract changed, provider changed, failed, expired"`
	At        *time.Time `json:"at" doc:"null: there was none"`
	ExpiresAt *time.Time `json:"expires_at" doc:"null: there was none"`
}

type providersPage struct {
	Providers []providerView `json:"providers"`
}

// pendingBrake is the answer while the decision on a brake is not known.
type pendingBrake struct {
	Seq uint64 `json:"seq" doc:"the entry's sequence in the stream"`
}

func viewProvider(s *ledger.ProviderState, who Principal, now time.Time) providerView {
	v := providerView{
		Name: s.Name, Type: s.Type, Digest: s.Digest.String(), Paused: s.Paused, PauseReason: optional(s.PauseReason),
		ChangedAt: s.At.UTC(), ChangedBy: optional(s.Actor), DefinedAt: s.DefinedAt.UTC(), DefinedBy: optional(s.DefinedBy),
		Verifications: make([]verificationView, len(s.Proofs)),
	}
	if who.Operator {
		v.Definition = s.Definition
	}
	for i := range s.Proofs {
		p := &s.Proofs[i]
		lapsed := p.Lapsed(&s.ProviderRow, now)
		v.Verifications[i] = verificationView{
			Kind: p.Kind, Contract: optional(p.Contract), Passed: p.Passed, Valid: lapsed == "", Lapsed: optional(lapsed),
			At: optionalTime(p.At), ExpiresAt: optionalTime(p.ExpiresAt),
		}
	}
	return v
}

// listProviders is GET /v1/providers.
func (a *API) listProviders(w http.ResponseWriter, r *http.Request, who Principal) error {
	if _, err := query(r); err != nil {
		return err
	}
	states, err := a.opts.Reader.ProviderStates(r.Context())
	if err != nil {
		return err
	}
	now := time.Now()
	answer := providersPage{Providers: make([]providerView, len(states))}
	for i, s := range states {
		answer.Providers[i] = viewProvider(s, who, now)
	}
	a.sendJSON(w, http.StatusOK, answer)
	return nil
}

// pauseProvider is POST /v1/providers/{name}/pause.
func (a *API) pauseProvider(w http.ResponseWriter, r *http.Request, who Principal) error {
	return a.brake(w, r, who, true)
}

// resumeProvider is POST /v1/providers/{name}/resume.
func (a *API) resumeProvider(w http.ResponseWriter, r *http.Request, who Principal) error {
	return a.brake(w, r, who, false)
}

func (a *API) brake(w http.ResponseWriter, r *http.Request, who Principal, paused bool) error {
	if !who.Operator { // nobody else's body is read
		return problem(http.StatusForbidden, "forbidden", "only an operator may pause or resume a provider")
	}
	name := r.PathValue("name")
	if !ledger.ValidName(name) {
		return noProvider(name)
	}
	list, err := readFields(w, r, brakeMembers...)
	if err != nil {
		return err
	}
	text := newEntryText().text("name", name).text("actor", who.Actor)
	text.raw("paused", strconv.AppendBool(nil, paused))
	entry, err := text.decode(ledger.ProviderDefine, list)
	if err != nil {
		return err
	}
	answer, err := a.decide(r.Context(), uuid.UUID{}, entry.Body.Message(), nil)
	if err == nil && answer.Reason == ledger.UnknownProvider {
		return noProvider(name)
	}
	if err == nil {
		if p := rejected(uuid.UUID{}, answer); p != nil {
			return p
		}
		return a.answerBrake(w, r, who, name, paused, answer)
	}
	var later *undecided
	if errors.As(err, &later) {
		a.sendPendingBrake(w, later.seq)
		return nil
	}
	return err
}

func noProvider(name string) *Problem {
	return problem(http.StatusNotFound, "not-found", "there is no provider %s", ledger.Quote(name))
}

func (a *API) sendPendingBrake(w http.ResponseWriter, seq uint64) {
	w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	a.sendJSON(w, http.StatusAccepted, pendingBrake{seq})
}

// answerBrake answers with the provider as the decision has left it.
func (a *API) answerBrake(w http.ResponseWriter, r *http.Request, who Principal, name string, paused bool, answer ledger.Answer) error {
	s := a.providerAfter(r.Context(), name, paused, answer)
	if s == nil {
		a.sendPendingBrake(w, answer.Seq)
		return nil
	}
	if answer.Decision == ledger.Duplicate {
		w.Header().Set(ReplayedHeader, "true")
	}
	a.sendJSON(w, http.StatusOK, viewProvider(s, who, time.Now()))
	return nil
}

// providerAfter reads a provider after the decision on its brake; nil if the
// tables do not show that within rereadWait.
func (a *API) providerAfter(ctx context.Context, name string, paused bool, answer ledger.Answer) *ledger.ProviderState {
	ctx, cancel := context.WithTimeout(ctx, rereadWait)
	defer cancel()
	for {
		states, err := a.opts.Reader.ProviderStates(ctx)
		if err != nil {
			a.log.Warn("the providers could not be read after a decision on one", "provider", name, "seq", answer.Seq, "error", err)
			return nil
		}
		for _, s := range states {
			// A repeated wish left no row of its own; a later one may have undone it.
			if s.Name == name && (s.Seq >= answer.Seq || answer.Decision == ledger.Duplicate && s.Paused == paused) {
				return s
			}
		}
		if !a.pause(ctx, rereadPause) {
			return nil
		}
	}
}
