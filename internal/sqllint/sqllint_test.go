package sqllint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/sqllint"
)

// root is the module's folder, seen from this package's.
const root = "../.."

// nullable reads the tables' columns from the migrations.
func nullable(t *testing.T) sqllint.Columns {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "schema/migrations/*.sql"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	columns := sqllint.Columns{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		columns.AddTable(string(text))
	}
	return columns
}

func TestColumnsAreReadFromTheMigrations(t *testing.T) {
	t.Parallel()
	columns := nullable(t)
	require.Equal(t, map[string]bool{"name": false, "seq": false, "definition": false, "digest": false, "at": false, "actor": true},
		columns["kinds"])
	require.True(t, columns["jobs"]["provider"])
	require.False(t, columns["attempts"]["provider"])
}

// The SQL of programs keeps the rules.
func TestProgramsKeepTheRules(t *testing.T) {
	t.Parallel()
	columns := nullable(t)
	for _, folder := range []string{"projector", "schema", "cmd/jobledger"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files, folder)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			texts, err := sqllint.FromGo(file, src)
			require.NoError(t, err)
			for _, text := range texts {
				require.Empty(t, sqllint.CheckStatement(text.SQL, columns), text.String())
			}
		}
	}
}

// The finder is worth nothing if it finds nothing.
func TestSQLIsFound(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "projector/*.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		texts, err := sqllint.FromGo(file, src)
		require.NoError(t, err)
		for _, text := range texts {
			all.WriteString(text.SQL + "\n")
		}
	}
	for _, want := range []string{"INSERT INTO x.x (x) SELECT x FROM x", "ON CONFLICT (name, seq) DO NOTHING", "UPDATE x.checkpoints SET seq = $1"} {
		require.Contains(t, all.String(), want)
	}
}

func TestFromGo(t *testing.T) {
	t.Parallel()
	const src = "package p\n" +
		"import \"example.com/FROM\"\n" +
		"type s struct { F int `json:\"SELECT\"` }\n" +
		"var a = \"SELECT \" + cols + \" FROM \" + gen + \".jobs\"\n" +
		"var b = \"hello\" + \"world\"\n" +
		"var c = f(`insert into t values (1)`)\n" +
		"var d = \"a\" + f(\"DELETE FROM t\")\n" +
		"var e = fmt.Sprintf(\"SELECT %s FROM %s\", x, y)\n"
	texts, err := sqllint.FromGo("p.go", []byte(src))
	require.NoError(t, err)
	var found []string
	for _, text := range texts {
		found = append(found, text.String())
	}
	require.Equal(t, []string{
		"p.go:4:9: SELECT x FROM x.jobs",
		"p.go:6:11: insert into t values (1)",
		"p.go:7:17: DELETE FROM t",
		"p.go:8:21: SELECT x FROM x",
	}, found)

	_, err = sqllint.FromGo("p.go", []byte("package"))
	require.ErrorContains(t, err, "p.go:1")
}

func TestCheckStatement(t *testing.T) {
	t.Parallel()
	columns := sqllint.Columns{}
	columns.AddTable("CREATE TABLE IF NOT EXISTS ledger_a.jobs (\n    id UUID NOT NULL,\n    run_at TIMESTAMPTZ,\n    provider TEXT\n);")
	columns.AddTable("CREATE TABLE IF NOT EXISTS ledger_a.attempts (\n    provider TEXT NOT NULL,\n    worker TEXT\n);")
	for _, good := range []string{
		"SELECT j.id FROM x.jobs AS j WHERE j.id = ANY($1) ORDER BY j.id FOR UPDATE",
		"SELECT count(*) FROM x.jobs AS j",
		"SELECT j.id FROM x.jobs AS j ORDER BY j.run_at DESC NULLS LAST, j.id LIMIT 10",
		"SELECT a.provider FROM x.attempts AS a ORDER BY a.provider",
		" ORDER BY t.provider LIMIT x",
		"INSERT INTO x.kinds (name, seq) SELECT u.name, u.seq FROM unnest($1::TEXT[], $2::INT8[]) AS u (name, seq) ON CONFLICT (name, seq) DO NOTHING",
		"UPDATE x.checkpoints SET seq = $1, updated_at = now() WHERE shard = $2",
		"COPY x.jobs (id) FROM STDIN BINARY",
		"SELECT j.id FROM x.jobs AS j WHERE j.state = 'a/b * \"c\" drop table'",
	} {
		require.Empty(t, sqllint.CheckStatement(good, columns), good)
	}
	for bad, want := range map[string]string{
		"SELECT * FROM x.jobs":                                   "name the columns",
		"SELECT j.* FROM x.jobs AS j":                            "name the columns",
		"DELETE FROM x.jobs AS j RETURNING *":                    "name the columns",
		"SELECT a, * FROM x.jobs AS j":                           "name the columns",
		"SELECT pg_advisory_xact_lock(1)":                        "no advisory locks",
		"SELECT pg_try_advisory_lock(1)":                         "no advisory locks",
		"LISTEN entries":                                         "no LISTEN",
		"LOCK TABLE x.jobs":                                      "table locks",
		"TRUNCATE x.jobs":                                        "no DDL",
		"CREATE TABLE x.t (id INT8)":                             "no DDL",
		"DROP TABLE x.t":                                         "no DDL",
		"CREATE TEMP TABLE t (id INT8)":                          "no temporary",
		"INSERT INTO x.t (id) VALUES (1) ON CONFLICT DO NOTHING": "plain columns",
		"INSERT INTO x.t (id) VALUES (1) ON CONFLICT ON CONSTRAINT c DO NOTHING": "plain columns",
		"INSERT INTO x.t VALUES (1)":                                          "INSERT names",
		"COPY x.t FROM STDIN":                                                 "COPY names",
		"UPSERT INTO x.t (id) VALUES (1)":                                     "not on both",
		"MERGE INTO x.t USING s ON true":                                      "not on both",
		"SELECT j.n / 2 FROM x.jobs AS j":                                     "no division",
		"SELECT j.n::INT FROM x.jobs AS j":                                    "INT8",
		"SELECT j.n::VARCHAR FROM x.jobs AS j":                                "only TEXT",
		"SELECT $1::JSONB[]":                                                  "no jsonb[]",
		"SELECT j.id FROM x.jobs AS j ORDER BY j.id OFFSET 10":                "no OFFSET",
		"SELECT j.ctid FROM x.jobs AS j":                                      "no system columns",
		"SET SESSION lock_timeout = 1":                                        "no settings",
		"SAVEPOINT s":                                                         "no ends of transactions",
		"SELECT \"j\".id FROM x.jobs AS j":                                    "no quoted names",
		"SELECT j.id FROM x.jobs AS j ORDER BY j.run_at":                      "NULLS FIRST or LAST",
		"SELECT j.id FROM x.jobs AS j ORDER BY j.id, j.provider DESC LIMIT 1": "NULLS FIRST or LAST",
		" ORDER BY t.worker":                                                  "NULLS FIRST or LAST",
	} {
		require.Contains(t, strings.Join(sqllint.CheckStatement(bad, columns), "\n"), want, bad)
	}
}
