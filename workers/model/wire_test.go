package model

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv/rawhttp"
	"jobledger/ledger"
)

// What never left is unsent.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		address := listener.Addr().String()
		require.NoError(t, listener.Close())
		_, err = f.provider(t, "http://"+address).Call(callContext(t, ample), testCall())
		require.Equal(t, by(notSent, "not_connected"), endingOf(t, err), "%v", err)

		_, err = f.provider(t, "http://no-such-host.invalid").Call(callContext(t, ample), testCall())
		require.Equal(t, by(notSent, "name_not_found"), endingOf(t, err), "%v", err)

		stranger := httptest.NewUnstartedServer(nil)
		stranger.StartTLS()
		certificate := stranger.TLS.Certificates[0]
		stranger.Close()
		secure := rawhttp.ServeTLS(t, &tls.Config{Certificates: []tls.Certificate{certificate}}, rawhttp.Always(""))
		_, err = f.provider(t, secure.URL).Call(callContext(t, ample), testCall())
		require.Equal(t, by(notSent, "tls"), endingOf(t, err), "%v", err)
		require.Zero(t, secure.Requests.Load())

		plain := always(t, "") // ends the connection at what is no HTTP
		_, err = f.provider(t, strings.Replace(plain.URL, "http:", "https:", 1)).Call(callContext(t, ample), testCall())
		require.Equal(t, by(notSent, "not_connected"), endingOf(t, err), "%v", err)
		require.Zero(t, plain.Requests.Load())
	})
}

// What may have arrived is unknown, and is not sent again.
func TestResets(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		for name, before := range map[string]string{
			"before the headers": "",
			"after the headers":  "HTTP/1.1 200 OK\r\n" + jsonHeader(f) + "Content-Length: 100\r\n\r\n{",
		} {
			s := rawhttp.Serve(t, func(_ int64, conn net.Conn) bool {
				_, _ = io.WriteString(conn, before)
				_ = conn.(*net.TCPConn).SetLinger(0) // a reset, not an end
				return false
			})
			result, err := f.provider(t, s.URL).Call(callContext(t, ample), testCall())
			outcome := endingOf(t, err)
			require.Equal(t, ledger.OutcomeUnknown, outcome.outcome, "%s: %v", name, err)
			require.Contains(t, []string{"connection_lost", "truncated"}, outcome.failure.Class, name)
			require.EqualValues(t, 1, s.Requests.Load(), name)
			if before == "" {
				require.Equal(t, by(noAnswer, "connection_lost"), outcome)
			} else if result.ProviderRef != "" { // the reset may overtake the headers
				require.Equal(t, "req-1", result.ProviderRef)
			}
		}
		ends(t, f, "closed without a word", "", by(noAnswer, "connection_lost"))
	})
}

// A reused connection that dies is where Go's transport would send a request
// with an idempotency key again.
func TestADeadConnectionIsNoReasonToSendAgain(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		answer := strings.Replace(f.answer(said{text: goodText, finish: f.finish()}), "Connection: close\r\n", "", 1)
		s := rawhttp.Serve(t, func(n int64, conn net.Conn) bool {
			if n == 1 {
				_, _ = io.WriteString(conn, answer)
			}
			return n == 1
		})
		p := f.provider(t, s.URL)
		_, err := p.Call(callContext(t, ample), testCall())
		require.NoError(t, err)
		_, err = p.Call(callContext(t, ample), testCall())
		require.Equal(t, by(noAnswer, "connection_lost"), endingOf(t, err), "%v", err)
		require.EqualValues(t, 2, s.Requests.Load(), "two calls are two requests")
	})
}

func TestSlowAnswersEndAtTheDeadline(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, f flavour) {
		drip := func(conn net.Conn, text string) {
			for {
				if _, err := io.WriteString(conn, text); err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond) //nolint:forbidigo // slowness is the subject
			}
		}
		for name, slow := range map[string]struct {
			answer   func(conn net.Conn)
			expected ending
			ref      string
		}{
			"no headers": {func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }, by(noAnswer, "timeout"), ""},
			"a body by drops": {func(conn net.Conn) {
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%sContent-Length: 100000\r\n\r\n", f.ref())
				drip(conn, ": \n")
			}, by(brokenOff, "timeout"), "req-1"},
		} {
			s := rawhttp.Serve(t, func(_ int64, conn net.Conn) bool { slow.answer(conn); return false })
			began := time.Now()
			result, err := f.provider(t, s.URL).Call(callContext(t, 300*time.Millisecond), testCall())
			require.Equal(t, slow.expected, endingOf(t, err), "%s: %v", name, err)
			require.Equal(t, slow.ref, result.ProviderRef, name)
			require.Less(t, time.Since(began), 5*time.Second, name)
			require.EqualValues(t, 1, s.Requests.Load(), name)
		}
	})
}
