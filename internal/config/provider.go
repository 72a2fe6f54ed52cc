package config

import (
	"maps"
	"slices"
	"strings"
)

// providerTypes is the one list of types. A new type is a file with its struct
// and its reading function, and a line here.
var providerTypes = map[string]func(*object) ProviderSpec{
	"http":      readHTTP,
	"exec":      readExec,
	"worker":    readOwn,
	"openai":    readModel(APIOpenAI),
	"anthropic": readModel(APIAnthropic),
}

// readProvider adds the provider to providers.
func readProvider(name string, n node, providers map[string]Provider) {
	checkName(name, n)
	o, ok := n.object("a mapping that describes a provider")
	if !ok {
		return
	}
	types := strings.Join(slices.Sorted(maps.Keys(providerTypes)), " or ")
	var typ string
	need(o, "type", &typ, types, func(n node) (string, bool) {
		s, ok := rawText(n)
		if !ok || providerTypes[s] == nil {
			n.rejectValue(types)
			return "", false
		}
		return s, true
	})
	if typ == "" {
		return // without a type nobody knows which members are right
	}
	p := Provider{Name: name, Concurrency: defaultConcurrency}
	set(o, "concurrency", &p.Concurrency, integer(1, maxConcurrency))
	p.Spec = providerTypes[typ](o)
	o.finish()
	providers[name] = p
}
