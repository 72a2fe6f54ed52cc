package sqllint

import (
	"regexp"
	"strings"
)

// Columns says of each table, and in it of each column, whether it may be NULL.
// Tables are named without their schema.
type Columns map[string]map[string]bool

var (
	createTable = regexp.MustCompile(`(?s)CREATE TABLE IF NOT EXISTS \w+\.(\w+) \((.*)\);`)
	columnLine  = regexp.MustCompile(`^\s+([a-z_]+)\s+[A-Z].*?(NOT NULL)?,?$`)

	orderBy   = regexp.MustCompile(`(?i)\bORDER BY ([^()]*?)( LIMIT\b| FOR\b|\)|$)`)
	orderItem = regexp.MustCompile(`(?i)^(?:(\w+)\.)?([a-z_]+)( ASC| DESC)?( NULLS (?:FIRST|LAST))?$`)
	fromTable = regexp.MustCompile(`(?i)\b(?:FROM|JOIN|UPDATE) (?:\w+\.)?(\w+) AS (\w+)`)
)

// AddTable reads a migration's text. One that makes no table changes nothing.
func (c Columns) AddTable(migration string) {
	m := createTable.FindStringSubmatch(migration)
	if m == nil {
		return
	}
	columns := map[string]bool{}
	for line := range strings.Lines(m[2]) {
		if col := columnLine.FindStringSubmatch(strings.TrimRight(line, "\n")); col != nil {
			columns[col[1]] = col[2] == ""
		}
	}
	c[m[1]] = columns
}

// checkOrder finds ORDER BY of a nullable column that leaves open where NULL
// goes: first on one database, last on the other.
func checkOrder(text string, nullable Columns) []string {
	tables := map[string]string{} // by alias
	for _, m := range fromTable.FindAllStringSubmatch(text, -1) {
		tables[m[2]] = m[1]
	}
	var faults []string
	for _, clause := range orderBy.FindAllStringSubmatch(text, -1) {
		for item := range strings.SplitSeq(clause[1], ",") {
			m := orderItem.FindStringSubmatch(strings.TrimSpace(item))
			if m != nil && m[4] == "" && nullable.may(tables[m[1]], m[2]) {
				faults = append(faults, "ORDER BY "+strings.TrimSpace(item)+": the column may be NULL; say NULLS FIRST or LAST")
			}
		}
	}
	return faults
}

// may reports whether the column may be NULL: in the table, or, if that is not
// known, in every table that has such a column.
func (c Columns) may(table, column string) bool {
	if columns, ok := c[table]; ok {
		return columns[column]
	}
	found := false
	for _, columns := range c {
		may, has := columns[column]
		if has && !may {
			return false
		}
		found = found || has
	}
	return found
}
