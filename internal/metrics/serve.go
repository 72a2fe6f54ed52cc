package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// mostScrapes bounds the scrapes at a time, and scrapeTimeout each of them.
	mostScrapes   = 4
	scrapeTimeout = 10 * time.Second
	// stopTimeout bounds how long a scrape may hold up the process's end.
	stopTimeout = 2 * time.Second
)

// Serve serves GET /metrics on l, which it closes, until ctx ends. It returns nil
// then.
func (m *Metrics) Serve(ctx context.Context, l net.Listener, log *slog.Logger) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Scrapes(log))
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: scrapeTimeout, WriteTimeout: 2 * scrapeTimeout,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the metrics on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(bounded); err != nil { // a scraper is slow, and comes again
		log.Debug("a scrape was cut off", "error", errors.Join(err, server.Close()))
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the metrics on %s: %w", l.Addr(), err)
	}
	return nil
}

// Scrapes is what serves GET /metrics.
func (m *Metrics) Scrapes(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: mostScrapes, Timeout: scrapeTimeout,
	})
}
