package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds of the server. An answer may take as long as the longest wait and
// what comes around it.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 30 * time.Second
	writeTimeout   = MaxWait + 30*time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10

	// DefaultGrace is how long Serve lets requests finish.
	DefaultGrace = 10 * time.Second
)

// Serve serves the API on l, which it closes, until ctx ends; then it ends the
// waits and lets requests finish within grace (0: DefaultGrace). It returns nil
// if all of them did.
func (a *API) Serve(ctx context.Context, l net.Listener, grace time.Duration) error {
	if grace <= 0 {
		grace = DefaultGrace
	}
	handler := http.Handler(a)
	if a.opts.Around != nil {
		handler = a.opts.Around(a)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext:       withConn,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	a.EndWaits()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := server.Shutdown(bounded)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests were still running after %s: %w", grace, err), server.Close())
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve HTTP on %s: %w", l.Addr(), served))
	}
	return err
}
