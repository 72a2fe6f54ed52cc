package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Fault is one thing that is wrong with a file. The error of [Load] and
// [LoadTokens] joins the faults in the order of their lines; errors.As finds the
// first of them.
type Fault struct {
	File   string
	Line   int // from 1; 0 if the fault is not at a place
	Column int // from 1, in characters; 0 if the fault is not at a place
	// Path is the member, such as kinds.summarize.providers[1]; empty for the
	// file as a whole.
	Path     string
	Found    string
	Expected string // empty: Found says all
}

// Error reads "jobledger.yaml:7:13: kinds.x.mode: found "racy", expected
// exclusive or race".
func (f *Fault) Error() string {
	place := f.File
	if f.Line > 0 {
		place = fmt.Sprintf("%s:%d:%d", place, f.Line, f.Column)
	}
	if f.Path != "" {
		place += ": " + f.Path
	}
	if f.Expected == "" {
		return place + ": " + f.Found
	}
	return fmt.Sprintf("%s: found %s, expected %s", place, f.Found, f.Expected)
}

// joinFaults returns nil if there are none. A hopeless file is cut off after
// maxFaultsReported, with a last line that says how many more there are.
func joinFaults(file string, faults []*Fault) error {
	slices.SortStableFunc(faults, func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	reported := faults[:min(len(faults), maxFaultsReported)]
	errs := make([]error, 0, len(reported)+1)
	for _, f := range reported {
		errs = append(errs, f)
	}
	if more := len(faults) - len(reported); more > 0 {
		errs = append(errs, fmt.Errorf("%s: and %d more faults", file, more))
	}
	return errors.Join(errs...)
}
