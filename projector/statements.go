package projector

import (
	"strconv"
	"strings"
)

// statements are the texts that depend on the generation.
type statements struct {
	insertJobs, insertAttempts, insertRejections string
	updateJobs, updateAttempts                   updateStatement
	kinds, providers, verifications              string
	loadJobs, loadAttempts, checkpoint           string
	dueRows, pausedRows                          string
}

func makeStatements(gen string) statements {
	return statements{
		insertJobs:       insertStatement(gen, jobsTable),
		insertAttempts:   insertStatement(gen, attemptsTable),
		insertRejections: insertStatement(gen, rejectionsTable),
		updateJobs: makeUpdate(gen, jobsTable, "t.id = u.id AND t.version = u.was_version"+
			" AND t.completed_by IS NOT DISTINCT FROM u.was_completed_by",
			"was_version", "was_completed_by"),
		updateAttempts: makeUpdate(gen, attemptsTable, "t.job_id = u.job_id AND t.number = u.number"),
		kinds:          definitionStatement(gen, kindsTable),
		providers:      definitionStatement(gen, providersTable),
		verifications:  definitionStatement(gen, verificationsTable),
		loadJobs:       "SELECT " + jobsSelect + " FROM " + gen + ".jobs AS t WHERE t.id = ANY($1)",
		loadAttempts: "SELECT " + attemptsSelect + " FROM " + gen + ".attempts AS t WHERE t.job_id = ANY($1)" +
			" ORDER BY t.job_id, t.number",
		checkpoint: "UPDATE " + gen + ".checkpoints SET seq = $1, chain = $2, chain_prev = $3, effects_seq = $4," +
			" rules = $5, token = $6, updated_at = now() WHERE shard = $7 AND seq = $8 AND epoch = $9",
		dueRows: "SELECT d.job, d.attempt, d.due_at FROM (" +
			"(SELECT t.id AS job, 0::INT8 AS attempt, t.due_at FROM " + gen + ".jobs AS t" +
			" WHERE t.due_at <= $1 AND t.state_reason IS DISTINCT FROM 'provider-paused' ORDER BY t.due_at NULLS LAST LIMIT $2)" +
			" UNION ALL (SELECT t.job_id, t.number, t.due_at FROM " + gen + ".attempts AS t" +
			" WHERE t.due_at <= $1 ORDER BY t.due_at NULLS LAST LIMIT $2)" +
			") AS d ORDER BY d.due_at NULLS LAST LIMIT $2",
		// A job that waits for a brake is due when something has changed to the good since it looked.
		pausedRows: "SELECT t.id, 0::INT8, t.due_at FROM " + gen + ".jobs AS t WHERE t.state_reason = 'provider-paused'" +
			" AND t.due_at < (SELECT max(c.at) FROM (SELECT p.at FROM " + gen + ".providers AS p WHERE NOT p.paused UNION ALL" +
			" SELECT v.at FROM " + gen + ".provider_verifications AS v WHERE v.passed) AS c) ORDER BY t.due_at NULLS LAST LIMIT $1",
	}
}

// insertStatement inserts rows that are not stored yet.
func insertStatement[T any](gen string, t table[T]) string {
	return "INSERT INTO " + gen + "." + t.name + " (" + t.columnList() + ") SELECT " + unnestList(t.cols) +
		" FROM " + unnestFrom(t.cols)
}

// definitionStatement inserts definitions; every shard inserts the same ones.
func definitionStatement[T any](gen string, t table[T]) string {
	return insertStatement(gen, t) + " ON CONFLICT (name, seq) DO NOTHING"
}

// An updateStatement updates many rows of a table by arrays, one for each
// column.
type updateStatement struct {
	text  string
	extra int // arrays after the columns': conditions
}

func makeUpdate[T any](gen string, t table[T], where string, extra ...string) updateStatement {
	keys, sets := updateColumns(t)
	cols := append(keys, sets...)
	var b strings.Builder
	b.WriteString("UPDATE " + gen + "." + t.name + " AS t SET ")
	for i, c := range sets {
		if i > 0 {
			b.WriteString(", ")
		}
		if c.name == "result" { // set once; the fold does not keep it in memory
			b.WriteString("result = COALESCE(u.result::JSONB, t.result)")
			continue
		}
		b.WriteString(c.name + " = " + castFromText("u."+c.name, c.typ))
	}
	for _, name := range extra {
		cols = append(cols, column[T]{name: name, typ: typInt})
	}
	b.WriteString(" FROM " + unnestFrom(cols) + " WHERE " + where)
	return updateStatement{b.String(), len(extra)}
}

// updateColumns returns the columns of the key and those that an update sets.
func updateColumns[T any](t table[T]) (keys, sets []column[T]) {
	for _, c := range t.cols {
		switch {
		case c.name == "id" || c.name == "job_id" || c.name == "number":
			keys = append(keys, c)
		case !c.fixed:
			sets = append(sets, c)
		}
	}
	return keys, sets
}

// Arrays of jsonb and of arrays cannot be sent as such on both databases: their
// elements travel as text and are cast row by row.
func castFromText(expr string, t colType) string {
	if t == typJSON || t == typSeqs {
		return expr + "::" + t.name
	}
	return expr
}

func arrayType(t colType) colType {
	if t == typJSON || t == typSeqs {
		return typText
	}
	return t
}

func unnestList[T any](cols []column[T]) string {
	exprs := make([]string, len(cols))
	for i, c := range cols {
		exprs[i] = castFromText("u."+c.name, c.typ)
	}
	return strings.Join(exprs, ", ")
}

func unnestFrom[T any](cols []column[T]) string {
	args, names := make([]string, len(cols)), make([]string, len(cols))
	for i, c := range cols {
		args[i] = "$" + strconv.Itoa(i+1) + "::" + arrayType(c.typ).name + "[]"
		names[i] = c.name
	}
	return "unnest(" + strings.Join(args, ", ") + ") AS u (" + strings.Join(names, ", ") + ")"
}
