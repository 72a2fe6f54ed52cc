package schema

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"jobledger/internal/testenv"
)

const testTimeout = time.Minute

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// connect opens a connection that is closed with the test, before the database
// is dropped.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), url)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout)
		defer cancel()
		require.NoError(t, conn.Close(ctx))
	})
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(testContext(t), sql, args...)
	require.NoError(t, err, sql)
}

// lines returns the rows of a query that has one text column.
func lines(t *testing.T, conn *pgx.Conn, sql string, args ...any) []string {
	t.Helper()
	rows, err := conn.Query(testContext(t), sql, args...)
	require.NoError(t, err, sql)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err, sql)
	return out
}

// migrated returns a connection to a database with the whole schema.
func migrated(t *testing.T) *pgx.Conn {
	t.Helper()
	url := testenv.Database(t)
	require.NoError(t, Migrate(testContext(t), url, nil))
	return connect(t, url)
}

func applied(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	return lines(t, conn, "SELECT s.version_id::TEXT FROM ledger.schema_version AS s ORDER BY s.version_id")
}

func wantApplied() []string {
	var versions []string
	for v := range Target() + 1 { // with goose's row for version 0
		versions = append(versions, fmt.Sprint(v))
	}
	return versions
}

func TestMigrateTwice(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	require.NoError(t, Migrate(testContext(t), url, nil))
	conn := connect(t, url)
	exec(t, conn, "UPDATE ledger.active SET name = 'ledger_b', epoch = 7")
	require.NoError(t, Migrate(testContext(t), url, nil))
	require.Equal(t, wantApplied(), applied(t, conn))
	require.Equal(t, []string{"ledger_b 7"}, lines(t, conn, "SELECT name || ' ' || epoch FROM ledger.active"),
		"a second run must not move the pointer")
	require.NoError(t, Check(testContext(t), url))
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	group, ctx := errgroup.WithContext(testContext(t))
	for range 4 {
		group.Go(func() error { return Migrate(ctx, url, nil) })
	}
	require.NoError(t, group.Wait())
	require.Equal(t, wantApplied(), applied(t, connect(t, url)), "each migration is recorded once")
	require.NoError(t, Check(testContext(t), url))
}

// A migration may be applied and not recorded, if the process dies in between.
// So every file must be harmless on a database that it was the last to change.
func TestEveryMigrationCanRunAgain(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	var conn *pgx.Conn
	for n := int64(1); n <= Target(); n++ {
		require.NoError(t, migrate(testContext(t), url, filesUpTo(t, n), slog.New(slog.DiscardHandler)))
		if conn == nil { // the first migration makes the schema
			conn = connect(t, url)
		}
		exec(t, conn, fmt.Sprintf("DELETE FROM ledger.schema_version WHERE version_id = %d", n))
	}
	require.NoError(t, Migrate(testContext(t), url, nil))
	require.Equal(t, wantApplied(), applied(t, conn))
}

// filesUpTo returns the first n migrations.
func filesUpTo(t *testing.T, n int64) fstest.MapFS {
	t.Helper()
	files := embeddedFiles(t)
	for name := range files {
		if version, err := strconv.ParseInt(name[:5], 10, 64); err != nil || version > n {
			delete(files, name)
		}
	}
	return files
}

// goose creates its version table and then inserts the row for version 0.
func TestMigrateAfterCrashInGoosesFirstSteps(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	require.NoError(t, migrate(testContext(t), url, filesUpTo(t, 1), slog.New(slog.DiscardHandler)))
	conn := connect(t, url)
	exec(t, conn, "DELETE FROM ledger.schema_version")
	require.NoError(t, Migrate(testContext(t), url, nil))
	require.Equal(t, wantApplied(), applied(t, conn))
}

func TestMigrateGoesOnAfterFailure(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	broken := embeddedFiles(t)
	broken["00005_active.sql"] = &fstest.MapFile{
		Data: []byte("-- +goose NO TRANSACTION\n-- +goose Up\nCREATE TABLE ledger.nowhere (id NOSUCHTYPE);\n")}
	err := migrate(testContext(t), url, broken, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "run it again once the cause is gone")

	var version *VersionError
	require.ErrorAs(t, Check(testContext(t), url), &version)
	require.Equal(t, VersionError{Database: 4, Binary: Target()}, *version)

	require.NoError(t, Migrate(testContext(t), url, nil), "the failed run must have released the lock")
	require.NoError(t, Check(testContext(t), url))
}

// A user with the name of one of our schemas has that schema first in the
// search path as soon as it exists.
func TestMigrateWithLedgerFirstInSearchPath(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	url += separator + "search_path=ledger,public"
	require.NoError(t, Migrate(testContext(t), url, nil))
	require.NoError(t, Migrate(testContext(t), url, nil))
	require.Equal(t, wantApplied(), applied(t, connect(t, url)))
}

func TestMigrateEndsWithItsContext(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	require.NoError(t, Migrate(testContext(t), url, nil))
	conn := connect(t, url)
	exec(t, conn, `UPDATE ledger.schema_lock SET locked = true, locked_by = 'another',
		lease_expires_at = now() + interval '1 hour'`)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := Migrate(ctx, url, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "ledger.schema_lock")

	exec(t, conn, "UPDATE ledger.schema_lock SET lease_expires_at = now() - interval '1 second'")
	require.NoError(t, Migrate(testContext(t), url, nil), "a lease that ended is taken over")
}

func TestCheck(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	var version *VersionError

	err := Check(testContext(t), url)
	require.ErrorAs(t, err, &version)
	require.Equal(t, VersionError{Database: 0, Binary: Target()}, *version)
	require.ErrorContains(t, err, "run jobledger migrate")
	conn := connect(t, url)
	require.Empty(t, lines(t, conn, "SELECT nspname::TEXT FROM pg_namespace WHERE nspname LIKE 'ledger%'"),
		"Check changes nothing")

	require.NoError(t, Migrate(testContext(t), url, nil))
	require.NoError(t, Check(testContext(t), url))
	got, err := Version(testContext(t), url)
	require.NoError(t, err)
	require.Equal(t, Target(), got)

	exec(t, conn, "INSERT INTO ledger.schema_version (version_id, is_applied) VALUES ($1, true)", Target()+1)
	for name, err := range map[string]error{
		"Check":   Check(testContext(t), url),
		"Migrate": Migrate(testContext(t), url, nil),
	} {
		require.ErrorAs(t, err, &version, name)
		require.Equal(t, VersionError{Database: Target() + 1, Binary: Target()}, *version, name)
		require.ErrorContains(t, err, "this binary is older than the schema", name)
	}
}

func TestUnreachableAndInvalidDatabase(t *testing.T) {
	t.Parallel()
	const nobody = "postgres://127.0.0.1:1/none?sslmode=disable" // port 1: nothing listens
	require.ErrorContains(t, Check(testContext(t), nobody), "connect to the database")
	require.ErrorContains(t, Migrate(testContext(t), nobody, nil), "connect to the database")

	const invalid = "postgres://user:hunter2@host:port/"
	for _, err := range []error{Check(testContext(t), invalid), Migrate(testContext(t), invalid, nil)} {
		require.ErrorContains(t, err, "the database URL is not valid")
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func embeddedFiles(t *testing.T) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	entries, err := embedded.ReadDir("migrations")
	require.NoError(t, err)
	for _, entry := range entries {
		data, err := fs.ReadFile(embedded, "migrations/"+entry.Name())
		require.NoError(t, err)
		files[entry.Name()] = &fstest.MapFile{Data: data}
	}
	return files
}
