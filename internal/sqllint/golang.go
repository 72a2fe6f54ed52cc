package sqllint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// A Text is a piece of SQL in a Go file.
type Text struct {
	Place string // file:line
	SQL   string
}

// unknown stands in a Text for what is not a literal: a generation's name, a
// list of columns, a number.
const unknown = "x"

// looksLikeSQL finds statements and parts of statements among other strings:
// keywords are written in capitals here, and a statement is recognised in small
// letters too.
var looksLikeSQL = regexp.MustCompile(
	`\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|COPY|WITH|FROM|WHERE|SET|VALUES|ORDER BY|GROUP BY|ON CONFLICT|RETURNING|LIMIT|UNION ALL)\b` +
		`|^\s*(?i:select\s.*\sfrom|insert\s+into|update\s+\S+\s+set|delete\s+from|copy\s.*\s(from|to)\s|create\s+table|truncate\s|drop\s+table)\b`)

// FromGo returns the SQL in a Go file. Strings that are put together by + are
// one text, in which every other operand is a single x. Formatting verbs are
// replaced likewise.
func FromGo(name string, src []byte) ([]Text, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("read the SQL in a Go file: %w", err)
	}
	var texts []Text
	take := func(e ast.Expr) {
		sql := verb.ReplaceAllString(joined(e), unknown)
		if looksLikeSQL.MatchString(sql) {
			texts = append(texts, Text{Place: files.Position(e.Pos()).String(), SQL: sql})
		}
	}
	var visit func(ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field: // a tag is no SQL
			return n.Tag == nil
		case *ast.BinaryExpr:
			if n.Op == token.ADD && holdsText(n) {
				take(n)
				eachOperand(n, func(e ast.Expr) { ast.Inspect(e, visit) })
				return false
			}
		case *ast.BasicLit:
			take(n)
		}
		return true
	}
	ast.Inspect(file, visit)
	return texts, nil
}

var verb = regexp.MustCompile(`%[a-z]`)

// eachOperand calls f for the operands of a sum that are no literals, such as
// calls, whose arguments may be texts of their own.
func eachOperand(e ast.Expr, f func(ast.Expr)) {
	switch e := e.(type) {
	case *ast.BasicLit:
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			f(e)
			return
		}
		eachOperand(e.X, f)
		eachOperand(e.Y, f)
	default:
		f(e)
	}
}

// holdsText reports whether an expression is or contains, by +, a literal.
func holdsText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return e.Op == token.ADD && (holdsText(e.X) || holdsText(e.Y))
	case *ast.ParenExpr:
		return holdsText(e.X)
	}
	return false
}

// joined returns the text of an expression.
func joined(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			if s, err := strconv.Unquote(e.Value); err == nil {
				return s
			}
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return joined(e.X) + joined(e.Y)
		}
	case *ast.ParenExpr:
		return joined(e.X)
	}
	return unknown
}

// String returns the text on one line, with its place.
func (t Text) String() string { return t.Place + ": " + strings.Join(strings.Fields(t.SQL), " ") }
