package config

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/workers/contract"
)

// TestLoadContract: a contract file means what the same contract means that is
// written in Go.
func TestLoadContract(t *testing.T) {
	t.Parallel()
	c, err := LoadContract("testdata/contracts/full.yaml")
	require.NoError(t, err)
	cool := 0.2
	same, err := contract.New(contract.Spec{
		Input:  json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","minLength":1},"max_words":{"type":"integer","minimum":1,"maximum":1000}},"required":["text"]}`),
		Result: json.RawMessage(`{"required":["summary"],"type":"object","properties":{"summary":{"type":"string"}}}`),
		Assertions: []contract.Assertion{
			{Name: "shorter", Expr: "size(result.summary) < size(input.text)"},
			{Name: "words", Expr: "!has(input.max_words) || size(result.summary.split(' ')) <= input.max_words"},
		},
		Limits: contract.Limits{InputBytes: 20000, ResultBytes: 4000},
		Prompt: &contract.Prompt{
			System: "You summarize. End with the word DONE.\n", User: "{{.text}}\n{{with .max_words}}At most {{.}} words.{{end}}\n",
			Temperature: &cool, MaxInputTokens: 4000, MaxOutputTokens: 500,
		},
		Cases: []contract.Case{
			{Name: "plain", Input: json.RawMessage(`{"text":"A long text about nothing at all, in many words."}`),
				Expect: []string{`result.summary.endsWith("DONE")`}, Instructions: true},
			{Name: "null is a value", Input: json.RawMessage(`{"text":"The others: true, 1.50, and é."}`)},
		},
	})
	require.NoError(t, err)
	require.Equal(t, same.Digest(), c.Digest())
	require.Contains(t, c.CheckResult([]byte(`{"text":"short"}`), []byte(`{"summary":"longer"}`))[0].Detail, "a summary is shorter")
}

// TestContractFaultInSchemaFile: what is wrong with a schema that has a file of
// its own is told with that file's place.
func TestContractFaultInSchemaFile(t *testing.T) {
	t.Parallel()
	_, err := decodeContract(filepath.Join("testdata", "contracts", "c.yaml"), []byte("result: broken.schema.json\n"))
	var fault *Fault
	require.True(t, errors.As(err, &fault), "%v", err)
	require.Equal(t, filepath.Join("testdata", "contracts", "broken.schema.json"), fault.File)
	require.Equal(t, 4, fault.Line)
	_, err = decodeContract(filepath.Join("testdata", "contracts", "c.yaml"), []byte("result: none.json\n"))
	require.ErrorContains(t, err, "none.json")
	require.ErrorContains(t, err, "c.yaml:1:9: result")
}

func TestContracts(t *testing.T) {
	t.Parallel()
	kind := func(path string) Kind { return Kind{Contract: path} }
	c := &Config{Kinds: map[string]Kind{"a": kind("testdata/contracts/full.yaml"), "b": kind("testdata/contracts/full.yaml"), "c": kind("")}}
	contracts, err := c.Contracts()
	require.NoError(t, err)
	require.Len(t, contracts, 2)
	require.Same(t, contracts["a"], contracts["b"])
	c.Kinds["d"] = kind("testdata/contracts/missing.yaml")
	_, err = c.Contracts()
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "kind d")
}

// FuzzContract: no content panics, and what fails does so as a Fault.
func FuzzContract(f *testing.F) {
	full, err := os.ReadFile("testdata/contracts/full.yaml")
	require.NoError(f, err)
	f.Add(full)
	f.Add([]byte("input: {a: 1, a: 2}\ncases: [{input: .inf}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeContract(filepath.Join("testdata", "contracts", "fuzz.yaml"), data)
		var fault *Fault
		if err == nil {
			require.NotEmpty(t, c.Digest())
			return
		}
		require.True(t, errors.As(err, &fault), "%v", err)
		require.NotEmpty(t, fault.Found)
	})
}

// A model cannot be asked without a prompt.
func TestModelsNeedPrompts(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Providers["gpt"] = Provider{Name: "gpt", Spec: Model{API: APIOpenAI}}
	c.Providers["tool"] = Provider{Name: "tool", Spec: Exec{}}
	kind := func(name, contract string, providers ...string) {
		k := defaultKind(name)
		k.Providers, k.Contract = providers, contract
		c.Kinds[name] = k
	}
	kind("asks", "testdata/contracts/full.yaml", "tool", "gpt")
	kind("hashes", "", "tool")
	_, err := c.Contracts()
	require.NoError(t, err)

	kind("wrong", "", "tool", "gpt")
	_, err = c.Contracts()
	require.EqualError(t, err, "kind wrong has no contract, and its provider gpt is of type openai; "+
		"expected a contract with prompt: {system: …, user: …}, which says what the model is asked")

	path := filepath.Join(t.TempDir(), "bare.yaml")
	require.NoError(t, os.WriteFile(path, []byte("limits: {result_bytes: 10}\n"), 0o600))
	kind("wrong", path, "gpt")
	_, err = c.Contracts()
	require.ErrorContains(t, err, "kind wrong has the contract "+path+" without prompt")
}

// TestTheDocumentedContract: what the documentation shows can be read.
func TestTheDocumentedContract(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/contracts.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(text), "```yaml\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	c, err := decodeContract("summarize.yaml", []byte(block))
	require.NoError(t, err)
	require.Len(t, c.Cases(), 2)
	for _, example := range c.Cases() {
		lost, err := c.Lost(example.Input)
		require.NoError(t, err)
		require.Empty(t, lost, example.Name)
	}
	_, err = LoadContract("../../examples/failover/summarize.yaml")
	require.NoError(t, err)
}
