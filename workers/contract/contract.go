package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"jobledger/ledger"
)

// A Spec is a contract as it is written. Zero members are absent.
type Spec struct {
	Input      json.RawMessage `json:"input,omitempty"`  // JSON Schema; nil: anything
	Result     json.RawMessage `json:"result,omitempty"` // JSON Schema; nil: anything
	Assertions []Assertion     `json:"assertions,omitempty"`
	Limits     Limits          `json:"limits"`
	Prompt     *Prompt         `json:"prompt,omitempty"` // for model providers
	Cases      []Case          `json:"cases,omitempty"`
}

// An Assertion is a CEL expression over the variables input and result. It must
// be true of every result.
type Assertion struct {
	Name string `json:"name"`
	Expr string `json:"expr"`
	// Message tells people what it means that it does not hold. It is no part
	// of the contract's meaning.
	Message string `json:"-"`
}

// Limits bound sizes, in bytes of JSON as it was sent. 0: the ledger's own.
type Limits struct {
	InputBytes  int `json:"input_bytes"`
	ResultBytes int `json:"result_bytes"`
}

// A Prompt is what a model is asked, made from the input by templates in the
// syntax of text/template. The input is the template's dot; json renders a value
// as JSON.
type Prompt struct {
	System          string   `json:"system"`
	User            string   `json:"user"`
	Temperature     *float64 `json:"temperature,omitempty"` // nil: the model's own
	MaxInputTokens  int      `json:"max_input_tokens"`      // 0: no bound
	MaxOutputTokens int      `json:"max_output_tokens"`     // 0: the model's own
}

// A Case is an example: an input, and what must hold of its result besides the
// schema and the assertions.
type Case struct {
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	Expect []string        `json:"expect,omitempty"` // CEL expressions
	// Instructions says that the case passes only if the instructions (the
	// system prompt) were followed. A contract with a prompt needs one such.
	Instructions bool `json:"instructions,omitempty"`
}

// A SpecError says what is wrong with a Spec, and where.
type SpecError struct {
	Pointer string // JSON Pointer into the Spec's JSON form
	Problem string
}

func (e *SpecError) Error() string { return e.Pointer + ": " + e.Problem }

func specError(pointer, format string, args ...any) error {
	return &SpecError{pointer, fmt.Sprintf(format, args...)}
}

// A Contract is a Spec that was checked and compiled.
type Contract struct {
	spec       Spec
	digest     string
	input      *validator // nil: anything
	result     *validator
	assertions []*program
	expects    [][]*program // by case
	prompt     *prompt      // nil: none
}

// New compiles a contract. The error is a *SpecError.
func New(s Spec) (*Contract, error) {
	c := &Contract{spec: s}
	if err := c.compile(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, specError("", "%v", err)
	}
	canonical, err := ledger.Canonical(nil, text)
	if err != nil {
		return nil, specError("", "%v", err)
	}
	sum := sha256.Sum256(canonical)
	c.digest = "sha256:" + hex.EncodeToString(sum[:])
	return c, nil
}

func (c *Contract) compile() (err error) {
	s := &c.spec
	if err := s.Limits.check(); err != nil {
		return err
	}
	if c.input, err = newValidator("/input", s.Input); err != nil {
		return err
	}
	if c.result, err = newValidator("/result", s.Result); err != nil {
		return err
	}
	for i, a := range s.Assertions {
		at := "/assertions/" + strconv.Itoa(i)
		if a.Name == "" {
			return specError(at+"/name", "it is empty; a name is how people find the assertion")
		}
		p, err := compile(at+"/expr", a.Name, a.Expr, a.Message)
		if err != nil {
			return err
		}
		c.assertions = append(c.assertions, p)
	}
	if s.Prompt != nil {
		if c.prompt, err = newPrompt(s.Prompt); err != nil {
			return err
		}
	}
	return c.compileCases()
}

func (c *Contract) compileCases() error {
	instructions := c.spec.Prompt == nil
	names := map[string]bool{}
	for i, example := range c.spec.Cases {
		at := "/cases/" + strconv.Itoa(i)
		switch {
		case example.Name == "":
			return specError(at+"/name", "it is empty; a name is how a report tells the case")
		case names[example.Name]:
			return specError(at+"/name", "%q stands there twice", example.Name)
		case example.Input == nil:
			return specError(at+"/input", "it is missing")
		}
		names[example.Name] = true
		instructions = instructions || example.Instructions
		if faults := c.CheckInput(example.Input); len(faults) > 0 {
			return specError(at+"/input"+faults[0].Pointer, "the case's own input breaks the contract: %s", faults[0].Detail)
		}
		var list []*program
		for n, expr := range example.Expect {
			p, err := compile(at+"/expect/"+strconv.Itoa(n), example.Name, expr, "")
			if err != nil {
				return err
			}
			list = append(list, p)
		}
		c.expects = append(c.expects, list)
	}
	if !instructions {
		return specError("/cases", "no case has instructions: true; a contract with a prompt needs one that passes only if the instructions were followed")
	}
	return nil
}

func (l Limits) check() error {
	for name, v := range map[string]int{"input_bytes": l.InputBytes, "result_bytes": l.ResultBytes} {
		if v < 0 || v > ledger.MaxResultBytes {
			return specError("/limits/"+name, "%d; expected 0 to %d", v, ledger.MaxResultBytes)
		}
	}
	return nil
}

// Digest identifies what the contract means, not how it is laid out: "sha256:"
// and 64 hexadecimal digits.
func (c *Contract) Digest() string { return c.digest }

// Cases returns the examples. They must not be changed.
func (c *Contract) Cases() []Case { return c.spec.Cases }

// Prompt returns the prompt, nil if there is none. It must not be changed.
func (c *Contract) Prompt() *Prompt { return c.spec.Prompt }
