// Package sqllint checks SQL, as text, by the rules under which one SQL serves
// PostgreSQL and CockroachDB. It sees what can be seen in a text; what a
// statement means is for the tests on real databases.
//
// The migrations are checked by the tests of package schema, which adds the
// rules for DDL to Common. The statements that programs send are checked by
// this package's own test, which finds them in the Go files.
package sqllint

import (
	"fmt"
	"regexp"
	"strings"
)

// A Rule forbids a pattern.
type Rule struct {
	Pattern *regexp.Regexp
	Why     string
}

// Common are the rules for every SQL text, migrations included.
var Common = []Rule{
	{Words(`INT|INTEGER|SMALLINT`), "INT8, INT4 or INT2 by name: INT has another width on CockroachDB"},
	{Words(`(SMALL|BIG)?SERIAL|IDENTITY|SEQUENCE|NEXTVAL|GENERATED`), "no sequences: ids come from the stream"},
	{Words(`VARCHAR|CHAR|CHARACTER|CITEXT|JSON|TIMESTAMP|DATE|TIME|REAL|FLOAT[48]?|DOUBLE|MONEY|ENUM|XML`),
		"only TEXT, BYTEA, BOOL, UUID, TIMESTAMPTZ, NUMERIC, JSONB and INT8"},
	{Words(`JSONB\s*\[\s*\]`), "no jsonb[]"},
	{Words(`COLLATE`), "text compares by bytes: by the database's collation, not by columns"},
	{regexp.MustCompile(`(?i)(\b(SELECT|RETURNING|DISTINCT)|,|\.)\s*\*`), "no *: name the columns"},
	{regexp.MustCompile(`/`), "no division: integers divide to an integer or to a decimal"},
	{Words(`pg_(try_)?advisory\w*|LISTEN|NOTIFY|LOCK TABLE`), "no advisory locks, no LISTEN, no table locks"},
	{Words(`TEMP|TEMPORARY|UNLOGGED`), "no temporary or unlogged tables"},
	{Words(`ctid|xmin|xmax|tableoid`), "no system columns"},
	{Words(`UPSERT|MERGE|NULLS NOT DISTINCT|GROUPING SETS|ROLLUP|CUBE`), "not on both databases"},
	{Words(`COMMIT|ROLLBACK|SAVEPOINT`), "no ends of transactions in the text: the driver's calls end them"},
	{regexp.MustCompile(`\$\$|"`), "no dollar quotes, no quoted names"},
}

// ofPrograms are the rules for statements that a program sends.
var ofPrograms = []Rule{
	{Words(`CREATE|ALTER|DROP|TRUNCATE|RENAME|COMMENT ON`), "no DDL outside migrations: on CockroachDB it commits the open transaction"},
	{Words(`ON CONFLICT( ON| DO)`), "ON CONFLICT names plain columns"},
	{regexp.MustCompile(`(?i)\bINSERT INTO [\w.]+ (VALUES|SELECT|DEFAULT)\b`), "INSERT names its columns"},
	{regexp.MustCompile(`(?i)\bCOPY [\w.]+ (FROM|TO)\b`), "COPY names its columns"},
	{Words(`OFFSET`), "no OFFSET: pages start after a key"},
	{Words(`SET SESSION`), "no settings that outlive a transaction: sessions get them when they connect"},
}

// Words returns a pattern for any of the alternatives as a whole word, in any
// case.
func Words(alternatives string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)(^|[^\w])(` + alternatives + `)($|[^\w])`)
}

// Apply returns a fault for each rule that the text breaks.
func Apply(rules []Rule, text string) []string {
	var faults []string
	for _, r := range rules {
		if hit := r.Pattern.FindString(text); hit != "" {
			faults = append(faults, fmt.Sprintf("%q: %s", strings.TrimSpace(hit), r.Why))
		}
	}
	return faults
}

var (
	literal    = regexp.MustCompile(`'(?:[^']|'')*'`)
	whiteSpace = regexp.MustCompile(`\s+`)
)

// Normalize empties literals and makes white space single spaces, so that rules
// see code only. SQL comments are not known here: programs send none.
func Normalize(sql string) string {
	return strings.TrimSpace(whiteSpace.ReplaceAllString(literal.ReplaceAllString(sql, "''"), " "))
}

// CheckStatement returns what is wrong with a statement, or a part of one, that
// a program sends. nullable are the tables' columns that may be NULL.
func CheckStatement(sql string, nullable Columns) []string {
	text := Normalize(sql)
	faults := Apply(Common, text)
	faults = append(faults, Apply(ofPrograms, text)...)
	return append(faults, checkOrder(text, nullable)...)
}
