package projector

import (
	"context"
	"fmt"

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
	" AND COALESCE(u.contract, '') = COALESCE(t.contract, '')) ORDER BY t.name, t.kind, t.seq"

// ProviderStates returns the providers as they are now, by name, each with its
// latest verification for each kind: that for the contract which the kind has
// now, if there is one.
func (q *Queries) ProviderStates(ctx context.Context) ([]*ledger.ProviderState, error) {
	states, err := collect(ctx, q, "read providers", scanProviderState, providerStates)
	if err != nil {
		return nil, err
	}
	proofs, err := collect(ctx, q, "read verifications", scanVerification, latestProofs)
	if err != nil || len(proofs) == 0 {
		return states, err
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
	return states, nil
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
