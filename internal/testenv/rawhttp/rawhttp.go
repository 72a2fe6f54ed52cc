// Package rawhttp is a server for tests of HTTP clients: it speaks HTTP byte by
// byte, so that it can break off anywhere, and counts what arrives on the wire.
package rawhttp

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// A Server is a listening server. Its answers are what a function writes.
type Server struct {
	URL         string       // with the path /run
	Requests    atomic.Int64 // whose head arrived
	Connections atomic.Int64

	listener net.Listener
	open     sync.Map // of net.Conn
	mu       sync.Mutex
	last     *http.Request
	lastBody []byte
}

// Serve starts a server whose reply to each whole request is what answer writes to
// the connection; it then keeps the connection if answer returns true. The server
// ends with the test.
func Serve(t testing.TB, answer func(n int64, conn net.Conn) (keep bool)) *Server {
	t.Helper()
	return serve(t, "http", nil, answer)
}

// ServeTLS is Serve with TLS.
func ServeTLS(t testing.TB, config *tls.Config, answer func(n int64, conn net.Conn) (keep bool)) *Server {
	t.Helper()
	return serve(t, "https", config, answer)
}

func serve(t testing.TB, scheme string, config *tls.Config, answer func(int64, net.Conn) bool) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{URL: scheme + "://" + listener.Addr().String() + "/run", listener: listener}
	var wg sync.WaitGroup
	wg.Go(func() { s.accept(&wg, config, answer) })
	t.Cleanup(func() {
		listener.Close()
		s.open.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return s
}

func (s *Server) accept(wg *sync.WaitGroup, config *tls.Config, answer func(int64, net.Conn) bool) {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.Connections.Add(1)
		if config != nil {
			conn = tls.Server(conn, config)
		}
		s.open.Store(conn, true)
		wg.Go(func() {
			defer s.open.Delete(conn)
			defer conn.Close()
			s.talk(conn, answer)
		})
	}
}

func (s *Server) talk(conn net.Conn, answer func(int64, net.Conn) bool) {
	reader := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		n := s.Requests.Add(1)
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.last, s.lastBody = req, body
		s.mu.Unlock()
		if !answer(n, conn) {
			return
		}
	}
}

// Last returns the last request that arrived as a whole, and its body.
func (s *Server) Last() (*http.Request, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.lastBody
}

// Always answers every request with the same text and closes.
func Always(text string) func(int64, net.Conn) bool {
	return func(_ int64, conn net.Conn) bool {
		_, _ = io.WriteString(conn, text) // the client may have left
		return false
	}
}
