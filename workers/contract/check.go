package contract

import (
	"fmt"

	"jobledger/ledger"
)

// A Fault is one way in which a document breaks a contract.
type Fault struct {
	// Rule is what is broken: "json", "size", "schema", or the name of an
	// assertion or of a case.
	Rule    string
	Pointer string // JSON Pointer into the document; "" for the whole
	Detail  string // for people: what was found and what was expected
}

func (f Fault) String() string {
	if f.Pointer == "" {
		return f.Rule + ": " + f.Detail
	}
	return f.Rule + ": " + f.Pointer + ": " + f.Detail
}

// CheckInput returns what is wrong with an input; nothing if it is right.
func (c *Contract) CheckInput(input []byte) []Fault {
	_, faults := c.check(input, c.spec.Limits.InputBytes, c.input)
	return faults
}

// CheckResult returns what is wrong with the result of an input that is right;
// nothing if it may count as a success.
func (c *Contract) CheckResult(input, result []byte) []Fault {
	_, _, faults := c.checkResult(input, result)
	return faults
}

// CheckCase returns what is wrong with the result of a case, by its number from
// 0, as CheckResult and by what the case expects.
func (c *Contract) CheckCase(n int, result []byte) []Fault {
	in, out, faults := c.checkResult(c.spec.Cases[n].Input, result)
	if len(faults) > 0 {
		return faults
	}
	for _, p := range c.expects[n] {
		if detail := p.holds(in, out); detail != "" {
			faults = append(faults, Fault{Rule: p.name, Detail: detail})
		}
	}
	return faults
}

func (c *Contract) checkResult(input, result []byte) (in, out any, faults []Fault) {
	out, faults = c.check(result, c.spec.Limits.ResultBytes, c.result)
	if len(faults) > 0 {
		return nil, nil, faults
	}
	in, err := document(input)
	if err != nil {
		return nil, nil, []Fault{{Rule: "json", Detail: "the input: " + err.Error()}}
	}
	in, out = celValue(in), celValue(out)
	for _, p := range c.assertions {
		if detail := p.holds(in, out); detail != "" {
			faults = append(faults, Fault{Rule: p.name, Detail: detail})
		}
	}
	return in, out, faults
}

// check checks all that can be said of a document by itself.
func (c *Contract) check(text []byte, most int, v *validator) (any, []Fault) {
	if most > 0 && len(text) > most {
		return nil, []Fault{{Rule: "size", Detail: fmt.Sprintf("%d bytes; at most %d are allowed", len(text), most)}}
	}
	if _, err := ledger.Canonical(nil, text); err != nil {
		return nil, []Fault{{Rule: "json", Detail: err.Error()}}
	}
	doc, err := document(text)
	if err != nil {
		return nil, []Fault{{Rule: "json", Detail: err.Error()}}
	}
	return doc, v.check(doc)
}
