package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
)

// Bounds of one assertion: what it may cost in CEL's own measure, and how long it
// may take. An assertion is written by an operator and works on what a provider
// returns, which may be large and strange.
const (
	assertionCost = 10_000_000
	assertionTime = 2 * time.Second
)

// environment is what expressions may use: the variables, and CEL's functions on
// strings, lists, sets and numbers.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("input", cel.DynType), cel.Variable("result", cel.DynType),
		cel.CrossTypeNumericComparisons(true),
		ext.Strings(), ext.Lists(), ext.Sets(), ext.Math(),
	)
})

// A program is a compiled expression.
type program struct {
	name, expr, message string
	run                 cel.Program
}

// compile compiles the expression at a place of the Spec.
func compile(at, name, expr, message string) (*program, error) {
	env, err := environment()
	if err != nil {
		return nil, specError(at, "the CEL environment: %v", err)
	}
	ast, issues := env.Compile(expr)
	if issues != nil && issues.Err() != nil {
		return nil, specError(at, "it is no CEL expression over input and result: %s", oneLine(issues.Err().Error()))
	}
	if t := ast.OutputType(); t != cel.BoolType && t != cel.DynType {
		return nil, specError(at, "it gives a %s; an assertion is true or false", t)
	}
	run, err := env.Program(ast, cel.CostLimit(assertionCost), cel.InterruptCheckFrequency(100))
	if err != nil {
		return nil, specError(at, "%s", oneLine(err.Error()))
	}
	return &program{name, expr, message, run}, nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// holds evaluates the expression and returns why it does not hold, "" if it does.
// One that cannot be evaluated, say because a member is missing, does not hold.
func (p *program) holds(input, result any) string {
	ctx, cancel := context.WithTimeout(context.Background(), assertionTime)
	defer cancel()
	v, _, err := p.run.ContextEval(ctx, map[string]any{"input": input, "result": result})
	switch {
	case err != nil:
		return fmt.Sprintf("%s cannot be evaluated: %s", p.expr, oneLine(err.Error()))
	case v == types.True:
		return ""
	case v != types.False:
		return fmt.Sprintf("%s is neither true nor false", p.expr)
	case p.message != "":
		return fmt.Sprintf("%s (%s is false)", p.message, p.expr)
	}
	return p.expr + " is false"
}

// celValue gives numbers the types that CEL knows: int where it is exact, double
// where it tells the number from others, else hugeNumber.
func celValue(v any) any {
	switch v := v.(type) {
	case json.Number:
		return celNumber(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = celValue(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = celValue(v[k])
		}
		return out
	}
	return v
}
