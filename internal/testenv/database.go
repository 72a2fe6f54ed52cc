package testenv

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Database creates an empty database for this test, with the C collation, on
// the shared server or the one that DatabaseEnv names, drops it when the test
// ends, open connections or not, and returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	return createDatabase(t, adminURL(t), "")
}

// adminURL is the URL of a database that exists, on the server for tests.
func adminURL(t testing.TB) string {
	t.Helper()
	if given := os.Getenv(DatabaseEnv); given != "" {
		return given
	}
	server, err := shared.startPostgres()
	if err != nil {
		t.Fatalf("start the tests' PostgreSQL: %v", err)
	}
	return server.URL("postgres")
}

// createDatabase makes a database on admin's server, a copy of template if
// that is not "".
func createDatabase(t testing.TB, admin, template string) string {
	t.Helper()
	name := unique()
	conn := connectAdmin(t, setupContext(t), admin)
	defer conn.Close(context.Background())
	if _, err := conn.Exec(setupContext(t), createStatement(conn, name, template)); err != nil {
		t.Fatalf("create a database for the test: %v", err)
	}
	t.Cleanup(func() { dropDatabase(t, admin, name) })
	return replaceDatabase(t, admin, name)
}

func createStatement(conn *pgx.Conn, name, template string) string {
	quoted := pgx.Identifier{name}.Sanitize()
	switch {
	case isCockroach(conn): // compares text by bytes anyway
		return "CREATE DATABASE " + quoted
	case template != "":
		return "CREATE DATABASE " + quoted + " TEMPLATE " + pgx.Identifier{template}.Sanitize()
	default:
		return "CREATE DATABASE " + quoted + " TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
	}
}

func dropDatabase(t testing.TB, admin, name string) {
	t.Helper()
	ctx, cancel := cleanupContext()
	defer cancel()
	conn := connectAdmin(t, ctx, admin)
	defer conn.Close(ctx)
	how := " WITH (FORCE)" // ends the connections that are left
	if isCockroach(conn) {
		how = " CASCADE"
	}
	if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+how); err != nil {
		t.Errorf("drop the test's database: %v", err)
	}
}

func connectAdmin(t testing.TB, ctx context.Context, admin string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		t.Fatalf("connect to the tests' database server: %v", err)
	}
	return conn
}

// isCockroach asks the parameters that the server reported at log-in.
func isCockroach(conn *pgx.Conn) bool {
	return conn.PgConn().ParameterStatus("crdb_version") != ""
}

func replaceDatabase(t testing.TB, admin, name string) string {
	t.Helper()
	u, err := url.Parse(admin)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		t.Fatal(fmt.Errorf("%s must be a postgres:// URL, but is %q (%w)", DatabaseEnv, admin, err))
	}
	u.Path = "/" + name
	return u.String()
}
