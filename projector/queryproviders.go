package projector

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"jobledger/ledger"
)

// providerStates selects each provider's latest row, with the row that gave it
// its definition: later ones of the same digest only moved the brake.
const providerStates = "SELECT " + providersSelect + ", d.at, d.actor FROM ledger.providers AS t" +
	" JOIN ledger.providers AS d ON d.name = t.name AND d.seq = (" +
	"SELECT min(u.seq) FROM ledger.providers AS u WHERE u.name = t.name AND u.digest = t.digest AND u.seq > COALESCE((" +
	"SELECT max(v.seq) FROM ledger.providers AS v WHERE v.name = t.name AND v.digest <> t.digest), 0))" +
	" WHERE t.seq = (SELECT max(w.seq) FROM ledger.providers AS w WHERE w.name = t.name) ORDER BY t.name"

// latestProofs selects the latest verification of each provider, kind and
// contract.
const latestProofs = "SELECT " + verificationsSelect + " FROM ledger.provider_verifications AS t WHERE t.seq = (" +
	"SELECT max(u.seq) FROM ledger.provider_verifications AS u WHERE u.name = t.name AND u.kind = t.kind" +
	" AND COALESCE(u.contract, '') = COALESCE(t.contract, ''))"

// ProviderStates returns the providers as they are now, by name, each with its
// latest verification for each kind: that for the contract which the kind has
// now, if there is one. Kinds that fail over have one for each of their providers,
// be it one that says that there was none.
func (q *Queries) ProviderStates(ctx context.Context) ([]*ledger.ProviderState, error) {
	states, err := collect(ctx, q, "read providers", scanProviderState, providerStates)
	if err != nil {
		return nil, err
	}
	proofs, err := collect(ctx, q, "read verifications", scanVerification, latestProofs+" ORDER BY t.name, t.kind, t.seq")
	if err != nil {
		return nil, err
	}
	kinds, err := q.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	contracts := make(map[string]string, len(kinds))
	for _, k := range kinds {
		contracts[k.Kind.Name] = k.Kind.Contract
	}
	byName := make(map[string]*ledger.ProviderState, len(states))
	for _, s := range states {
		byName[s.Name] = s
	}
	for _, v := range proofs {
		if s := byName[v.Provider]; s != nil {
			s.Proofs = addProof(s.Proofs, ledger.ProviderProof{VerificationRow: *v, KindContract: contracts[v.Kind]})
		}
	}
	for _, k := range kinds {
		if len(k.Kind.Providers) < 2 || k.Kind.Failover != ledger.FailoverVerified {
			continue
		}
		for _, p := range k.Kind.Providers {
			if s := byName[p]; s != nil {
				s.Proofs = addMissing(s.Proofs, &k.Kind)
			}
		}
	}
	return states, nil
}

// addMissing adds that there is no proof for a kind, if there is none.
func addMissing(list []ledger.ProviderProof, k *ledger.Kind) []ledger.ProviderProof {
	at, found := slices.BinarySearchFunc(list, k.Name, func(p ledger.ProviderProof, kind string) int { return strings.Compare(p.Kind, kind) })
	if found {
		return list
	}
	return slices.Insert(list, at, ledger.ProviderProof{
		VerificationRow: ledger.VerificationRow{Verification: ledger.Verification{Kind: k.Name}}, KindContract: k.Contract,
	})
}

// Candidates returns the providers to which a job could fail over, in the order
// of its kind as it was when the job was accepted, with why they are not proved at
// a time.
func (q *Queries) Candidates(ctx context.Context, j *ledger.Job, at time.Time) ([]ledger.Candidate, error) {
	kind, err := q.KindAt(ctx, j.Kind, j.KindSeq)
	if err != nil || kind == nil {
		return nil, err
	}
	rows, err := q.Providers(ctx)
	if err != nil {
		return nil, err
	}
	verifications, err := collect(ctx, q, "read verifications", scanVerification, latestProofs+" AND t.kind = $1 ORDER BY t.name, t.kind, t.seq", j.Kind)
	if err != nil {
		return nil, err
	}
	proofs := map[string][]ledger.ProviderProof{}
	for _, v := range verifications {
		proofs[v.Provider] = addProof(proofs[v.Provider], ledger.ProviderProof{VerificationRow: *v, KindContract: kind.Contract})
	}
	providers := map[string]*ledger.ProviderRow{}
	for _, r := range rows {
		providers[r.Name] = r
	}
	var list []ledger.Candidate
	for _, p := range kind.Providers {
		if p == cmp.Or(j.Provider, kind.Providers[0]) { // it needs no proof
			continue
		}
		if providers[p] == nil {
			list = append(list, ledger.Candidate{Provider: p, Lapsed: "not defined"})
			continue
		}
		proof := addMissing(proofs[p], kind)[0]
		list = append(list, ledger.Candidate{Provider: p, Lapsed: proof.Lapsed(providers[p], at)})
	}
	return list, nil
}

// addProof adds the proof for a kind, or puts it in the place of an earlier one
// unless that is for the contract that holds. Proofs come by kind and sequence.
func addProof(list []ledger.ProviderProof, p ledger.ProviderProof) []ledger.ProviderProof {
	last := len(list) - 1
	switch {
	case last < 0 || list[last].Kind != p.Kind:
		return append(list, p)
	case list[last].Contract != list[last].KindContract:
		list[last] = p
	}
	return list
}

func scanProviderState(row pgx.CollectableRow) (*ledger.ProviderState, error) {
	s := &ledger.ProviderState{}
	return s, scanInto(row, append(providerDestinations(&s.ProviderRow), timeInto{&s.DefinedAt}, nullable(&s.DefinedBy))...)
}

const verificationsSelect = "t.seq, t.at, t.actor, t.name, t.kind, t.contract, t.provider_digest, t.passed, t.report, t.expires_at"

func scanVerification(row pgx.CollectableRow) (*ledger.VerificationRow, error) {
	r := &ledger.VerificationRow{}
	var digest []byte
	err := scanInto(row, &r.Seq, timeInto{&r.At}, nullable(&r.Actor), &r.Provider, &r.Kind, nullable(&r.Contract), &digest,
		&r.Passed, &r.Report, timeInto{&r.ExpiresAt})
	r.ProviderDigest = fmt.Sprintf("%x", digest)
	return r, err
}
