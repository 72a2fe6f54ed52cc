package testenv_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"jobledger/internal/stream"
	"jobledger/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestDatabaseIsEmptyAndComparesBytes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	conn, err := pgx.Connect(ctx, testenv.Database(t))
	require.NoError(t, err)
	defer conn.Close(ctx)

	var tables int
	require.NoError(t, conn.QueryRow(ctx, `SELECT count(*) FROM information_schema.tables
		WHERE table_schema NOT IN ('pg_catalog', 'information_schema', 'crdb_internal', 'pg_extension')`).Scan(&tables))
	require.Zero(t, tables)

	var upperFirst bool
	require.NoError(t, conn.QueryRow(ctx, `SELECT 'B'::text < 'a'::text`).Scan(&upperFirst))
	require.True(t, upperFirst, "text must be compared by bytes")
}

func TestStreamIsALedgersOwn(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	js, name, prefix := testenv.Stream(t)
	_, err := stream.Open(ctx, js, name, prefix)
	require.NoError(t, err)

	ack, err := js.Publish(ctx, prefix+".job.request", []byte(`{}`))
	require.NoError(t, err)
	require.Equal(t, name, ack.Stream)
}
