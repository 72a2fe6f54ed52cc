package config

// Own is a provider of type worker: its attempts are worked on by workers of
// somebody's own, in any language, which follow the worker protocol. The role
// worker leaves them alone.
type Own struct {
	// Version is free text that changes when the workers' results do, so that
	// what was verified before is verified again; empty: none.
	Version string
}

func (Own) providerType() string { return "worker" }

func readOwn(o *object) ProviderSpec {
	var w Own
	set(o, "version", &w.Version, filledText)
	return w
}
