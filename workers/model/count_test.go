package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCountTokens(t *testing.T) {
	t.Parallel()
	f := flavour{api: "anthropic"}
	s := always(t, whole(200, jsonHeader(f), `{"input_tokens":2095}`))
	n, err := f.provider(t, s.URL).CountTokens(callContext(t, ample), "summarize", []byte(`{"text":"hello <b>"}`))
	require.NoError(t, err)
	require.Equal(t, 2095, n)
	req, body := s.Last()
	require.Equal(t, "/run/v1/messages/count_tokens", req.URL.Path)
	require.Contains(t, req.Header.Get("Idempotency-Key"), "count-")
	require.Contains(t, string(body), "Text: hello")
	require.NotContains(t, string(body), "max_tokens")
	require.EqualValues(t, 1, s.Requests.Load())

	for want, answer := range map[string]string{
		"no count of tokens":           whole(200, jsonHeader(f), `{"input_tokens":"many"}`),
		"is no count":                  whole(200, jsonHeader(f), `{}`),
		"HTTP 404":                     whole(404, jsonHeader(f), `{"type":"error","error":{"type":"not_found_error","message":"`+testKey+`"}}`),
		"server does not count":        whole(429, "Retry-After: 1\r\n", ""),
		"cannot be read":               "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
		"the server's answer is no co": whole(200, "Content-Type: text/html\r\n", "<html>"),
	} {
		s := always(t, answer)
		_, err := f.provider(t, s.URL).CountTokens(callContext(t, ample), "summarize", []byte(`{"text":"hello"}`))
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), testKey)
		require.EqualValues(t, 1, s.Requests.Load(), want)
	}
	_, err = f.provider(t, "http://127.0.0.1:1").CountTokens(callContext(t, ample), "other", []byte(`{}`))
	require.ErrorContains(t, err, "kind other")
	_, err = flavour{api: "openai"}.provider(t, "http://127.0.0.1:1").CountTokens(callContext(t, ample), "summarize", []byte(`{}`))
	require.ErrorContains(t, err, "does not count")
}
