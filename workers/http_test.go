package workers

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv/rawhttp"
	"jobledger/ledger"
)

const (
	second = time.Second
	ample  = 30 * time.Second // far beyond what a test needs
)

func okText(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func TestHTTPRequestIsAsTheContractSays(t *testing.T) {
	t.Parallel()
	s := rawhttp.Serve(t, rawhttp.Always("HTTP/1.1 201 Created\r\nX-Request-Id: r-1\r\nContent-Length: 4\r\n\r\nnull"))
	h := newHTTP(t, HTTPOptions{URL: s.URL, Headers: map[string]string{"authorization": "Bearer x"}})
	c := testCall()
	c.IdempotencyKey += "/2"
	c.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	result, err := h.Call(callContext(t, ample), c)
	require.NoError(t, err)
	require.Equal(t, "null", string(result.Body))
	require.Equal(t, "r-1", result.ProviderRef)

	last, body := s.Last()
	require.Equal(t, `{"job_id":"932e6392-de75-5f3a-ac8f-94870d967406","attempt":2,"kind":"echo","input":{"a":1}}`, string(body))
	require.Equal(t, http.MethodPost, last.Method)
	for name, expected := range map[string]string{
		"Idempotency-Key": "932e6392-de75-5f3a-ac8f-94870d967406/2", "Ledger-Job-Id": c.JobID.String(), "Ledger-Attempt": "2",
		"Traceparent": c.Traceparent, "Content-Type": "application/json", "Authorization": "Bearer x",
	} {
		require.Equal(t, expected, last.Header.Get(name), name)
	}
}

func TestHTTPAnswers(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 404, 405, 413, 415, 422} {
		testAnswer(t, fmt.Sprint(status), emptyAnswer(status, ""), refused(status, ledger.ReachRequest, 0))
	}
	for _, status := range []int{401, 403} {
		testAnswer(t, fmt.Sprint(status), emptyAnswer(status, ""), refused(status, ledger.ReachProvider, 0))
	}
	// All others are ambiguous, but for 599, which is made a known failure.
	for _, status := range []int{202, 204, 206, 301, 302, 303, 307, 308, 402, 408, 409, 410, 418, 425, 500, 501, 502, 503, 504, 507} {
		testAnswer(t, fmt.Sprint(status), emptyAnswer(status, ""), unknown(fmt.Sprintf("http_%d", status)))
	}
	testAnswer(t, "known failure", emptyAnswer(599, ""), refused(599, ledger.ReachTransient, 0))
	maxDelay := ledger.MaxDelay.Milliseconds()
	for value, ms := range map[string]int64{"30": 30_000, "86400": 86_400_000, "0": 0, "99999999999": maxDelay,
		"99999999999999999999999": maxDelay, "Sun, 06 Nov 1994 08:49:37 GMT": 0, "Fri, 01 Jan 9999 00:00:00 GMT": maxDelay} {
		testAnswer(t, "429 after "+value, emptyAnswer(429, "Retry-After: "+value), refused(429, ledger.ReachTransient, ms))
		testAnswer(t, "503 after "+value, emptyAnswer(503, "Retry-After: "+value), refused(503, ledger.ReachTransient, ms))
	}
	for _, value := range []string{"-1", "abc", "1e9", "1.5", ""} {
		testAnswer(t, "429 after "+value, emptyAnswer(429, "Retry-After: "+value), refused(429, ledger.ReachTransient, 0))
		testAnswer(t, "503 after "+value, emptyAnswer(503, "Retry-After: "+value), unknown("http_503"))
	}
}

func emptyAnswer(status int, header string) string {
	if header != "" {
		header += "\r\n"
	}
	return fmt.Sprintf("HTTP/1.1 %d X\r\n%sConnection: close\r\n\r\n", status, header)
}

type ending struct {
	outcome ledger.Outcome
	failure ledger.Failure // but for the message
}

func refused(status int, reach ledger.Reach, ms int64) ending {
	return ending{ledger.OutcomeFailed, ledger.Failure{Class: "http_" + strconv.Itoa(status), Reach: reach, RetryAfterMS: ms}}
}

func unknown(class string) ending {
	return ending{ledger.OutcomeUnknown, ledger.Failure{Class: class, Executed: true}}
}

func executed(class string) ending {
	return ending{ledger.OutcomeFailed, ledger.Failure{Class: class, Executed: true, Reach: ledger.ReachTransient}}
}

func unsent(class string) ending {
	return ending{ledger.OutcomeUnsent, ledger.Failure{Class: class, Reach: ledger.ReachTransient}}
}

func testAnswer(t *testing.T, name, text string, expected ending) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		s := rawhttp.Serve(t, rawhttp.Always(text))
		h := newHTTP(t, HTTPOptions{URL: s.URL, KnownFailures: []int{599}})
		_, err := h.Call(callContext(t, ample), testCall())
		requireEnding(t, expected, err)
		require.EqualValues(t, 1, s.Requests.Load(), "requests on the wire")
	})
}

func requireEnding(t *testing.T, expected ending, err error) {
	t.Helper()
	require.Error(t, err)
	outcome, failure := Classify(err)
	require.NotEmpty(t, failure.Message)
	failure.Message = ""
	require.Equal(t, expected, ending{outcome, failure}, "%v", err)
}

// Bodies that break off, in all the ways that there are.
func TestHTTPBodiesThatAreNotWhole(t *testing.T) {
	t.Parallel()
	const whole = `{"text":"0123456789"}`
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := io.WriteString(z, whole)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	gzipHead := "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(zipped.Len()) + "\r\n\r\n"
	cutZip := zipped.String()[:zipped.Len()-9]

	for name, text := range map[string]string{
		"ten bytes fewer than announced": fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(whole)+10, whole),
		"no last chunk":                  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n15\r\n" + whole + "\r\n",
		"half a chunk":                   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n15\r\n" + whole[:5],
		"no length and half a value":     "HTTP/1.1 200 OK\r\n\r\n" + whole[:9],
		"no length and a number":         "HTTP/1.1 200 OK\r\n\r\n12",
		"no length and nothing":          "HTTP/1.1 200 OK\r\n\r\n",
		"gzip cut short":                 gzipHead + cutZip,
		"whole message of a cut gzip":    "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: " + strconv.Itoa(len(cutZip)) + "\r\n\r\n" + cutZip,
		"gzip without a byte":            gzipHead,
	} {
		testAnswer(t, name, text, unknown("truncated"))
	}
	for name, text := range map[string]string{"nothing at all": "", "headers only": "HTTP/1.1 200 OK\r\nX: y\r\n"} {
		testAnswer(t, name, text, unknown("connection_lost"))
	}
	testAnswer(t, "half a status", "HTTP/1.1 20", unknown("no_answer"))
	testAnswer(t, "another encoding", "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}", executed("invalid_result"))

	for name, text := range map[string]string{"gzip": gzipHead + zipped.String(), "no length": "HTTP/1.1 200 OK\r\n\r\n" + whole} {
		h := newHTTP(t, HTTPOptions{URL: rawhttp.Serve(t, rawhttp.Always(text)).URL})
		result, err := h.Call(callContext(t, ample), testCall())
		require.NoError(t, err, name)
		require.Equal(t, whole, string(result.Body), name)
	}
}

func TestHTTPResultSizes(t *testing.T) {
	t.Parallel()
	quoted := func(size int) string { return `"` + strings.Repeat("x", size-2) + `"` }
	h := newHTTP(t, HTTPOptions{URL: rawhttp.Serve(t, rawhttp.Always(okText(quoted(ledger.MaxResultBytes)))).URL})
	result, err := h.Call(callContext(t, ample), testCall())
	require.NoError(t, err)
	require.Len(t, result.Body, ledger.MaxResultBytes)

	testAnswer(t, "one byte more", okText(quoted(ledger.MaxResultBytes+1)), unknown("result_too_large"))
}

func TestHTTPHundredMegabytesAreNotRead(t *testing.T) {
	t.Parallel()
	var written atomic.Int64
	s := rawhttp.Serve(t, func(_ int64, conn net.Conn) bool {
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", 100<<20)
		block := bytes.Repeat([]byte(" "), 64<<10)
		for written.Load() < 100<<20 {
			n, err := conn.Write(block)
			written.Add(int64(n))
			if err != nil {
				break
			}
		}
		return false
	})
	_, err := newHTTP(t, HTTPOptions{URL: s.URL}).Call(callContext(t, ample), testCall())
	requireEnding(t, unknown("result_too_large"), err)
	require.Less(t, written.Load(), int64(50<<20))
}

func TestHTTPReferencesOfAcceptedWork(t *testing.T) {
	t.Parallel()
	for expected, text := range map[string]string{
		"/runs/9": "HTTP/1.1 202 Accepted\r\nLocation: /runs/9\r\nX-Request-Id: r\r\nContent-Length: 10\r\n\r\n{\"id\":\"b\"}",
		"b":       "HTTP/1.1 202 Accepted\r\nX-Request-Id: r\r\nContent-Length: 10\r\n\r\n{\"id\":\"b\"}",
		"r":       "HTTP/1.1 202 Accepted\r\nX-Request-Id: r\r\nContent-Length: 2\r\n\r\n{}",
		"lost":    "HTTP/1.1 200 OK\r\nRequest-Id: lost\r\nContent-Length: 20\r\n\r\n{}",
		"timeout": "HTTP/1.1 504 Gateway Timeout\r\nX-Request-Id: timeout\r\nContent-Length: 0\r\n\r\n",
	} {
		result, err := newHTTP(t, HTTPOptions{URL: rawhttp.Serve(t, rawhttp.Always(text)).URL}).Call(callContext(t, ample), testCall())
		outcome, _ := Classify(err)
		require.Equal(t, ledger.OutcomeUnknown, outcome)
		require.Equal(t, expected, result.ProviderRef)
	}
}

// A server reads a request on a kept connection and closes it without an
// answer. Go's transport would send it again, because of the Idempotency-Key.
func TestHTTPSendsOnceOnADyingConnection(t *testing.T) {
	t.Parallel()
	s := rawhttp.Serve(t, func(n int64, conn net.Conn) bool {
		if n != 2 {
			_, _ = io.WriteString(conn, okText("{}"))
			return true
		}
		return false
	})
	h := newHTTP(t, HTTPOptions{URL: s.URL})
	_, err := h.Call(callContext(t, ample), testCall())
	require.NoError(t, err)
	_, err = h.Call(callContext(t, ample), testCall())
	requireEnding(t, unknown("connection_lost"), err)
	require.EqualValues(t, 2, s.Requests.Load(), "requests on the wire")
	require.EqualValues(t, 1, s.Connections.Load(), "the second request was to use the first one's connection")
}

func TestHTTPFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	other := rawhttp.Serve(t, rawhttp.Always(okText("{}")))
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := rawhttp.Serve(t, rawhttp.Always(emptyAnswer(status, "Location: "+other.URL)))
		_, err := newHTTP(t, HTTPOptions{URL: s.URL}).Call(callContext(t, ample), testCall())
		requireEnding(t, unknown("http_"+strconv.Itoa(status)), err)
		require.ErrorContains(t, err, other.URL)
	}
	require.Zero(t, other.Requests.Load())
}

func TestHTTPDeadlines(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(net.Conn){
		"no answer":  func(net.Conn) {},
		"no body":    func(conn net.Conn) { io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n") },
		"slow drops": drip,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := rawhttp.Serve(t, func(_ int64, conn net.Conn) bool {
				answer(conn)
				io.Copy(io.Discard, conn) // until the client leaves
				return false
			})
			start := time.Now()
			_, err := newHTTP(t, HTTPOptions{URL: s.URL}).Call(callContext(t, 200*time.Millisecond), testCall())
			requireEnding(t, unknown("timeout"), err)
			require.Less(t, time.Since(start), 10*second)
			require.EqualValues(t, 1, s.Requests.Load())
		})
	}
}

// drip writes a byte at a time, for as long as the client takes it.
func drip(conn net.Conn) {
	io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 100_000 {
		if _, err := conn.Write([]byte(" ")); err != nil {
			return
		}
		<-tick.C
	}
}

func TestHTTPKnowsWhatWasNotSent(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it will complain
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := rawhttp.Serve(t, rawhttp.Always(okText("{}")))
	ended := callContext(t, time.Nanosecond)
	<-ended.Done()

	for name, c := range map[string]struct {
		url, class string
	}{
		"connection refused":    {"http://" + closed.Addr().String(), "not_connected"},
		"no such name":          {"http://nothing.invalid/", "name_not_found"},
		"unknown authority":     {secure.URL, "tls"},
		"TLS on a plain server": {strings.Replace(plain.URL, "http:", "https:", 1), "tls"},
	} {
		_, err := newHTTP(t, HTTPOptions{URL: c.url}).Call(callContext(t, ample), testCall())
		if name == "TLS on a plain server" { // how the server fails is its own business
			outcome, _ := Classify(err)
			require.Equal(t, ledger.OutcomeUnsent, outcome, name)
			continue
		}
		requireEnding(t, unsent(c.class), err)
	}
	_, err = newHTTP(t, HTTPOptions{URL: plain.URL}).Call(ended, testCall())
	requireEnding(t, unsent("timeout"), err)
	require.Zero(t, plain.Requests.Load())
}

func TestHTTPSpeaksNoHTTP2(t *testing.T) {
	t.Parallel()
	var protocol atomic.Value
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol.Store(r.Proto)
		io.WriteString(w, "{}")
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	config := server.Client().Transport.(*http.Transport).TLSClientConfig
	result, err := newHTTP(t, HTTPOptions{URL: server.URL, TLS: config}).Call(callContext(t, ample), testCall())
	require.NoError(t, err)
	require.Equal(t, "{}", string(result.Body))
	require.Equal(t, "HTTP/1.1", protocol.Load())
}

// A connection that is sealed writes nothing any more, and one that has written
// cannot be sealed.
func TestSealableConn(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	go io.Copy(io.Discard, there)
	conn := &sealableConn{Conn: here}
	mark := conn.writes.Load()
	_, err := conn.Write([]byte("x"))
	require.NoError(t, err)
	require.False(t, conn.seal(mark))
	require.True(t, conn.seal(conn.writes.Load()))
	_, err = conn.Write([]byte("x"))
	require.ErrorIs(t, err, errSealed)
}

func TestHTTPOptions(t *testing.T) {
	t.Parallel()
	for expected, o := range map[string]HTTPOptions{
		"URL":                   {},
		"with a host":           {URL: "ftp://x/"},
		"Headers has \"a b\"":   {URL: "http://x", Headers: map[string]string{"a b": ""}},
		"Headers has host":      {URL: "http://x", Headers: map[string]string{"host": "y"}},
		"the value of X-Secret": {URL: "http://x", Headers: map[string]string{"X-Secret": "hush\nhush"}},
		"KnownFailures has 200": {URL: "http://x", KnownFailures: []int{200}},
	} {
		_, err := NewHTTP(o)
		require.ErrorContains(t, err, expected)
		require.NotContains(t, err.Error(), "hush")
	}
}
