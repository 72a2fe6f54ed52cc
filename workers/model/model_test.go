package model

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"jobledger/workers/contract"
)

const goodText = `{"summary":"é hello"}`

func TestAnswersGiveResults(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		s := always(t, f.answer(said{text: goodText, finish: f.finish()}))
		result, err := f.provider(t, s.URL).Call(callContext(t, ample), testCall())
		require.NoError(t, err)
		require.Equal(t, goodText, string(result.Body))
		require.Equal(t, "req-1", result.ProviderRef)
		require.JSONEq(t, `{"input_tokens":11,"output_tokens":7,"model":"m-1-0611"}`, string(result.Usage))
		require.Empty(t, result.Output)
		require.EqualValues(t, 1, s.Requests.Load())
	})
}

func TestRequestsAreAsTheAPIsWantThem(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		s := always(t, f.answer(said{text: goodText, finish: f.finish()}))
		c := testCall()
		_, err := f.provider(t, s.URL+"/").Call(callContext(t, ample), c)
		require.NoError(t, err)
		req, body := s.Last()
		require.Equal(t, http.MethodPost, req.Method)
		for name, value := range map[string]string{
			"Idempotency-Key": c.IdempotencyKey, "Ledger-Job-Id": c.JobID.String(), "Ledger-Attempt": "2",
			"Traceparent": c.Traceparent, "Content-Type": "application/json", "Accept-Encoding": "identity",
		} {
			require.Equal(t, []string{value}, req.Header.Values(name), name)
		}
		for name := range req.Header {
			require.False(t, strings.HasPrefix(name, "X-Stainless-"), name)
		}
		stream := ""
		if f.stream {
			stream = `"stream":true,`
			require.Equal(t, "text/event-stream", req.Header.Get("Accept"))
		}
		schema := `{"type":"object","properties":{"summary":{"type":"string"}},"required":["summary"],"additionalProperties":false}`
		if f.api == "openai" {
			require.Equal(t, "/run/chat/completions", req.URL.Path)
			require.Equal(t, "Bearer "+testKey, req.Header.Get("Authorization"))
			if f.stream {
				stream += `"stream_options":{"include_usage":true},`
			}
			require.JSONEq(t, `{`+stream+`"model":"m-1","temperature":0.25,"max_completion_tokens":77,
				"messages":[{"role":"system","content":"Summarise."},{"role":"user","content":"Text: hello <b>"}],
				"response_format":{"type":"json_schema","json_schema":{"name":"summarize","strict":true,"schema":`+schema+`}}}`, string(body))
			return
		}
		require.Equal(t, "/run/v1/messages", req.URL.Path)
		require.Equal(t, testKey, req.Header.Get("X-Api-Key"))
		require.Equal(t, "2023-06-01", req.Header.Get("Anthropic-Version"))
		require.JSONEq(t, `{`+stream+`"model":"m-1","temperature":0.25,"max_tokens":77,
			"system":[{"type":"text","text":"Summarise."}],
			"messages":[{"role":"user","content":[{"type":"text","text":"Text: hello <b>"}]}],
			"output_config":{"format":{"type":"json_schema","schema":`+schema+`}}}`, string(body))
	})
}

// What the contract leaves open is left to the model.
func TestRequestsWithoutBounds(t *testing.T) {
	t.Parallel()
	bare, err := contract.New(contract.Spec{
		Prompt: &contract.Prompt{User: "{{json .}}"},
		Cases:  []contract.Case{{Name: "one", Input: json.RawMessage(`1`), Instructions: true}},
	})
	require.NoError(t, err)
	expected := map[string]string{
		"openai":    `{"model":"m-1","messages":[{"role":"user","content":"[1]"}]}`,
		"anthropic": `{"model":"m-1","max_tokens":4096,"messages":[{"role":"user","content":[{"type":"text","text":"[1]"}]}]}`,
	}
	for _, f := range []flavour{{"openai", false}, {"anthropic", false}} {
		s := always(t, f.answer(said{text: goodText, finish: f.finish()}))
		p := f.provider(t, s.URL, func(o *Options) {
			o.APIKey, o.Contracts = "", map[string]*contract.Contract{"summarize": bare}
		})
		c := testCall()
		c.Input = []byte(`[1]`)
		_, err := p.Call(callContext(t, ample), c)
		require.NoError(t, err)
		req, body := s.Last()
		require.JSONEq(t, expected[f.api], string(body))
		require.Empty(t, req.Header.Get("Authorization")+req.Header.Get("X-Api-Key"))
	}
}

// Nothing but the options decides where a request goes and with which key.
func TestTheEnvironmentDoesNotReachRequests(t *testing.T) {
	other := always(t, "")
	for _, name := range []string{"OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"} {
		t.Setenv(name, other.URL)
	}
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY"} {
		t.Setenv(name, other.URL)
	}
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"} {
		t.Setenv(name, "from-the-environment")
	}
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: from-the-environment")
	for _, f := range flavours {
		s := always(t, f.answer(said{text: goodText, finish: f.finish()}))
		p := f.provider(t, s.URL, func(o *Options) { o.APIKey = "" })
		_, err := p.Call(callContext(t, ample), testCall())
		require.NoError(t, err)
		req, _ := s.Last()
		for name, values := range req.Header {
			require.NotContains(t, values, "from-the-environment", name)
			require.NotContains(t, values, "Bearer from-the-environment", name)
		}
	}
	require.Zero(t, other.Connections.Load())
}

// Servers that speak the APIs differ in what they add and leave out.
func TestOddButLegalAnswers(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		call := func(name, answer, usage string) {
			s := always(t, answer)
			result, err := f.provider(t, s.URL).Call(callContext(t, ample), testCall())
			require.NoError(t, err, name)
			require.Equal(t, goodText, string(result.Body), name)
			require.JSONEq(t, usage, string(result.Usage), name)
		}
		const usage = `{"input_tokens":11,"output_tokens":7,"model":"m-1-0611"}`
		ok := said{text: goodText, finish: f.finish()}
		bare, more := ok, ok
		bare.noUsage, more.extra = true, true
		call("no usage", f.answer(bare), `{"model":"m-1-0611"}`)
		call("extra members, and an error that is null", f.answer(more), usage)
		call("another content type", strings.NewReplacer("application/json", "text/plain", "text/event-stream", "text/plain").Replace(f.answer(ok)), usage)
		call("no request id", strings.Replace(f.answer(ok), f.ref(), "", 1), usage)
		if f.stream {
			call("line ends of the other kind", crlf(f.answer(ok)), usage)
			call("a document where a stream was asked for", whole(200, jsonHeader(f), flavour{f.api, false}.document(ok)), usage)
			call("comments between the events", comments(f.answer(ok)), usage)
		}
		if f.api == "openai" {
			parts := `"content":[{"type":"text","text":` + quote(goodText) + `}]`
			if !f.stream {
				call("content as a list of parts", whole(200, jsonHeader(f), strings.Replace(f.document(ok), `"content":`+quote(goodText), parts, 1)), usage)
				call("thoughts among the parts", whole(200, jsonHeader(f), strings.Replace(f.document(ok), `"content":`+quote(goodText),
					`"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":`+quote(goodText)+`}]`, 1)), usage)
			}
		}
	})
}

// unchunked is a stream's answer that ends with the connection.
func unchunked(answer string) (head, body string) {
	head, body, _ = strings.Cut(answer, "\r\n\r\n")
	head = strings.Replace(head, "Transfer-Encoding: chunked", "X-Plain: yes", 1)
	_, body, _ = strings.Cut(body, "\r\n")
	body, _, _ = strings.Cut(body, "\r\n0\r\n")
	return head + "\r\n\r\n", body
}

func crlf(answer string) string {
	head, body := unchunked(answer)
	return head + strings.ReplaceAll(body, "\n", "\r\n")
}

func comments(answer string) string {
	head, body := unchunked(answer)
	return head + ": hello\n\n" + strings.ReplaceAll(body, "\n\n", "\n\n: keep-alive\n\n")
}
