package config

import (
	"slices"
	"strings"
	"time"
)

// readKind adds the kind to kinds. providers are the names that it may use.
func readKind(name string, n node, providers []string, kinds map[string]Kind) {
	checkName(name, n)
	o, ok := n.object("a mapping that describes a kind")
	if !ok {
		return
	}
	k := defaultKind(name)
	const list = "a list of at least one provider's name"
	need(o, "providers", &k.Providers, list, listOf(1, list, providerName(providers)))
	set(o, "effects", &k.Effects, oneOf(EffectsExternal, EffectsNone))
	set(o, "mode", &k.Mode, oneOf(ModeExclusive, ModeRace))
	set(o, "hedge_after", &k.HedgeAfter, duration(minWait))
	set(o, "start_timeout", &k.StartTimeout, duration(0))
	set(o, "attempt_timeout", &k.AttemptTimeout, duration(minWait))
	set(o, "heartbeat_timeout", &k.HeartbeatTimeout, heartbeat)
	set(o, "max_attempts", &k.MaxAttempts, integer(1, maxAttemptsPerJob))
	set(o, "failover", &k.Failover, oneOf(FailoverVerified, FailoverNever))
	set(o, "contract", &k.Contract, filledText)
	section(o, "backoff", func(b *object) { readBackoff(b, &k.Backoff) })
	o.finish()
	checkRace(o, k)
	kinds[name] = k
}

// heartbeat reads how long a worker may be silent: nothing, or at least
// minHeartbeat.
func heartbeat(n node) (time.Duration, bool) {
	d, ok := duration(0)(n)
	if ok && d > 0 && d < minHeartbeat {
		n.reject(d.String(), "0s (only the deadline counts) or at least "+minHeartbeat.String()+
			": workers announce themselves every second or so, and a shorter silence proves nothing")
		return 0, false
	}
	return d, ok
}

func providerName(known []string) reader[string] {
	return func(n node) (string, bool) {
		s, ok := rawText(n)
		if ok && slices.Contains(known, s) {
			return s, true
		}
		expected := "a name that stands under providers"
		if len(known) > 0 {
			expected += " (" + clip(strings.Join(known, ", ")) + ")"
		}
		n.rejectValue(expected)
		return "", false
	}
}

func readBackoff(o *object, b *Backoff) {
	set(o, "initial", &b.Initial, duration(minWait))
	set(o, "max", &b.Max, duration(minWait))
	set(o, "factor", &b.FactorMilli, milli(minFactorMilli, maxFactorMilli))
	if b.Max < b.Initial && o.sound("initial", "max") {
		o.spot("max").reject(b.Max.String(), "at least initial, "+b.Initial.String())
	}
}

// checkRace checks what the members of a kind demand of each other.
func checkRace(o *object, k Kind) {
	if !o.sound("mode") {
		return
	}
	mode, hedge := o.members["mode"], o.members["hedge_after"]
	if k.Mode != ModeRace {
		if o.has("hedge_after") {
			hedge.reject("a hedge in mode exclusive", "mode: race with it")
		}
		return
	}
	if k.Effects != EffectsNone && o.sound("effects") {
		mode.reject("race with effects: external", "effects: none, because several attempts run at once")
	}
	if !o.has("hedge_after") {
		mode.reject("race without hedge_after", `a hedge_after, such as "2s"`)
	}
	if len(k.Providers) == 1 {
		mode.reject("race with one provider", "at least two to race")
	}
}
