package model

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/workers"
	"jobledger/workers/contract"
)

func TestOptionsThatAreWrong(t *testing.T) {
	t.Parallel()
	promptless, err := contract.New(contract.Spec{})
	require.NoError(t, err)
	for expected, change := range map[string]func(*Options){
		"Options.Model is empty":               func(o *Options) { o.Model = "" },
		"Options.BaseURL is \"ftp://x\"":       func(o *Options) { o.BaseURL = "ftp://x" },
		"Options.BaseURL is \"http://x/?a=b\"": func(o *Options) { o.BaseURL = "http://x/?a=b" },
		"Options.BaseURL cannot be parsed":     func(o *Options) { o.BaseURL = "http://\x01" },
		"Options.APIKey has white space":       func(o *Options) { o.APIKey = testKey + "\n" },
		"Options.KnownFailures has 200":        func(o *Options) { o.KnownFailures = []int{200} },
		"kind b: the contract has no prompt; a model provider needs one": func(o *Options) {
			o.Contracts = map[string]*contract.Contract{"b": promptless}
		},
		"kind c: there is no contract": func(o *Options) { o.Contracts = map[string]*contract.Contract{"c": nil} },
	} {
		for _, make := range []func(Options) (*Provider, error){NewOpenAI, NewAnthropic} {
			o := Options{Model: "m", APIKey: testKey}
			change(&o)
			_, err := make(o)
			require.ErrorContains(t, err, expected)
			require.NotContains(t, err.Error(), testKey)
		}
	}
}

// Without a contract for the kind, and where the prompt asks for what the input
// does not have, nothing is sent.
func TestCallsWithoutPrompt(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		s := always(t, "")
		p := f.provider(t, s.URL)
		c := testCall()
		c.Kind = "other"
		_, err := p.Call(callContext(t, ample), c)
		require.Equal(t, by(noContract, ""), endingOf(t, err))
		c = testCall()
		c.Input = []byte(`{}`)
		_, err = p.Call(callContext(t, ample), c)
		require.Equal(t, by(noPrompt, ""), endingOf(t, err))
		require.Zero(t, s.Connections.Load())
	})
}

// A server that says back what it was sent does not bring the key into the ledger.
func TestTheKeyStaysOut(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		withKey := "the key is " + testKey
		spelled := ""
		for _, c := range testKey {
			spelled += fmt.Sprintf(`\u%04x`, c)
		}
		answers := map[string]string{
			"401":              whole(401, "Location: /"+testKey+"\r\nX-Request-Id: "+testKey+"\r\n", withKey),
			"an error":         whole(200, jsonHeader(f), `{"error":{"message":`+quote(withKey)+`,"type":"`+testKey+`"}}`),
			"HTML":             whole(200, "Content-Type: text/html\r\n", withKey),
			"an excerpt's end": whole(400, "", strings.Repeat("x", excerptBytes-len(testKey)+2)+testKey),
			"a body's end":     whole(400, "", strings.Repeat(" ", errorBytes-len(testKey)+5)+testKey),
			"a spelled key's":  whole(400, "", strings.Repeat(" ", errorBytes-30)+spelled),
			"before its end":   whole(400, "", strings.Repeat(" ", errorBytes-6*len(testKey)-5)+testKey+strings.Repeat(" ", errorBytes)),
			"an error's end":   whole(200, jsonHeader(f), `{"error":{"message":"`+strings.Repeat("x", excerptBytes-len(testKey)-1)+testKey+`"}}`),
			"a long name":      strings.ReplaceAll(f.answer(said{text: "x", finish: "length"}), "m-1-0611", strings.Repeat("x", nameBytes-len(testKey)+2)+testKey),
			"a refusal":        f.answer(said{text: withKey, finish: map[string]string{"openai": "content_filter", "anthropic": "refusal"}[f.api]}),
			"the output":       f.answer(said{text: quote(withKey), finish: f.finish()}),
			"the end":          f.answer(said{text: quote("x"), finish: testKey}),
			"an odd event":     whole(200, "Content-Type: text/event-stream\r\n", "event: "+testKey+"\ndata: "+testKey+"\n\n"),
			"the model's name": strings.ReplaceAll(f.answer(said{text: "x", finish: "length"}), "m-1-0611", testKey),
		}
		for name, answer := range answers {
			if strings.Contains(answer, "chunked") {
				head, body := unchunked(answer) // with the key it has another length
				answer = head + body
			} else if head, body, _ := strings.Cut(answer, "\r\n\r\n"); strings.Contains(head, "Content-Length") {
				answer = regexp.MustCompile("Content-Length: [0-9]+").ReplaceAllString(head, fmt.Sprintf("Content-Length: %d", len(body))) + "\r\n\r\n" + body
			}
			s := always(t, answer)
			result, err := f.provider(t, s.URL).Call(callContext(t, ample), testCall())
			require.Error(t, err, name)
			text := fmt.Sprintf("%v %+v %s %s %s %s", err, err, result.Body, result.ProviderRef, result.Usage, result.Output)
			require.NotContains(t, text, testKey[:5], name)
			require.NotContains(t, text, spelled[:24], name)
			for e := err; e != nil; e = unwrap(e) {
				require.NotContains(t, e.Error(), testKey, name)
			}
		}
	})
}

func unwrap(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return nil
}

// A placeholder in a key's place is a word like any other.
func TestPlaceholdersAreNoSecrets(t *testing.T) {
	t.Parallel()
	f := flavour{"openai", false}
	s := always(t, f.answer(said{text: `{"summary":"none"}`, finish: "stop"}))
	result, err := f.provider(t, s.URL, func(o *Options) { o.APIKey = "none" }).Call(callContext(t, ample), testCall())
	require.NoError(t, err)
	require.Equal(t, `{"summary":"none"}`, string(result.Body))
}

func TestStrictWhereTheSchemaAllowsIt(t *testing.T) {
	t.Parallel()
	object := func(members, rest string) string {
		return `{"type":"object","properties":{` + members + `},"additionalProperties":false` + rest + `}`
	}
	const a = `"a":{"type":"string"}`
	for text, expected := range map[string]bool{
		object(a, `,"required":["a"]`): true,
		object("", `,"required":[]`):   true,
		object(`"a":{"type":["string","null"],"pattern":"x"}`, `,"required":["a"]`):        true,
		object(`"a":{"$ref":"#/$defs/b"}`, `,"required":["a"],"$defs":{"b":{"enum":[1]}}`): true,
		object(`"a":{"type":"array","items":{"type":"integer"}}`, `,"required":["a"]`):     true,
		object(a, ``): false,
		object(`"a":{"type":"string","minLength":1}`, `,"required":["a"]`):               false,
		object(`"a":{"type":"string","format":"uri"}`, `,"required":["a"]`):              false,
		object(`"a":{}`, `,"required":["a"]`):                                            false,
		object(`"a":true`, `,"required":["a"]`):                                          false,
		object(`"a":{"$ref":"other"}`, `,"required":["a"]`):                              false,
		object(`"a":{"type":"array","items":{"oneOf":[]}}`, `,"required":["a"]`):         false,
		object(`"a":{"anyOf":[{"type":"object","properties":{}}]}`, `,"required":["a"]`): false,
		object(a, `,"required":["a"],"$defs":{"b":{"type":"string","maxLength":3}}`):     false,
		`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`:        false,
		`{"type":"object","additionalProperties":{"type":"string"}}`:                     false,
	} {
		schema, err := objectSchema(json.RawMessage(text))
		require.NoError(t, err)
		_, strict := (&openAI{}).tell(schema)
		require.Equal(t, expected, strict, text)
	}
}

func TestSchemasAsTheyAreTold(t *testing.T) {
	t.Parallel()
	told := func(a api, text string) string {
		schema, err := objectSchema(json.RawMessage(text))
		require.NoError(t, err)
		if schema == nil {
			return "none"
		}
		out, _ := a.tell(schema)
		return quote(out)
	}
	const text = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","additionalProperties":false,"required":["a","n"],
		"properties":{"a":{"type":["string","null"],"maxLength":9},"n":{"enum":[9007199254740993,["x"]]}}}`
	require.JSONEq(t, `{"type":"object","additionalProperties":false,"required":["a","n"],
		"properties":{"a":{"type":["string","null"],"maxLength":9},"n":{"enum":[9007199254740993,["x"]]}}}`, told(&openAI{}, text))
	require.Contains(t, told(&openAI{}, text), "9007199254740993")
	require.JSONEq(t, `{"type":"object","additionalProperties":false,"required":["a","n"],"properties":{
		"a":{"anyOf":[{"type":"string","description":"{maxLength: 9}"},{"type":"null","description":"{maxLength: 9}"}]},
		"n":{"enum":[9007199254740992,["x"]]}}}`, told(&anthropicAPI{}, text))
	for _, other := range []string{`{"type":"array"}`, `true`, `{"anyOf":[{"type":"object"}]}`, `{"type":["object","null"]}`} {
		require.Equal(t, "none", told(&openAI{}, other))
	}
	none, err := objectSchema(nil)
	require.NoError(t, err)
	require.Nil(t, none)
}

var _ workers.Provider = (*Provider)(nil)
