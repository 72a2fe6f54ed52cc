package schema

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The schemas of the two generations, the values of ledger.active's column
// name.
const (
	GenerationA = "ledger_a"
	GenerationB = "ledger_b"
)

const (
	// schemaName holds the views and what belongs to no generation.
	schemaName = "ledger"

	// Both of goose's tables are named with their schema. Unqualified they
	// would follow the search path, whose first element is a schema named like
	// the user: for a user called ledger they would change place as soon as
	// the first migration has made that schema.
	versionTable = schemaName + ".schema_version"
	lockTable    = schemaName + ".schema_lock"
)

//go:embed migrations/*.sql
var embedded embed.FS

// SQLSTATEs that mean "never migrated" when the version table is read.
const (
	codeUndefinedTable = "42P01"
	codeInvalidSchema  = "3F000"
)

// A VersionError says that the schema in the database is not the one that this
// binary was built for.
type VersionError struct {
	Database int64 // version found in the database; 0 if it was never migrated
	Binary   int64 // version that this binary needs, as Target returns it
}

// Error says which side is behind and what to do about it.
func (e *VersionError) Error() string {
	if e.Database > e.Binary {
		return fmt.Sprintf("the database's schema is at version %d, this binary knows versions up to %d: "+
			"this binary is older than the schema; use the newer jobledger that migrated it", e.Database, e.Binary)
	}
	return fmt.Sprintf("the database's schema is at version %d, this binary needs version %d: "+
		"run jobledger migrate", e.Database, e.Binary)
}

// Target returns the schema version that this binary needs: the number of its
// last migration, 1 or more.
func Target() int64 {
	names, err := fs.Glob(embedded, "migrations/*.sql")
	if err != nil || len(names) == 0 {
		panic(fmt.Sprintf("schema: no embedded migrations: %v", err)) // built wrongly
	}
	last := strings.TrimPrefix(names[len(names)-1], "migrations/") // Glob sorts, numbers are padded
	number, _, _ := strings.Cut(last, "_")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("schema: migration %q does not start with a number: %v", last, err))
	}
	return version
}

// Version returns the version of the schema in the database at databaseURL, 0
// if it was never migrated. It changes nothing. It waits for ctx and no longer
// than connectTimeout plus checkTimeout.
func Version(ctx context.Context, databaseURL string) (int64, error) {
	config, err := parse(databaseURL)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+checkTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return 0, fmt.Errorf("schema: connect to the database: %w", err)
	}
	version, err := readVersion(ctx, conn)
	return version, errors.Join(err, conn.Close(ctx))
}

// Check returns nil if the schema in the database at databaseURL is the one
// that this binary was built for, a [*VersionError] if it is older (a migration
// that stopped half way included) or newer, and other errors if it cannot be
// read. It changes nothing; its waits are those of [Version].
func Check(ctx context.Context, databaseURL string) error {
	version, err := Version(ctx, databaseURL)
	if err != nil {
		return err
	}
	if version != Target() {
		return &VersionError{Database: version, Binary: Target()}
	}
	return nil
}

func readVersion(ctx context.Context, conn *pgx.Conn) (int64, error) {
	var version int64
	err := conn.QueryRow(ctx, "SELECT COALESCE(max(version_id), 0) FROM "+versionTable).Scan(&version)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok &&
		(pgErr.Code == codeUndefinedTable || pgErr.Code == codeInvalidSchema) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("schema: read the version from %s: %w", versionTable, err)
	}
	return version, nil
}

// parse reads the URL and prepares a connection for DDL and single look-ups.
// The error of pgx about a URL that cannot be parsed redacts the password.
func parse(databaseURL string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("schema: the database URL is not valid: %w", err)
	}
	// No prepared statements: they break behind a transaction pooler and when
	// the tables that they name change, which is what happens here.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	if config.ConnectTimeout == 0 || config.ConnectTimeout > connectTimeout {
		config.ConnectTimeout = connectTimeout
	}
	if _, set := config.RuntimeParams["application_name"]; !set {
		config.RuntimeParams["application_name"] = "jobledger-schema"
	}
	return config, nil
}
