package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

const (
	connectTimeout = 10 * time.Second
	checkTimeout   = 10 * time.Second

	// One for goose, one for the heartbeat of its lock, one to spare.
	maxConns = 3

	// lockTimeout bounds how long one DDL statement waits for others to let go
	// of a table. While it waits it blocks everybody behind it, so it is short.
	lockTimeout = 15 * time.Second

	// migrateTimeout bounds a whole run, building indexes over many rows
	// included. A run that it stops goes on where it was when started again.
	migrateTimeout = 30 * time.Minute

	// unlockGrace is how long releasing the migration lock may go on after the
	// caller's context has ended.
	unlockGrace = 10 * time.Second

	// A migration that dies holds the lock until its lease ends; others have to
	// wait for longer than that, or a crash would make the next run fail.
	leaseDuration     = 30 * time.Second
	heartbeatInterval = 5 * time.Second
	lockPoll          = 250 * time.Millisecond // ± 25 %
	lockPolls         = 360                    // 90 s
	unlockPoll        = 500 * time.Millisecond
	unlockPolls       = 10

	bootstrapTries = 5
	bootstrapPause = 50 * time.Millisecond // doubled each time, with jitter
)

// Migrate brings the schema of the database at databaseURL up to the version of
// this binary, creating it in an empty database. It may be called again, and
// from several places at once: one works, the others wait for it and find
// nothing left to do. A run that stopped half way is taken up again by the next.
//
// It returns a [*VersionError] and changes nothing if the schema is newer than
// this binary. It ends with ctx and after 30 minutes at the latest; it waits no
// longer than 90 seconds for another migration and 15 seconds for a lock on a
// table. A nil log discards its messages.
func Migrate(ctx context.Context, databaseURL string, log *slog.Logger) error {
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return fmt.Errorf("schema: open the embedded migrations: %w", err)
	}
	return migrate(ctx, databaseURL, files, log)
}

func migrate(ctx context.Context, databaseURL string, files fs.FS, log *slog.Logger) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	db, closeDB, err := open(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer closeDB()
	if err := bootstrap(ctx, db); err != nil {
		return err
	}
	return locked(ctx, db, log, func() error { return up(ctx, db, files, log) })
}

// open returns a pool whose connections are cut unlockGrace after ctx has
// ended, because goose releases its lock under a context that never ends. The
// function that it returns closes everything.
func open(ctx context.Context, databaseURL string) (*sql.DB, func(), error) {
	config, err := parse(databaseURL)
	if err != nil {
		return nil, nil, err
	}
	hard, cut := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(unlockGrace, cut)
		context.AfterFunc(hard, func() { timer.Stop() })
	})
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(hard, func() { _ = conn.Close() }) // a second close is harmless
		return conn, nil
	}
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(setLockTimeout))
	db.SetMaxOpenConns(maxConns)
	return db, func() {
		stop()
		_ = db.Close() // nothing is in flight and nothing is buffered
		cut()
	}, nil
}

// setLockTimeout is a statement and not a parameter of the connection's start,
// because poolers refuse parameters that they do not know.
func setLockTimeout(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, fmt.Sprintf("SET lock_timeout = %d", lockTimeout.Milliseconds()))
	return err
}

// bootstrap creates the schema that goose's own tables live in. Two sessions
// that run CREATE SCHEMA IF NOT EXISTS at once may collide on the catalog's
// unique index: the loser asks again and finds it there.
func bootstrap(ctx context.Context, db *sql.DB) error {
	var encoding string
	if err := db.QueryRowContext(ctx, "SHOW server_encoding").Scan(&encoding); err != nil {
		return fmt.Errorf("schema: connect to the database: %w", err)
	}
	if !strings.EqualFold(strings.ReplaceAll(encoding, "-", ""), "UTF8") {
		return fmt.Errorf("schema: the database's encoding is %s, the ledger needs UTF8: "+
			"create the database with ENCODING 'UTF8' LC_COLLATE 'C' TEMPLATE template0", encoding)
	}
	pause := bootstrapPause
	for try := 1; ; try++ {
		_, err := db.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+schemaName)
		if err == nil {
			return nil
		}
		if try == bootstrapTries || !collided(err) {
			return fmt.Errorf("schema: create schema %s (try %d of %d): %w", schemaName, try, bootstrapTries, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("schema: create schema %s: %w", schemaName, ctx.Err())
		case <-time.After(pause + rand.N(pause)):
		}
		pause *= 2
	}
}

// collided says whether the error means that another session created or changed
// the same thing at the same time.
func collided(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch pgErr.Code {
	case "23505", // unique_violation, in the catalog
		"42P06", // duplicate_schema
		"40001", // serialization_failure
		"XX000": // internal_error: PostgreSQL's "tuple concurrently updated"
		return true
	}
	return false
}

// locked runs do while holding the migration lock. The lock is taken here and
// not by goose's provider, which looks at the version table, and creates it,
// before it locks. A table and not an advisory lock, because those do nothing
// on CockroachDB.
func locked(ctx context.Context, db *sql.DB, log *slog.Logger, do func() error) (err error) {
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableName(lockTable),
		lock.WithTableLeaseDuration(leaseDuration),
		lock.WithTableHeartbeatInterval(heartbeatInterval),
		lock.WithTableLockTimeout(lockPoll, lockPolls),
		lock.WithTableUnlockTimeout(unlockPoll, unlockPolls),
		lock.WithTableLogger(log),
		lock.WithTableRetryPolicy(worthWaiting),
	)
	if err != nil {
		return fmt.Errorf("schema: configure the migration lock: %w", err)
	}
	if err := locker.Lock(ctx, db); err != nil {
		return fmt.Errorf("schema: take the migration lock in %s; "+
			"if another migration is running, let it end and try again: %w", lockTable, err)
	}
	defer func() {
		if unlockErr := locker.Unlock(ctx, db); unlockErr != nil {
			err = errors.Join(err, fmt.Errorf("schema: release the migration lock (it ends by itself after %s): %w",
				leaseDuration, unlockErr))
		}
	}()
	return do()
}

// worthWaiting says whether taking or releasing the lock may succeed later: it
// is held by another, or the server had trouble. A statement that the server
// understood and refuses (a missing privilege, say) will be refused again.
func worthWaiting(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	switch pgErr.Code[:2] {
	case "08", "40", "53", "55", "57": // connection, rollback, resources, locks, operator's intervention
		return true
	}
	return collided(err)
}

// up applies what is missing. The caller holds the migration lock.
func up(ctx context.Context, db *sql.DB, files fs.FS, log *slog.Logger) error {
	store, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return fmt.Errorf("schema: configure the version table: %w", err)
	}
	if err := completeVersionTable(ctx, db, store); err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, files,
		goose.WithStore(store),
		goose.WithDisableGlobalRegistry(true),
		goose.WithIsolateDDL(true), // CockroachDB would commit at the DDL anyway
		goose.WithSlog(log),
	)
	if err != nil {
		return fmt.Errorf("schema: read the embedded migrations: %w", err)
	}
	// The provider is not closed: that would close db, which the caller owns.
	current, target, err := provider.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("schema: read the version from %s: %w", versionTable, err)
	}
	if current > target {
		return &VersionError{Database: current, Binary: target}
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return fmt.Errorf("schema: migrate from version %d to %d; run it again once the cause is gone, "+
			"it goes on where it stopped: %w", current, target, err)
	}
	log.InfoContext(ctx, "schema is up to date", "from", current, "to", target, "applied", len(results))
	return nil
}

// completeVersionTable repairs what a crash between goose's two steps, creating
// the version table and inserting its row for version 0, leaves behind: without
// that row goose refuses to work for ever.
func completeVersionTable(ctx context.Context, db *sql.DB, store database.Store) error {
	extended, ok := store.(database.StoreExtender)
	if !ok {
		return fmt.Errorf("schema: goose's store %T cannot tell whether %s exists", store, versionTable)
	}
	exists, err := extended.TableExists(ctx, db)
	if err != nil {
		return fmt.Errorf("schema: look for %s: %w", versionTable, err)
	}
	if !exists {
		return nil // goose makes it
	}
	_, err = store.GetMigration(ctx, db, 0)
	if errors.Is(err, database.ErrVersionNotFound) {
		err = store.Insert(ctx, db, database.InsertRequest{Version: 0})
	}
	if err != nil {
		return fmt.Errorf("schema: complete %s: %w", versionTable, err)
	}
	return nil
}
