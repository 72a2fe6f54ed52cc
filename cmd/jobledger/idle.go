package main

import (
	"log/slog"
	"maps"
	"slices"
	"strings"

	"jobledger/internal/config"
)

// tellIdleSettings says which settings this version reads and does not act on
// yet, so that nobody relies on them.
func tellIdleSettings(cfg *config.Config, log *slog.Logger) {
	var idle []string
	if cfg.NATS.Monitor != "" {
		idle = append(idle, "nats.monitor")
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Kinds)) {
		if cfg.Kinds[name].HeartbeatTimeout != 0 {
			idle = append(idle, "kinds."+name+".heartbeat_timeout")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Providers)) {
		if p, ok := cfg.Providers[name].Spec.(config.HTTP); ok && p.Reconcile != (config.Reconcile{}) {
			idle = append(idle, "providers."+name+".reconcile")
		}
	}
	if len(idle) > 0 {
		log.Info("settings that this version does not act on yet", "settings", strings.Join(idle, " "))
	}
}
