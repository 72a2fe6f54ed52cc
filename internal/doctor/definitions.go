package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"jobledger/workers"
)

func kindsDiffer(ctx context.Context, p *Patient) (Status, string) {
	if p.Tables == nil {
		return noTables()
	}
	rows, err := p.Tables.Kinds(ctx)
	if err != nil {
		return problem("the kinds cannot be read: %v", err)
	}
	stored := map[string]json.RawMessage{}
	for _, r := range rows {
		stored[r.Kind.Name] = r.Kind.AppendJSON(nil)
	}
	return judgeDefinitions(p.Kinds, stored)
}

func providersDiffer(ctx context.Context, p *Patient) (Status, string) {
	if p.Tables == nil {
		return noTables()
	}
	rows, err := p.Tables.Providers(ctx)
	if err != nil {
		return problem("the providers cannot be read: %v", err)
	}
	stored := map[string]json.RawMessage{}
	for _, r := range rows {
		stored[r.Name] = ProviderJSON(r.Type, r.Definition)
	}
	return judgeDefinitions(p.Providers, stored)
}

// ProviderJSON is a provider's definition with its type, for comparison.
func ProviderJSON(kind string, definition []byte) json.RawMessage {
	return fmt.Appendf(nil, `{"type":%q,"definition":%s}`, kind, definition)
}

// judgeDefinitions compares what the configuration defines with what the ledger
// has. What only the ledger has may come from another file.
func judgeDefinitions(configured, stored map[string]json.RawMessage) (Status, string) {
	if len(configured) == 0 {
		return unchecked("the configuration defines none; the ledger has %d", len(stored))
	}
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		found, there := stored[name]
		if !there {
			faults = append(faults, name+" is not in the ledger")
			continue
		}
		if differences := compareJSON("", found, configured[name]); len(differences) > 0 {
			faults = append(faults, name+" differs: "+strings.Join(differences, ", "))
		}
	}
	if len(faults) > 0 {
		return problem("%s: jobledger kind apply makes the ledger follow the configuration", strings.Join(faults, "; "))
	}
	more := ""
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if _, ours := configured[name]; !ours {
			more += " " + name
		}
	}
	if more != "" {
		return ok("%d as configured; only in the ledger:%s", len(configured), more)
	}
	return ok("%d as configured", len(configured))
}

// compareJSON lists the members in which two objects differ, with both values.
func compareJSON(at string, ledger, configured []byte) []string {
	var a, b map[string]json.RawMessage
	if json.Unmarshal(ledger, &a) != nil || json.Unmarshal(configured, &b) != nil || a == nil || b == nil {
		if bytes.Equal(compact(ledger), compact(configured)) {
			return nil
		}
		return []string{fmt.Sprintf("%s is %s in the ledger and %s in the configuration", strings.TrimPrefix(at, "."), compact(ledger), compact(configured))}
	}
	var list []string
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		list = append(list, compareJSON(at+"."+name, a[name], b[name])...)
	}
	return list
}

// compact is a value without white space; what is missing is "nothing".
func compact(value []byte) []byte {
	var out bytes.Buffer
	if len(value) == 0 || json.Compact(&out, value) != nil {
		return []byte("nothing")
	}
	return out.Bytes()
}

// workersMissing: a provider of a kind that nobody works for lets jobs wait.
func workersMissing(ctx context.Context, p *Patient) (Status, string) {
	if p.Conn == nil {
		return noConnection()
	}
	if p.Tables == nil {
		return noTables()
	}
	rows, err := p.Tables.Kinds(ctx)
	if err != nil {
		return problem("the kinds cannot be read: %v", err)
	}
	kinds := map[string][]string{} // by provider
	for _, r := range rows {
		for _, provider := range r.Kind.Providers {
			kinds[provider] = append(kinds[provider], r.Kind.Name)
		}
	}
	if len(kinds) == 0 {
		return unchecked("the ledger has no kinds")
	}
	js, err := jetstream.New(p.Conn)
	if err != nil {
		return problem("%v", err)
	}
	var missing, busy []string
	for _, provider := range slices.Sorted(maps.Keys(kinds)) {
		consumer, err := js.Consumer(ctx, p.Stream, workers.ConsumerName(provider))
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return problem("the workers of provider %s cannot be looked for: %v", provider, err)
		}
		switch {
		case err != nil || consumer.CachedInfo().NumWaiting == 0 && consumer.CachedInfo().NumAckPending == 0:
			missing = append(missing, fmt.Sprintf("%s (of %s)", provider, strings.Join(kinds[provider], ", ")))
		case consumer.CachedInfo().NumWaiting == 0:
			busy = append(busy, fmt.Sprintf("%s (%d starts are being worked on)", provider, consumer.CachedInfo().NumAckPending))
		}
	}
	switch {
	case len(missing) > 0:
		return problem("nobody works for %s: start jobledger serve --roles worker with that provider, or its own worker", strings.Join(missing, "; "))
	case len(busy) > 0:
		return ok("each of %d providers has workers; none is free for %s", len(kinds), strings.Join(busy, "; "))
	}
	return ok("each of %d providers has workers", len(kinds))
}
