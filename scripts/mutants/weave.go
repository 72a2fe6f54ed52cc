package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// chosenBy is the environment variable that holds the number of the mutant to
// be, from 1; 0 for none.
const chosenBy = "LEDGER_MUTANT"

// chooser is the file that the overlay adds to the package.
const chooser = `package ledger

import (
	"os"
	"strconv"
)

var chosenMutant, _ = strconv.Atoi(os.Getenv("` + chosenBy + `"))
`

// weave writes the package's files with all mutants in them, and the
// description of the overlay, into dir. It returns the description's path.
//
// The function that a mutant changes is copied, changed, and named after the
// mutant; the original begins by handing over to it if it is the chosen one.
func weave(dir string) (string, error) {
	files := map[string][]int{} // the numbers of the mutants of each file
	for i, m := range mutants {
		files[m.file] = append(files[m.file], i+1)
	}
	replace := map[string]string{}
	var faults []error
	for name, numbers := range files {
		woven, err := weaveFile(filepath.Join("ledger", name), numbers)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if err := put(replace, dir, name, woven); err != nil {
			return "", err
		}
	}
	if err := errors.Join(faults...); err != nil {
		return "", err
	}
	if err := put(replace, dir, "chosenmutant.go", chooser); err != nil {
		return "", err
	}
	description, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, description, 0o600)
}

// put writes a file of the package into dir and notes it for the overlay.
func put(replace map[string]string, dir, name, text string) error {
	original, err := filepath.Abs(filepath.Join("ledger", name))
	if err != nil {
		return err
	}
	replace[original] = filepath.Join(dir, name)
	return os.WriteFile(replace[original], []byte(text), 0o600)
}

// weaveFile returns a file's text with the mutants of the given numbers.
func weaveFile(path string, numbers []int) (string, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("run this from the module's root: %w", err)
	}
	text := string(src)
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	w := weaver{text: text, set: set, entries: map[*ast.FuncDecl]string{}}
	var faults []error
	for _, number := range numbers {
		if err := w.add(parsed, number); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", mutants[number-1], err))
		}
	}
	return w.finish(parsed), errors.Join(faults...)
}

type weaver struct {
	text    string
	set     *token.FileSet
	entries map[*ast.FuncDecl]string // what to put at the beginning of each body
	copies  strings.Builder          // the changed functions
}

func (w *weaver) offset(p token.Pos) int { return w.set.Position(p).Offset }

// add makes the changed copy of the function that a mutant is about.
func (w *weaver) add(file *ast.File, number int) error {
	m := mutants[number-1]
	if n := strings.Count(w.text, m.old); n != 1 {
		return fmt.Errorf("the text to replace stands there %d times, expected once; adapt the mutant:\n%s", n, m.old)
	}
	at := strings.Index(w.text, m.old)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || at < w.offset(f.Body.Pos()) || at+len(m.old) > w.offset(f.End())+1 {
			continue
		}
		from, name, to := w.offset(f.Pos()), w.offset(f.Name.End()), w.offset(f.End())
		if f.Doc != nil {
			from = w.offset(f.Type.Func)
		}
		suffix := fmt.Sprintf("__mutant%d", number)
		changed := w.text[from:name] + suffix + w.text[name:at] + m.new + w.text[at+len(m.old):max(to, at+len(m.old))]
		fmt.Fprintf(&w.copies, "\n%s\n", changed)
		w.entries[f] += fmt.Sprintf("if chosenMutant == %d { %s }\n", number, handOver(f, suffix))
		return nil
	}
	return fmt.Errorf("the text to replace does not stand inside of one function:\n%s", m.old)
}

// handOver is the call of f's copy with f's own arguments.
func handOver(f *ast.FuncDecl, suffix string) string {
	var args []string
	for _, p := range f.Type.Params.List {
		for _, n := range p.Names {
			arg := n.Name
			if _, variadic := p.Type.(*ast.Ellipsis); variadic {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	call := f.Name.Name + suffix + "(" + strings.Join(args, ", ") + ")"
	if f.Recv != nil {
		call = f.Recv.List[0].Names[0].Name + "." + call
	}
	if f.Type.Results != nil {
		return "return " + call
	}
	return call + "; return"
}

// finish returns the file's text with the hand-overs and the copies.
func (w *weaver) finish(file *ast.File) string {
	var out strings.Builder
	last := 0
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || w.entries[f] == "" {
			continue
		}
		brace := w.offset(f.Body.Lbrace) + 1
		out.WriteString(w.text[last:brace])
		out.WriteString("\n" + w.entries[f])
		last = brace
	}
	out.WriteString(w.text[last:])
	out.WriteString(w.copies.String())
	return out.String()
}
