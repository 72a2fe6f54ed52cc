package model

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv/rawhttp"
	"jobledger/ledger"
	"jobledger/workers"
)

// ends checks how a call ends on an answer, and that it was one request.
func ends(t *testing.T, f flavour, name, answer string, expected ending) workers.Result {
	t.Helper()
	s := always(t, answer)
	result, err := f.provider(t, s.URL).Call(callContext(t, ample), testCall())
	require.Equal(t, expected, endingOf(t, err), "%s: %v", name, err)
	require.EqualValues(t, 1, s.Requests.Load(), "%s: requests on the wire", name)
	require.Nil(t, result.Body, name)
	return result
}

// apiErrorBody is an error in the API's format.
func (f flavour) apiErrorBody(kind, code string) string {
	if f.api == "openai" {
		return `{"error":{"message":"it did not work","type":` + quote(kind) + `,"param":null,"code":` + orNull(code) + `}}`
	}
	return `{"type":"error","error":{"type":` + quote(kind) + `,"message":"it did not work"},"request_id":"req-2"}`
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		plain := f.apiErrorBody("invalid_request_error", "")
		status := func(status int, header, body string, expected ending) workers.Result {
			name := fmt.Sprintf("%d %s %s", status, header, body)
			return ends(t, f, name, whole(status, jsonHeader(f)+header, body), expected)
		}
		class := func(n int) string { return fmt.Sprintf("http_%d", n) }
		for _, n := range []int{400, 404, 405, 413, 415, 422} {
			result := status(n, "", plain, by(turnedDown, class(n)))
			require.Equal(t, "req-1", result.ProviderRef)
			require.Empty(t, result.Output)
			status(n, "", "", by(turnedDown, class(n)))
		}
		status(401, "", plain, by(locked, "http_401"))
		status(403, "", "<html>no</html>", by(locked, "http_403"))
		status(402, "", plain, by(noCredit, ""))
		status(402, "", "", by(otherStatus, "http_402"))
		for _, kind := range []string{"insufficient_quota", "billing_error"} {
			for _, n := range []int{400, 403, 429} {
				status(n, "", f.apiErrorBody(kind, ""), by(noCredit, ""))
			}
		}
		status(400, "", f.apiErrorBody("content_filter", ""), by(blocked, ""))
		if f.api == "openai" {
			status(429, "", f.apiErrorBody("insufficient_quota", "insufficient_quota"), by(noCredit, ""))
			status(400, "", f.apiErrorBody("invalid_request_error", "content_filter"), by(blocked, ""))
		}
		for _, n := range []int{202, 204, 206, 300, 304, 408, 409, 410, 425, 500, 501, 502, 503, 504, 529} {
			body := plain
			if n == 204 || n == 304 {
				body = ""
			}
			status(n, "", body, by(otherStatus, class(n)))
		}
		status(500, "Retry-After: 3\r\n", f.apiErrorBody("api_error", ""), by(otherStatus, "http_500"))
		status(529, "", f.apiErrorBody("overloaded_error", ""), by(busy, "http_529"))
		status(529, "Retry-After: 7\r\n", f.apiErrorBody("overloaded_error", ""), by(busy, "http_529", 7*time.Second))
		status(599, "", "", by(busy, "http_599"))
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	f := flavour{"openai", false}
	for value, wait := range map[string]time.Duration{
		"30": 30 * time.Second, "0": 0, "99999999999": ledger.MaxDelay, "99999999999999999999999": ledger.MaxDelay,
		"Sun, 06 Nov 1994 08:49:37 GMT": 0, "Fri, 01 Jan 9999 00:00:00 GMT": ledger.MaxDelay,
	} {
		header := "Retry-After: " + value + "\r\n"
		ends(t, f, value, whole(429, header, ""), by(busy, "http_429", wait))
		ends(t, f, value, whole(503, header, ""), by(busy, "http_503", wait))
	}
	for _, value := range []string{"-1", "abc", "1e9", "1.5", ""} {
		header := "Retry-After: " + value + "\r\n"
		ends(t, f, value, whole(429, header, ""), by(busy, "http_429"))
		ends(t, f, value, whole(503, header, ""), by(otherStatus, "http_503"))
	}
	// An SDK would wait and send again.
	ends(t, f, "x-should-retry", whole(429, "X-Should-Retry: true\r\nRetry-After-Ms: 1\r\n", ""), by(busy, "http_429"))
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		other := always(t, f.answer(said{text: goodText, finish: f.finish()}))
		for _, n := range []int{301, 302, 303, 307, 308} {
			ends(t, f, fmt.Sprint(n), whole(n, "Location: "+other.URL+"\r\n", ""), by(otherStatus, fmt.Sprintf("http_%d", n)))
		}
		require.Zero(t, other.Connections.Load())
	})
}

// What a model may say that is no result.
func TestEndsOfOutput(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		told := func(name string, s said, expected ending, output string) {
			result := ends(t, f, name, f.answer(s), expected)
			require.Equal(t, output, result.Output, name)
			require.Equal(t, "req-1", result.ProviderRef, name)
			require.JSONEq(t, `{"input_tokens":11,"output_tokens":7,"model":"m-1-0611"}`, string(result.Usage), name)
		}
		cut, no := "length", "content_filter"
		if f.api == "anthropic" {
			cut, no = "max_tokens", "refusal"
			told("context window", said{text: goodText, finish: "model_context_window_exceeded"}, by(cutOff, ""), goodText)
			told("pause", said{text: goodText, finish: "pause_turn"}, by(otherEnd, ""), goodText)
		}
		told("cut off, though it parses", said{text: goodText, finish: cut}, by(cutOff, ""), goodText)
		told("cut off before any text", said{null: true, finish: cut}, by(cutOff, ""), "")
		told("refused", said{text: "I can't help with that.", finish: no}, by(refusal, ""), "I can't help with that.")
		told("refused without a word", said{null: true, finish: no}, by(refusal, ""), "")
		told("another end", said{text: goodText, finish: "tool_calls"}, by(otherEnd, ""), goodText)
		told("no end", said{text: goodText}, by(otherEnd, ""), goodText)
		told("null content", said{null: true, finish: f.finish()}, by(noOutput, ""), "")
		told("blank content", said{text: " \n", finish: f.finish()}, by(noOutput, ""), "")
		told("nothing", said{empty: true, finish: f.finish()}, by(noOutput, ""), "")
		if f.api == "openai" {
			told("the member refusal", said{null: true, refusal: "I'm sorry.", finish: "stop"}, by(refusal, ""), "I'm sorry.")
		}
	})
}

// TestChoices: the answer is the choice with the index 0, wherever it stands, and
// none if it calls tools.
func TestChoices(t *testing.T) {
	t.Parallel()
	for _, f := range []flavour{{"openai", false}, {"openai", true}} {
		choice := func(index int, members, finish string) string {
			name := "message"
			if f.stream {
				name = "delta"
			}
			return fmt.Sprintf(`{"index":%d,%q:{"role":"assistant","content":%s%s},"finish_reason":%q}`, index, name, quote(goodText), members, finish)
		}
		answer := func(choices ...string) string {
			body := `{"id":"chatcmpl-1","model":"m-1","choices":[` + strings.Join(choices, ",") + `]}`
			if f.stream {
				return whole(200, f.ref()+"Content-Type: text/event-stream\r\n", "data: "+body+"\n\ndata: [DONE]\n\n")
			}
			return whole(200, jsonHeader(f), body)
		}
		tool := `,"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]`
		ends(t, f, "another choice first", answer(choice(1, "", "stop"), choice(0, "", "length")), by(cutOff, ""))
		ends(t, f, "only another choice", answer(choice(1, "", "stop")), by(noOutput, ""))
		ends(t, f, "a call of a tool", answer(choice(0, tool, "stop")), by(otherEnd, ""))
		s := always(t, answer(choice(1, "", "length"), choice(0, `,"tool_calls":[]`, "stop")))
		result, err := f.provider(t, s.URL).Call(callContext(t, ample), testCall())
		require.NoError(t, err)
		require.Equal(t, goodText, string(result.Body))
	}
}

func TestErrorsUnder200(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		withCredit := by(providerError, "")
		withCredit.failure.Reach = ledger.ReachProvider
		ends(t, f, "error object", whole(200, jsonHeader(f), f.apiErrorBody("server_error", "")), by(providerError, ""))
		ends(t, f, "no credit", whole(200, jsonHeader(f), f.apiErrorBody("insufficient_quota", "")), withCredit)
		ends(t, f, "error as a text", whole(200, jsonHeader(f), `{"error":"the model is loading"}`), by(providerError, ""))
		ends(t, f, "error as an object", whole(200, jsonHeader(f), `{"object":"error","message":"no","code":40303}`), by(providerError, ""))
		ends(t, f, "HTML", whole(200, "Content-Type: text/html\r\n", "<!doctype html><p>Sign in"), by(foreign, ""))
		ends(t, f, "other JSON", whole(200, jsonHeader(f), `{"status":"ok"}`), by(foreign, ""))
		ends(t, f, "a list", whole(200, jsonHeader(f), `[]`), by(foreign, ""))
		ends(t, f, "nothing", whole(200, jsonHeader(f), ""), by(foreign, ""))
		ends(t, f, "a member twice", whole(200, jsonHeader(f), strings.Replace(flavour{f.api, false}.document(said{text: goodText, finish: f.finish()}),
			`"model":`, `"model":"x","model":`, 1)), by(unreadable, ""))
		ends(t, f, "half a character", whole(200, jsonHeader(f), strings.Replace(flavour{f.api, false}.document(said{text: goodText, finish: f.finish()}),
			"é", `\ud800`, 1)), by(unreadable, ""))
		ends(t, f, "another encoding", whole(200, jsonHeader(f)+"Content-Encoding: br\r\n", "{}"), by(unreadable, ""))
	})
}

func TestErrorsInTheStream(t *testing.T) {
	t.Parallel()
	for _, f := range []flavour{{"openai", true}, {"anthropic", true}} {
		events := f.events(said{text: goodText, finish: f.finish()})
		body := strings.Join(events[:4], "")
		if f.api == "openai" {
			body = strings.Join(events[:3], "") + `data: ` + f.apiErrorBody("server_error", "") + "\n\ndata: [DONE]\n\n"
		} else {
			body += "event: error\ndata: " + f.apiErrorBody("overloaded_error", "") + "\n\n"
		}
		header := f.ref() + "Content-Type: text/event-stream\r\n"
		result := ends(t, f, "error event", whole(200, header, body), by(providerError, ""))
		require.NotEmpty(t, result.Output)
		require.True(t, strings.HasPrefix(goodText, result.Output))
		require.Equal(t, "req-1", result.ProviderRef)

		ends(t, f, "nothing", whole(200, header, ""), by(cutShort, ""))
		ends(t, f, "no stream at all", whole(200, header, "hello\n\n"), by(foreign, ""))
		ends(t, f, "an event that is no JSON", whole(200, header, "event: message_start\ndata: hello\n\n"), by(foreign, ""))
	}
}

// A stream is whole only if its last event came, wherever it is cut.
func TestStreamsCutShort(t *testing.T) {
	t.Parallel()
	for _, f := range []flavour{{"openai", true}, {"anthropic", true}} {
		ok := said{text: goodText, finish: f.finish()}
		all := f.events(ok)
		for cut := 1; cut < len(all); cut++ {
			s := ok
			s.cut = cut
			result := ends(t, f, fmt.Sprintf("%d events missing", cut), f.answer(s), by(cutShort, ""))
			require.True(t, strings.HasPrefix(goodText, result.Output))
			require.Equal(t, "req-1", result.ProviderRef)
		}
		result := ends(t, f, "one event missing", f.answer(said{text: goodText, finish: f.finish(), cut: 1}), by(cutShort, ""))
		require.Equal(t, goodText, result.Output)
		require.NotNil(t, result.Usage)

		whole := f.answer(ok)
		at := strings.Index(whole, "hello")
		ends(t, f, "cut inside a chunk", whole[:at], by(brokenOff, "truncated"))
		head, body := unchunked(whole)
		ends(t, f, "cut inside an event", head+body[:strings.Index(body, "hello")], by(cutShort, ""))
		ends(t, f, "cut before the last empty line", head+strings.TrimRight(body, "\n"), by(cutShort, ""))
	}
}

// Bodies that break off are ambiguous, whatever the API.
func TestBodiesThatBreakOff(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		ok := said{text: goodText, finish: f.finish()}
		_, body, _ := strings.Cut(whole(200, "", flavour{f.api, false}.document(ok)), "\r\n\r\n")
		kind := "Content-Type: application/json\r\n"
		if f.stream {
			_, body = unchunked(f.answer(ok))
			kind = "Content-Type: text/event-stream\r\n"
		}
		head := "HTTP/1.1 200 OK\r\n" + f.ref() + kind
		zipped := gzipped(t, body)
		for name, answer := range map[string]string{
			"shorter than announced": head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body)+10, body[:len(body)-20]),
			"gzip cut short":         whole(200, f.ref()+kind+"Content-Encoding: gzip\r\n", zipped[:len(zipped)/2]),
			"gzip without a byte":    whole(200, f.ref()+kind+"Content-Encoding: gzip\r\n", ""),
			"half a chunk":           head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s", len(body), body[:len(body)/2]),
		} {
			result := ends(t, f, name, answer, by(brokenOff, "truncated"))
			require.Equal(t, "req-1", result.ProviderRef, name)
		}
		s := always(t, whole(200, kind+"Content-Encoding: gzip\r\n", zipped))
		result, err := f.provider(t, s.URL).Call(callContext(t, ample), testCall())
		require.NoError(t, err)
		require.Equal(t, goodText, string(result.Body))
	})
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, text)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.String()
}

func TestHundredMegabytesAreNotRead(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		lines := []bool{true} // one line that does not end
		if f == (flavour{"openai", true}) {
			lines = append(lines, false) // lines without end
		}
		for _, line := range lines {
			var written atomic.Int64
			s := rawhttp.Serve(t, func(_ int64, conn net.Conn) bool {
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", 100<<20)
				block := bytes.Repeat([]byte(": comment\n"), 6<<10)
				if line {
					block = bytes.Repeat([]byte(" "), 60<<10)
				}
				for written.Load() < 100<<20 {
					n, err := conn.Write(block)
					written.Add(int64(n))
					if err != nil {
						break
					}
				}
				return false
			})
			_, err := f.provider(t, s.URL).Call(callContext(t, ample), testCall())
			require.Equal(t, by(tooLong, ""), endingOf(t, err), "%v", err)
			require.Less(t, written.Load(), int64(90<<20))
			require.EqualValues(t, 1, s.Requests.Load())
		}
	})
}

// A stream whose text grows beyond what a result may have is given up.
func TestTextThatGoesOn(t *testing.T) {
	t.Parallel()
	for _, f := range []flavour{{"openai", true}, {"anthropic", true}} {
		long := said{text: quote(strings.Repeat("x", 2*ledger.MaxResultBytes)), finish: f.finish()}
		result := ends(t, f, "long", f.answer(long), by(tooLong, ""))
		require.Equal(t, "req-1", result.ProviderRef)
	}
}
