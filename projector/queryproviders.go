package projector

import (
	"context"

	"github.com/jackc/pgx/v5"

	"jobledger/ledger"
)

// Providers returns the definitions of providers that hold now, by name.
func (q *Queries) Providers(ctx context.Context) ([]*ledger.ProviderRow, error) {
	scan := func(row pgx.CollectableRow) (*ledger.ProviderRow, error) {
		r := &ledger.ProviderRow{}
		return r, scanInto(row, &r.Seq, timeInto{&r.At}, nullable(&r.Actor), &r.Name, &r.Type, &r.Definition, digestInto{&r.Digest})
	}
	return collect(ctx, q, "read providers", scan, "SELECT t.seq, t.at, t.actor, t.name, t.type, t.definition, t.digest"+
		" FROM ledger.providers AS t WHERE t.seq = (SELECT max(u.seq) FROM ledger.providers AS u WHERE u.name = t.name) ORDER BY t.name")
}
