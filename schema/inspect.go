package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Server is what a database server says of itself.
type Server struct {
	Version   string // as it calls itself, to the first comma
	Cockroach bool
	// Number is PostgreSQL's version as a number, such as 150018. CockroachDB
	// gives that of the PostgreSQL which it takes after.
	Number   int
	Encoding string // such as UTF8
	// ByteOrder says that text is compared byte by byte, as the ledger does.
	ByteOrder bool
	// Skew is how far its clock is ahead of this machine's, give or take half of
	// RoundTrip.
	Skew, RoundTrip time.Duration
}

// Inspect asks the database at databaseURL what it is. It changes nothing and
// waits no longer than Version does.
func Inspect(ctx context.Context, databaseURL string) (Server, error) {
	config, err := parse(databaseURL)
	if err != nil {
		return Server{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+checkTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return Server{}, fmt.Errorf("schema: connect to the database: %w", err)
	}
	s, err := inspect(ctx, conn)
	return s, errors.Join(err, conn.Close(ctx))
}

func inspect(ctx context.Context, conn *pgx.Conn) (Server, error) {
	var s Server
	var number string
	err := conn.QueryRow(ctx, "SELECT version(), current_setting('server_version_num'), current_setting('server_encoding'), $1::text > $2::text",
		"a", "B").Scan(&s.Version, &number, &s.Encoding, &s.ByteOrder)
	if err != nil {
		return s, fmt.Errorf("schema: ask the database what it is: %w", err)
	}
	s.Cockroach = strings.Contains(s.Version, "CockroachDB")
	s.Version, _, _ = strings.Cut(s.Version, ",")
	s.Version, _, _ = strings.Cut(s.Version, " (")
	if _, err := fmt.Sscan(number, &s.Number); err != nil {
		return s, fmt.Errorf("schema: the database's version number is %q", number)
	}
	var now time.Time
	before := time.Now()
	if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return s, fmt.Errorf("schema: ask the database what time it is: %w", err)
	}
	s.RoundTrip = time.Since(before)
	s.Skew = now.Sub(before.Add(s.RoundTrip / 2))
	return s, nil
}
