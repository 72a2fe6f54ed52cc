package ledger

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowedImports are what the pure core may use, each without I/O, clocks and
// randomness of its own. An addition needs a reason here.
var allowedImports = []string{
	"bytes", "errors", "fmt", "math", "slices", "strconv", "strings", "unicode", "unicode/utf16", "unicode/utf8",
	"crypto/sha256", "encoding/binary", "encoding/hex",
	"time",                   // values and arithmetic; see forbiddenCalls
	"github.com/google/uuid", // UUIDv5 and parsing; see forbiddenCalls
}

// forbiddenCalls read a clock or a source of randomness, or wait.
var forbiddenCalls = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Local", "LoadLocation"},
	"uuid": {"New", "NewString", "NewRandom", "NewRandomFromReader", "NewUUID", "NewV6", "NewV7", "NewV7FromReader", "SetRand"},
	"fmt":  {"Print", "Printf", "Println", "Fprint", "Fprintf", "Fprintln", "Scan", "Scanf", "Scanln"},
}

// reviewedMapRanges are the loops over what has a map's name and is none, or
// whose order cannot reach a result, each with the reason.
var reviewedMapRanges = map[string]string{
	"policy.go providers": "nextVerified's local slice, in the kind's order",
}

func TestLedgerIsPure(t *testing.T) {
	t.Parallel()
	files, maps := parsePackage(t)
	for name, file := range files {
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(allowedImports, path) {
				t.Errorf("%s imports %s; the ledger does no I/O and reads no clock", name, path)
			}
			if spec.Name != nil {
				t.Errorf("%s imports %s under another name, which this test does not see through", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if pkg, ok := n.X.(*ast.Ident); ok && slices.Contains(forbiddenCalls[pkg.Name], n.Sel.Name) {
					t.Errorf("%s uses %s.%s", name, pkg.Name, n.Sel.Name)
				}
			case *ast.GoStmt, *ast.SelectStmt:
				t.Errorf("%s starts a goroutine or selects: the order of things would be the scheduler's", name)
			case *ast.RangeStmt:
				if over := rangedName(n.X); maps[over] && reviewedMapRanges[name+" "+over] == "" {
					t.Errorf("%s ranges over %s, whose name is a map's; its order must reach no result", name, over)
				}
			}
			return true
		})
	}
}

// parsePackage returns the package's files and the names of all fields,
// variables and parameters in them that are declared as maps.
func parsePackage(t *testing.T) (map[string]*ast.File, map[string]bool) {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files, maps := map[string]*ast.File{}, map[string]bool{}
	fset := token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = file
		ast.Inspect(file, func(n ast.Node) bool {
			collectMaps(n, maps)
			return true
		})
	}
	if len(files) == 0 || len(maps) == 0 {
		t.Fatalf("%d files and %d maps were found; the test looks in the wrong place", len(files), len(maps))
	}
	return files, maps
}

func collectMaps(n ast.Node, maps map[string]bool) {
	add := func(names []*ast.Ident, of ast.Expr) {
		if isMap(of) {
			for _, name := range names {
				maps[name.Name] = true
			}
		}
	}
	switch n := n.(type) {
	case *ast.Field:
		add(n.Names, n.Type)
	case *ast.ValueSpec:
		add(n.Names, n.Type)
		for i, v := range n.Values {
			add(n.Names[i:i+1], v)
		}
	case *ast.AssignStmt:
		for i, v := range n.Rhs {
			if name, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok {
				add([]*ast.Ident{name}, v)
			}
		}
	}
}

// isMap reports whether an expression is a map's type, literal or make.
func isMap(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.MapType:
		return true
	case *ast.CompositeLit:
		return isMap(e.Type)
	case *ast.CallExpr:
		if name, ok := e.Fun.(*ast.Ident); ok && name.Name == "make" && len(e.Args) > 0 {
			return isMap(e.Args[0])
		}
	}
	return false
}

// rangedName returns the last name of what is ranged over.
func rangedName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
