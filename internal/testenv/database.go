package testenv

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Database creates an empty database for this test, with the C collation, on
// the shared server or the one that DatabaseEnv names, drops it when the test
// ends, open connections or not, and returns its URL.
func Database(t testing.TB) string {
	t.Helper()
	return droppedDatabase(t, adminURL(t), "")
}

// prepared are the template databases of this test binary, by their names.
var prepared sync.Map // string → *lazy[string]

// PreparedDatabase is Database with contents: prepare fills a template once
// for this test binary and each kind, and the test gets a copy of it. prepare
// leaves no connection open. CockroachDB copies no databases, so there it is
// run for each test.
func PreparedDatabase(t testing.TB, kind string, prepare func(ctx context.Context, url string) error) string {
	t.Helper()
	admin := adminURL(t)
	if onCockroach(t, admin) {
		fresh := droppedDatabase(t, admin, "")
		if err := prepare(setupContext(t), fresh); err != nil {
			t.Fatalf("prepare a database of kind %s: %v", kind, err)
		}
		return fresh
	}
	entry, _ := prepared.LoadOrStore(kind, &lazy[string]{})
	template, err := entry.(*lazy[string]).get(func() (string, error) {
		return makeTemplate(admin, prepare)
	})
	if err != nil {
		t.Fatalf("prepare a database of kind %s: %v", kind, err)
	}
	return droppedDatabase(t, admin, template)
}

// makeTemplate returns the name of a new database that prepare has filled.
func makeTemplate(admin string, prepare func(ctx context.Context, url string) error) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	template, err := createDatabase(ctx, admin, "")
	if err != nil {
		return "", err
	}
	shared.cleanUpWith(func(ctx context.Context) error { return dropDatabase(ctx, admin, template) })
	filled, err := replaceDatabase(admin, template)
	if err != nil {
		return "", err
	}
	return template, prepare(ctx, filled)
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

// droppedDatabase makes a database that is dropped when the test ends, and
// returns its URL.
func droppedDatabase(t testing.TB, admin, template string) string {
	t.Helper()
	name, err := createDatabase(setupContext(t), admin, template)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := cleanupContext()
		defer cancel()
		if err := dropDatabase(ctx, admin, name); err != nil {
			t.Error(err)
		}
	})
	return databaseURL(t, admin, name)
}

// createDatabase makes a database on admin's server, a copy of template if
// that is not "", and returns its name.
func createDatabase(ctx context.Context, admin, template string) (string, error) {
	name := unique()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return "", fmt.Errorf("connect to the tests' database server: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, createStatement(conn, name, template)); err != nil {
		return "", fmt.Errorf("create a database for tests: %w", err)
	}
	return name, nil
}

func dropDatabase(ctx context.Context, admin, name string) error {
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return fmt.Errorf("connect to drop a database for tests: %w", err)
	}
	defer conn.Close(ctx)
	how := " WITH (FORCE)" // ends the connections that are left
	if isCockroach(conn) {
		how = " CASCADE"
	}
	if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+how); err != nil {
		return fmt.Errorf("drop a database for tests: %w", err)
	}
	return nil
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

// isCockroach asks the parameters that the server reported at log-in.
func isCockroach(conn *pgx.Conn) bool {
	return conn.PgConn().ParameterStatus("crdb_version") != ""
}

func onCockroach(t testing.TB, admin string) bool {
	t.Helper()
	ctx := setupContext(t)
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		t.Fatalf("connect to the tests' database server: %v", err)
	}
	defer conn.Close(ctx)
	return isCockroach(conn)
}

func databaseURL(t testing.TB, admin, name string) string {
	t.Helper()
	u, err := replaceDatabase(admin, name)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// replaceDatabase is admin, a URL, with another database.
func replaceDatabase(admin, name string) (string, error) {
	u, err := url.Parse(admin)
	if err != nil {
		return "", fmt.Errorf("parse the URL of the tests' database server: %w", err)
	}
	if !strings.HasPrefix(u.Scheme, "postgres") {
		return "", fmt.Errorf("the tests' database server must be given as postgres://…, but %s is another URL", DatabaseEnv)
	}
	u.Path = "/" + name
	return u.String(), nil
}
