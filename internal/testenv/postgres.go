package testenv

import (
	"context"
	"syscall"
	"testing"

	"jobledger/internal/pgserver"
)

// Postgres is a PostgreSQL server of a test's own.
type Postgres struct {
	t       testing.TB
	options pgserver.Options
	server  *pgserver.Server
}

// StartPostgres starts a PostgreSQL server that this test may stop, kill,
// freeze and restart; it ends with the test. Where o names no directory or
// port, it gets a temporary one and a free one, which it keeps over restarts.
func StartPostgres(t testing.TB, o pgserver.Options) *Postgres {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Port == 0 {
		o.Port = FreePort(t)
	}
	if o.Settings == nil {
		o.Settings = testSettings()
	}
	p := &Postgres{t: t, options: o}
	p.start()
	t.Cleanup(p.Stop)
	return p
}

// URL is the URL of a database, which restarts do not change.
func (p *Postgres) URL(database string) string { return p.server.URL(database) }

// Database creates an empty database with the C collation and returns its URL.
func (p *Postgres) Database(t testing.TB) string {
	t.Helper()
	name, err := createDatabase(setupContext(t), p.URL("postgres"), "")
	if err != nil {
		t.Fatal(err)
	}
	return p.URL(name)
}

// Stop shuts the server down in an orderly way. A stopped one stays so.
func (p *Postgres) Stop() {
	p.t.Helper()
	if p.ended() {
		return
	}
	ctx, cancel := cleanupContext()
	defer cancel()
	if err := p.server.Stop(ctx); err != nil {
		p.t.Errorf("stop the test's PostgreSQL: %v", err)
	}
}

// Kill kills the postmaster; its backends follow by themselves.
func (p *Postgres) Kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	select {
	case <-p.server.Done():
	case <-setupContext(p.t).Done():
		p.t.Fatal("the killed PostgreSQL did not end")
	}
}

// Freeze stops the postmaster in its tracks, at the latest until the test
// ends: running sessions go on, new connections hang.
func (p *Postgres) Freeze() {
	p.t.Helper()
	if p.ended() {
		p.t.Fatal("the test's PostgreSQL does not run: it cannot be frozen")
	}
	freeze(p.t, p.server.PID())
	p.t.Cleanup(p.Thaw)
}

// Thaw lets a frozen postmaster go on. It does nothing to one that has ended.
func (p *Postgres) Thaw() { p.t.Helper(); p.signal(syscall.SIGCONT) }

// Restart starts the server again on its directory and port, after stopping
// it if it still runs.
func (p *Postgres) Restart() {
	p.t.Helper()
	p.Stop()
	p.start()
}

func (p *Postgres) start() {
	p.t.Helper()
	server, err := pgserver.Start(context.Background(), p.options)
	if err != nil {
		p.t.Fatalf("start the test's PostgreSQL: %v", err)
	}
	p.server = server
}

func (p *Postgres) ended() bool {
	select {
	case <-p.server.Done():
		return true
	default:
		return false
	}
}

func (p *Postgres) signal(sig syscall.Signal) {
	p.t.Helper()
	if p.ended() {
		return
	}
	if err := syscall.Kill(p.server.PID(), sig); err != nil {
		p.t.Errorf("send %v to the test's PostgreSQL: %v", sig, err)
	}
}
