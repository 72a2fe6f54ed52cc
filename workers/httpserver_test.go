package workers

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// A rawServer speaks HTTP byte by byte, so that it can break off anywhere, and
// counts the requests that arrive on the wire.
type rawServer struct {
	url         string
	requests    atomic.Int64 // whose head arrived
	connections atomic.Int64
	mu          sync.Mutex
	last        *http.Request
	lastBody    []byte
}

// serveRaw starts a server whose reply to each whole request is what answer
// writes to the connection; it then keeps the connection if answer returns true.
func serveRaw(t *testing.T, answer func(n int64, conn net.Conn) (keep bool)) *rawServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &rawServer{url: "http://" + listener.Addr().String() + "/run"}
	var open sync.Map
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.connections.Add(1)
			open.Store(conn, true)
			wg.Go(func() {
				defer open.Delete(conn)
				defer conn.Close()
				s.serve(conn, answer)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		open.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return s
}

func (s *rawServer) serve(conn net.Conn, answer func(n int64, conn net.Conn) bool) {
	reader := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		n := s.requests.Add(1)
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

// always answers every request with the same text and closes.
func always(text string) func(int64, net.Conn) bool {
	return func(_ int64, conn net.Conn) bool {
		_, _ = io.WriteString(conn, text) // the client may have left
		return false
	}
}

func newHTTP(t *testing.T, o HTTPOptions) *HTTP {
	t.Helper()
	h, err := NewHTTP(o)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

func testCall() Call {
	id := uuid.MustParse("932e6392-de75-5f3a-ac8f-94870d967406")
	return Call{JobID: id, Attempt: 2, Kind: "echo", Input: []byte(`{"a":1}`), IdempotencyKey: id.String()}
}

func callContext(t *testing.T, timeout time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}
