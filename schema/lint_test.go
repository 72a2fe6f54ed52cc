package schema

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/internal/sqllint"
)

// The rules under which one SQL serves PostgreSQL and CockroachDB, as far as
// they can be seen in a migration's text.

// sqlHeader is what goose reads: no transaction, and up is the only direction.
const sqlHeader = "-- +goose NO TRANSACTION\n-- +goose Up\n"

var (
	fileName     = regexp.MustCompile(`^(\d{5})_[a-z0-9_]+\.sql$`)
	lineComment  = regexp.MustCompile(`--[^\n]*`)
	literal      = regexp.MustCompile(`'(?:[^']|'')*'`)
	primaryKey   = regexp.MustCompile(`(?i)\bPRIMARY KEY \((\w+)`)
	growing      = regexp.MustCompile(`(?i)^(seq|sequence|at|.*_at|.*_seq)$`)
	createTable  = regexp.MustCompile(`(?i)^CREATE TABLE\b`)
	commentOn    = regexp.MustCompile(`(?i)^COMMENT ON (SCHEMA|TABLE|VIEW|COLUMN) `)
	whatFollows  = regexp.MustCompile(`(?s)^-- [A-Z]`) // a comment that says why
	namesASchema = regexp.MustCompile(`\b(ledger|ledger_a|ledger_b)\b`)

	// A statement is idempotent if it starts like one of these.
	idempotent = []*regexp.Regexp{
		regexp.MustCompile(`(?i)^CREATE (SCHEMA|TABLE) IF NOT EXISTS `),
		regexp.MustCompile(`(?i)^CREATE (UNIQUE )?INDEX (CONCURRENTLY )?IF NOT EXISTS `),
		regexp.MustCompile(`(?i)^CREATE OR REPLACE VIEW `),
		regexp.MustCompile(`(?i)^ALTER TABLE \S+ (ADD|DROP) COLUMN IF (NOT )?EXISTS `),
		regexp.MustCompile(`(?i)^DROP (TABLE|VIEW|INDEX|SCHEMA) IF EXISTS `),
		regexp.MustCompile(`(?is)^INSERT INTO .* ON CONFLICT \([a-z_, ]+\) DO NOTHING$`),
		commentOn,
	}

	// What migrations must not say besides the rules for every SQL text.
	banned = append([]sqllint.Rule{
		{Pattern: sqllint.Words(`TRIGGER|FUNCTION|PROCEDURE|RULE|EXTENSION|DOMAIN|INHERITS|PARTITION`), Why: "no triggers, functions, extensions"},
		{Pattern: sqllint.Words(`FOR UPDATE`), Why: "no row locks in a view"},
		{Pattern: sqllint.Words(`DEFERRABLE|REFERENCES|FOREIGN KEY`), Why: "no deferrable constraints, no foreign keys"},
		{Pattern: sqllint.Words(`TRUNCATE|RENAME|SET SCHEMA|ALTER COLUMN`), Why: "generations are swapped by the pointer; columns are added, not changed"},
		{Pattern: sqllint.Words(`BEGIN|DO`), Why: "no transactions and no blocks: DDL commits them on CockroachDB"},
		{Pattern: sqllint.Words(`CASCADE`), Why: "drops name what they drop"},
	}, sqllint.Common...)
)

// lintMigration returns what is wrong with the text of a migration file.
func lintMigration(text string) []string {
	var faults []string
	body, found := strings.CutPrefix(text, sqlHeader)
	if !found {
		faults = append(faults, "the file must start with NO TRANSACTION and Up")
	}
	if !whatFollows.MatchString(body) {
		faults = append(faults, "a comment after the header must say why")
	}
	if strings.Contains(body, "+goose") {
		faults = append(faults, "one direction, and no goose commands but the header")
	}
	statements := split(body)
	comments := 0
	for _, statement := range statements {
		if commentOn.MatchString(statement) {
			comments++
		}
		faults = append(faults, lintStatement(statement)...)
	}
	if len(statements) != 1 && (comments == 0 || comments != len(statements)) {
		faults = append(faults, fmt.Sprintf("one statement per file (or COMMENT ON only), found %d", len(statements)))
	}
	return faults
}

// split returns the statements without comments, with literals emptied.
func split(sql string) []string {
	// Literals first: they may hold dashes and semicolons. Comments hold
	// apostrophes, but only in the lines before the statement.
	var code []string
	for line := range strings.Lines(sql) {
		if !strings.HasPrefix(line, "--") {
			code = append(code, line)
		}
	}
	text := literal.ReplaceAllString(strings.Join(code, ""), "''")
	text = lineComment.ReplaceAllString(text, "")
	var statements []string
	for statement := range strings.SplitSeq(text, ";") {
		if statement = strings.Join(strings.Fields(statement), " "); statement != "" {
			statements = append(statements, statement)
		}
	}
	return statements
}

func lintStatement(statement string) []string {
	var faults []string
	if !anyMatches(idempotent, statement) {
		faults = append(faults, "not in an idempotent form (IF NOT EXISTS, OR REPLACE, ON CONFLICT (…) DO NOTHING): "+statement)
	}
	if !namesASchema.MatchString(statement) {
		faults = append(faults, "names no schema of ours: "+statement)
	}
	// In its own place DO is not a block.
	checked := strings.ReplaceAll(statement, ") DO NOTHING", ")")
	faults = append(faults, sqllint.Apply(banned, checked)...)
	if createTable.MatchString(statement) {
		faults = append(faults, lintKey(statement)...)
	}
	return faults
}

func lintKey(statement string) []string {
	key := primaryKey.FindStringSubmatch(statement)
	switch {
	case key == nil:
		return []string{"a table needs an explicit PRIMARY KEY (…)"}
	case growing.MatchString(key[1]):
		return []string{"the primary key is led by " + key[1] + ", which grows: the end of the table would be hot"}
	}
	return nil
}

func anyMatches(patterns []*regexp.Regexp, s string) bool {
	for _, pattern := range patterns {
		if pattern.MatchString(s) {
			return true
		}
	}
	return false
}

func TestMigrationsKeepTheRules(t *testing.T) {
	t.Parallel()
	entries, err := embedded.ReadDir("migrations")
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	for i, entry := range entries {
		name := fileName.FindStringSubmatch(entry.Name())
		require.NotNil(t, name, "%s: want NNNNN_what_it_makes.sql", entry.Name())
		require.Equal(t, fmt.Sprintf("%05d", i+1), name[1], "%s: numbers are contiguous", entry.Name())
		require.Empty(t, lintMigration(read(t, entry.Name())), entry.Name())
	}
	require.EqualValues(t, len(entries), Target())
}

// Each generation's file is followed by its twin, equal but for the name.
func TestGenerationsFilesAreTwins(t *testing.T) {
	t.Parallel()
	entries, err := embedded.ReadDir("migrations")
	require.NoError(t, err)
	pairs := 0
	for i, entry := range entries {
		_, what, _ := strings.Cut(entry.Name(), "_")
		if !strings.HasPrefix(what, GenerationA) || strings.HasSuffix(what, "_schema.sql") {
			continue
		}
		pairs++
		require.Less(t, i+1, len(entries), "%s has no twin", entry.Name())
		twin := entries[i+1].Name()
		require.True(t, strings.HasSuffix(twin, "_"+strings.Replace(what, GenerationA, GenerationB, 1)),
			"%s is not followed by its twin but by %s", entry.Name(), twin)
		require.Equal(t, strings.ReplaceAll(read(t, entry.Name()), GenerationA, GenerationB), read(t, twin))
	}
	require.NotZero(t, pairs)
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := embedded.ReadFile("migrations/" + name)
	require.NoError(t, err)
	return string(data)
}

func TestLintFindsFaults(t *testing.T) {
	t.Parallel()
	const why = sqlHeader + "-- Because.\n"
	const table = "CREATE TABLE IF NOT EXISTS ledger.t (id INT8 NOT NULL, CONSTRAINT t_pkey PRIMARY KEY (id)"
	for name, good := range map[string]string{
		"a table":      why + table + ");\n",
		"words in '…'": why + "COMMENT ON TABLE ledger.t IS 'select * from x; it''s a trigger / function';\n",
		"a seed":       why + "INSERT INTO ledger.t (id)\nVALUES (1)\nON CONFLICT (id) DO NOTHING;\n",
		"count(*)":     why + "CREATE OR REPLACE VIEW ledger.v AS SELECT count(*) AS n FROM ledger.t;\n",
	} {
		require.Empty(t, lintMigration(good), name)
	}
	for bad, want := range map[string]string{
		"-- +goose Up\n-- Because.\n" + table + ");":                       "NO TRANSACTION",
		sqlHeader + table + ");":                                           "must say why",
		why + table + ");\n-- +goose Down\nDROP TABLE IF EXISTS ledger.t;": "one direction",
		why + table + ");\nCREATE INDEX IF NOT EXISTS i ON ledger.t (id);": "one statement per file",
		why + table + ");\nCOMMENT ON TABLE ledger.t IS 'x';":              "one statement per file",
		why: "found 0",
		why + "CREATE TABLE ledger.t (id INT8, PRIMARY KEY (id));":                                      "idempotent",
		why + "CREATE INDEX i ON ledger.t (id);":                                                        "idempotent",
		why + "CREATE VIEW ledger.v AS SELECT 1 AS n;":                                                  "idempotent",
		why + "INSERT INTO ledger.t (id) VALUES (1);":                                                   "idempotent",
		why + "INSERT INTO ledger.t (id) VALUES (1) ON CONFLICT ON CONSTRAINT t DO NOTHING;":            "idempotent",
		why + "ALTER TABLE ledger.t ADD COLUMN c TEXT;":                                                 "idempotent",
		why + "CREATE TABLE IF NOT EXISTS t (id INT8, PRIMARY KEY (id));":                               "names no schema",
		why + "CREATE TABLE IF NOT EXISTS ledger.t (id INT8);":                                          "explicit PRIMARY KEY",
		why + "CREATE TABLE IF NOT EXISTS ledger.t (seq INT8, PRIMARY KEY (seq));":                      "led by seq",
		why + "CREATE TABLE IF NOT EXISTS ledger.t (created_at TIMESTAMPTZ, PRIMARY KEY (created_at));": "led by created_at",
		why + table + ", n INT);":                                                                       "INT8, INT4",
		why + table + ", n integer);":                                                                   "INT8, INT4",
		why + table + ", n BIGSERIAL);":                                                                 "no sequences",
		why + table + ", n INT8 GENERATED BY DEFAULT AS IDENTITY);":                                     "no sequences",
		why + table + ", c VARCHAR(10));":                                                               "only TEXT",
		why + table + ", c TIMESTAMP);":                                                                 "only TEXT",
		why + table + ", c JSON);":                                                                      "only TEXT",
		why + table + ", c JSONB[]);":                                                                   "no jsonb[]",
		why + table + ", j UUID REFERENCES ledger.jobs (id));":                                          "no foreign keys",
		why + "CREATE OR REPLACE VIEW ledger.v AS SELECT * FROM ledger.t;":                              "name the columns",
		why + "CREATE OR REPLACE VIEW ledger.v AS SELECT t.* FROM ledger.t AS t;":                       "name the columns",
		why + "CREATE OR REPLACE VIEW ledger.v AS SELECT id / 2 AS half FROM ledger.t;":                 "no division",
		why + "CREATE OR REPLACE FUNCTION ledger.f() RETURNS INT8 AS 'x' LANGUAGE SQL;":                 "no triggers, functions",
		why + "CREATE TRIGGER t BEFORE INSERT ON ledger.t EXECUTE PROCEDURE f();":                       "no triggers, functions",
		why + "CREATE OR REPLACE VIEW ledger.v AS SELECT pg_advisory_lock(1) AS l;":                     "no advisory locks",
		why + "CREATE UNLOGGED TABLE IF NOT EXISTS ledger.t (id INT8, PRIMARY KEY (id));":               "unlogged",
		why + table + ", CONSTRAINT u UNIQUE NULLS NOT DISTINCT (id));":                                 "not on both",
		why + "CREATE OR REPLACE VIEW ledger.v AS SELECT ctid AS c FROM ledger.t;":                      "no system columns",
		why + "TRUNCATE ledger_a.jobs;":                                                                 "swapped by the pointer",
		why + "ALTER TABLE ledger.t RENAME TO u;":                                                       "swapped by the pointer",
		why + "ALTER TABLE ledger.t ALTER COLUMN c TYPE TEXT;":                                          "swapped by the pointer",
		why + "DO $$ BEGIN PERFORM 1; END $$;":                                                          "no transactions",
		why + "DROP SCHEMA IF EXISTS ledger_a CASCADE;":                                                 "name what they drop",
		why + `CREATE SCHEMA IF NOT EXISTS "ledger";`:                                                   "no quoted names",
	} {
		require.Contains(t, strings.Join(lintMigration(bad), "\n"), want, bad)
	}
}
