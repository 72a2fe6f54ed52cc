package main

import (
	"log/slog"
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
	if len(idle) > 0 {
		log.Info("settings that this version does not act on yet", "settings", strings.Join(idle, " "))
	}
}
