package contract_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/workers/contract"
)

func summarize() contract.Spec {
	return contract.Spec{
		Input:  json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"},"max":{"type":"integer"}},"required":["text"]}`),
		Result: json.RawMessage(`{"type":"object","properties":{"summary":{"type":"string"},"parts":{"type":"array","items":{"type":"object","properties":{"n":{"type":"number"}}}}},"required":["summary"]}`),
		Assertions: []contract.Assertion{
			{Name: "shorter", Expr: "size(result.summary) < size(input.text)", Message: "a summary is shorter than its text"},
		},
		Limits: contract.Limits{InputBytes: 1000, ResultBytes: 500},
		Prompt: &contract.Prompt{System: "End with DONE.", User: "Summarize:\n{{.text}}", MaxInputTokens: 100},
		Cases: []contract.Case{{
			Name: "plain", Input: json.RawMessage(`{"text":"a long long text"}`), Expect: []string{`result.summary.endsWith("DONE")`}, Instructions: true,
		}},
	}
}

func compile(t *testing.T, s contract.Spec) *contract.Contract {
	t.Helper()
	c, err := contract.New(s)
	require.NoError(t, err)
	return c
}

func rules(faults []contract.Fault) string {
	var list []string
	for _, f := range faults {
		list = append(list, f.Rule+f.Pointer)
	}
	return strings.Join(list, " ")
}

func TestCheckResult(t *testing.T) {
	t.Parallel()
	c := compile(t, summarize())
	input := []byte(`{"text":"a long long text"}`)
	for result, want := range map[string]string{
		`{"summary":"short"}`:                            "",
		`{"summary":"short","parts":[{"n":1}]}`:          "",
		`{"summary":"short","extra":1}`:                  "schema/extra",
		`{"summary":"short","parts":[{"n":1,"m":2}]}`:    "schema/parts/0/m",
		`{"summary":7}`:                                  "schema/summary",
		`{}`:                                             "schema",
		`["summary"]`:                                    "schema",
		"```json\n{}\n```":                               "json",
		`{"summary":"a","summary":"b"}`:                  "json",
		`{"summary":"longer than the text was, by far"}`: "shorter",
		`{"summary":"` + strings.Repeat("x", 600) + `"}`: "size",
	} {
		faults := c.CheckResult(input, []byte(result))
		require.Equal(t, want, rules(faults), "%s: %v", result, faults)
	}
	require.Contains(t, c.CheckResult(input, []byte(`{"summary":"longer than the text was, by far"}`))[0].Detail, "a summary is shorter")
	require.Equal(t, "schema/more", rules(c.CheckInput([]byte(`{"text":"x","more":1}`))))
	require.Equal(t, "size", rules(c.CheckInput([]byte(`{"text":"`+strings.Repeat("x", 1000)+`"}`))))
}

func TestCheckCase(t *testing.T) {
	t.Parallel()
	c := compile(t, summarize())
	require.Empty(t, c.CheckCase(0, []byte(`{"summary":"ok DONE"}`)))
	require.Equal(t, "plain", rules(c.CheckCase(0, []byte(`{"summary":"ok"}`))))
	require.Equal(t, "shorter", rules(c.CheckCase(0, []byte(`{"summary":"much longer than the text, DONE"}`))))
}

// TestClosedSchemas: what nobody declared is not allowed, wherever the schema's
// parts stand; who wants more says so.
func TestClosedSchemas(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ schema, good, bad string }{
		{`{"properties":{"a":true}}`, `{"a":{"x":1}}`, `{"b":1}`},
		{`{"properties":{"a":{}}}`, `{"a":1}`, `{"a":{"x":1}}`},
		{`{"properties":{"a":true},"additionalProperties":true}`, `{"a":1,"b":2}`, `1e`},
		{`{"properties":{"a":true},"additionalProperties":{"type":"number"}}`, `{"b":2}`, `{"b":"x"}`},
		{`{"allOf":[{"properties":{"a":true}},{"properties":{"b":true}}]}`, `{"a":1,"b":2}`, `{"a":1,"c":2}`},
		{`{"$defs":{"p":{"properties":{"a":true}}},"$ref":"#/$defs/p","properties":{"b":true}}`, `{"a":1,"b":2}`, `{"c":1}`},
		{`{"$defs":{"p":{"properties":{"a":true}}},"items":{"$ref":"#/$defs/p"}}`, `[{"a":1}]`, `[{"b":1}]`},
		{`{"oneOf":[{"properties":{"k":{"const":1},"a":true},"required":["k"]},{"properties":{"k":{"const":2},"b":true},"required":["k"]}]}`, `{"k":1,"a":1}`, `{"k":1,"b":1}`},
		{`{"prefixItems":[{"properties":{"a":true}}]}`, `[{"a":1}]`, `[{"b":1}]`},
		{`{"patternProperties":{"^x":{"properties":{"a":true}}}}`, `{"x1":{"a":1}}`, `{"x1":{"b":1}}`},
		{`{"if":{"properties":{"k":{"const":1}},"required":["k"]},"then":{"properties":{"k":true,"a":true}},"else":{"properties":{"b":true}}}`, `{"k":1,"a":2}`, `{"k":1,"b":2}`},
		{`{"dependencies":{"a":{"properties":{"a":true,"b":{"properties":{"c":true}}}}}}`, `{"a":1,"b":{"c":1}}`, `{"a":1,"b":{"z":1}}`},
		{`{"properties":{"a":true,"b":true},"dependencies":{"a":["b"]}}`, `{"a":1,"b":2}`, `{"a":1}`},
		{`true`, `{"anything":1}`, `1e`},
		{`{"properties":{"d":{"type":"string","format":"date"}}}`, `{"d":"2026-01-31"}`, `{"d":"yesterday"}`},
	} {
		c := compile(t, contract.Spec{Result: json.RawMessage(test.schema)})
		require.Empty(t, c.CheckResult([]byte(`1`), []byte(test.good)), test.schema)
		require.NotEmpty(t, c.CheckResult([]byte(`1`), []byte(test.bad)), "%s %s", test.schema, test.bad)
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	base := compile(t, summarize()).Digest()
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, base)
	same := summarize()
	same.Input = json.RawMessage("{ \"required\":[\"text\"],\n\"properties\":{\"max\":{\"type\":\"integer\"},\"text\":{\"type\":\"string\"}}, \"type\":\"object\"}")
	same.Assertions[0].Message = "said in another way"
	require.Equal(t, base, compile(t, same).Digest())
	for name, change := range map[string]func(*contract.Spec){
		"input":       func(s *contract.Spec) { s.Input = nil },
		"result":      func(s *contract.Spec) { s.Result = json.RawMessage(`true`) },
		"assertion":   func(s *contract.Spec) { s.Assertions[0].Expr = "size(result.summary) <= size(input.text)" },
		"limit":       func(s *contract.Spec) { s.Limits.ResultBytes++ },
		"system":      func(s *contract.Spec) { s.Prompt.System = "End." },
		"tokens":      func(s *contract.Spec) { s.Prompt.MaxOutputTokens = 7 },
		"temperature": func(s *contract.Spec) { zero := 0.0; s.Prompt.Temperature = &zero },
		"case":        func(s *contract.Spec) { s.Cases[0].Expect = nil },
	} {
		s := summarize()
		change(&s)
		require.NotEqual(t, base, compile(t, s).Digest(), name)
	}
}

func TestSpecErrors(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*contract.Spec){
		"/input/properties/text/type": func(s *contract.Spec) { s.Input = json.RawMessage(`{"properties":{"text":{"type":"strin"}}}`) },
		"/result":                     func(s *contract.Spec) { s.Result = json.RawMessage(`{"$ref":"http://127.0.0.1/x"}`) },
		"/assertions/0/expr":          func(s *contract.Spec) { s.Assertions[0].Expr = "size(" },
		"/result/$schema": func(s *contract.Spec) {
			s.Result = json.RawMessage(`{"$schema":"http://json-schema.org/draft-07/schema#"}`)
		},
		"/assertions/0/name":   func(s *contract.Spec) { s.Assertions[0].Name = "" },
		"/limits/result_bytes": func(s *contract.Spec) { s.Limits.ResultBytes = -1 },
		"/prompt/user":         func(s *contract.Spec) { s.Prompt.User = "{{.text" },
		"/prompt/temperature":  func(s *contract.Spec) { hot := 3.0; s.Prompt.Temperature = &hot },
		"/cases/0/input/more":  func(s *contract.Spec) { s.Cases[0].Input = json.RawMessage(`{"text":"x","max":"many"}`) },
		"/cases/0/expect/0":    func(s *contract.Spec) { s.Cases[0].Expect = []string{"result.summary + "} },
		"/cases/1/name":        func(s *contract.Spec) { s.Cases = append(s.Cases, s.Cases[0]) },
		"/cases":               func(s *contract.Spec) { s.Cases[0].Instructions = false },
	} {
		s := summarize()
		change(&s)
		_, err := contract.New(s)
		var at *contract.SpecError
		require.True(t, errors.As(err, &at), want)
		require.True(t, strings.HasPrefix(at.Pointer, strings.TrimSuffix(want, "/more")), "%s: %v", want, err)
	}
}

// TestAssertionsAreBounded: an expression that would work for minutes on what a
// provider returned does not hold, soon.
func TestAssertionsAreBounded(t *testing.T) {
	t.Parallel()
	s := contract.Spec{Assertions: []contract.Assertion{{Name: "long", Expr: "result.all(a, result.all(b, result.all(c, a + b + c > 0)))"}}}
	c := compile(t, s)
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 3000), ",") + "]"
	faults := c.CheckResult([]byte(`1`), []byte(list))
	require.Equal(t, "long", rules(faults))
	require.Contains(t, faults[0].Detail, "cannot be evaluated")
}

// TestNumbersInAssertions: different numbers do not compare equal, and what CEL
// cannot hold is not reckoned with. It fails only where it is asked for.
func TestNumbersInAssertions(t *testing.T) {
	t.Parallel()
	c := compile(t, contract.Spec{Assertions: []contract.Assertion{{Name: "same", Expr: "result.id == input.id"}}})
	for _, test := range []struct{ input, result, want string }{
		{`1`, `1.0`, ""},
		{`1e3`, `1000`, ""},
		{`0.1`, `0.10`, ""},
		{`9007199254740993`, `9007199254740993`, ""},
		{`9007199254740993`, `9007199254740992`, "is false"},
		{`9007199254740993.0`, `9007199254740992`, "is false"},
		{`9223372036854775807`, `9.223372036854775807e18`, ""},
		{`1e-3`, `0.001`, ""},
		{`6.02214076e23`, `602214076e15`, ""},
		{`100000000000000000000`, `100000000000000000001`, "is false"},
		{`100000000000000000001`, `100000000000000000001.0`, ""},
		{`[100000000000000000001]`, `[100000000000000000002]`, "is false"},
		{`9223372036854775807`, `9223372036854775808`, "is false"},
		{`1e400`, `2e400`, "is false"},
		{`0`, `1e-400`, "is false"},
		{`0e400`, `0`, ""},
	} {
		faults := c.CheckResult([]byte(`{"id":`+test.input+`}`), []byte(`{"id":`+test.result+`,"other":1e400}`))
		if test.want == "" {
			require.Empty(t, faults, test.result)
			continue
		}
		require.Equal(t, "same", rules(faults), test.result)
		require.Contains(t, faults[0].Detail, test.want, test.result)
	}
	for _, expr := range []string{"result < 2.0", "result > 2", "result + 1.0 > 2.0", "double(result) > 2.0", "math.greatest(result, 1) > 2", "string(result) == ''"} {
		c := compile(t, contract.Spec{Assertions: []contract.Assertion{{Name: "more", Expr: expr}}})
		for _, number := range []string{`1e400`, `100000000000000000001`} {
			faults := c.CheckResult([]byte(`1`), []byte(number))
			require.Equal(t, "more", rules(faults), "%s: %s", expr, number)
			require.Contains(t, faults[0].Detail, "cannot be evaluated", "%s: %s", expr, number)
		}
	}
}

func TestPrompt(t *testing.T) {
	t.Parallel()
	c := compile(t, summarize())
	input := []byte(`{"text":"say \"hello\" & <bye>"}`)
	r, err := c.Render(input)
	require.NoError(t, err)
	require.Equal(t, "Summarize:\nsay \"hello\" & <bye>", r.User)
	require.Equal(t, "End with DONE.", r.System)
	lost, err := c.Lost(input)
	require.NoError(t, err)
	require.Empty(t, lost)
	lost, err = c.Lost([]byte(`{"text":"17 hellos","max":17}`))
	require.NoError(t, err)
	require.Equal(t, []string{"/max"}, lost, "the text's 17 is not that of max")
	mangled := summarize()
	mangled.Prompt.User = `{{printf "%.4s" .text}}`
	lost, err = compile(t, mangled).Lost(input)
	require.NoError(t, err)
	require.Equal(t, []string{"/text"}, lost)
	_, err = c.Render([]byte(`{"max":1}`))
	require.ErrorContains(t, err, "user part")
	_, err = compile(t, contract.Spec{}).Render(input)
	require.ErrorContains(t, err, "no prompt")
}

func TestResultSchema(t *testing.T) {
	t.Parallel()
	c := compile(t, summarize())
	require.JSONEq(t, `{"type":"object","properties":{"summary":{"type":"string"},"parts":{"type":"array","items":{"type":"object",
		"properties":{"n":{"type":"number"}},"additionalProperties":false}}},"required":["summary"],"additionalProperties":false}`, string(c.ResultSchema()))
	require.Nil(t, compile(t, contract.Spec{}).ResultSchema())
	for schema, want := range map[string]string{
		`{"allOf":[{"properties":{"a":{"properties":{"b":true}}},"required":["a"]},{"properties":{"c":true},"required":["c"]}]}`: `{"allOf":[
			{"properties":{"a":{"properties":{"b":true},"additionalProperties":false}},"required":["a"]},{"properties":{"c":true},"required":["c"]}]}`,
		`{"properties":{"a":true},"unevaluatedProperties":true}`:                                                                  "",
		`{"properties":{"a":true},"allOf":[{"properties":{"b":true}}]}`:                                                           "",
		`{"properties":{"a":true},"anyOf":[{"properties":{"b":true}}]}`:                                                           "",
		`{"if":{"properties":{"a":{"properties":{"b":true}}}},"then":{"properties":{"c":true}},"else":{"properties":{"d":true}}}`: "",
		`{"properties":{"a":true},"dependentSchemas":{"a":{"properties":{"b":true}}}}`:                                            "",
		`{"not":{"properties":{"a":true}}}`:                                                                                       "",
		`{"$defs":{"p":{"properties":{"a":true}}},"$ref":"#/$defs/p","properties":{"b":true}}`:                                    "",
		`{"allOf":[{"$ref":"#/$defs/p"}],"$defs":{"p":{"properties":{"a":true}}}}`:                                                "",
		`{"$defs":{"p":{"properties":{"a":true}}},"items":{"$ref":"#/$defs/p"}}`:                                                  `{"$defs":{"p":{"properties":{"a":true},"additionalProperties":false}},"items":{"$ref":"#/$defs/p"}}`,
		`{"anyOf":[{"properties":{"a":true}},{"type":"null"}]}`:                                                                   `{"anyOf":[{"properties":{"a":true},"additionalProperties":false},{"type":"null"}]}`,
	} {
		if want == "" {
			want = schema
		}
		require.JSONEq(t, want, string(compile(t, contract.Spec{Result: json.RawMessage(schema)}).ResultSchema()), schema)
	}
}
