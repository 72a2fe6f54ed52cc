package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A turnstile is a proxy in front of PostgreSQL that reads along, knows what
// commits, and can stop whoever is behind it right before one commit or right
// after it.
type turnstile struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex
	stop  *stop
	conns map[net.Conn]bool
}

// A commit is what the turnstile sees of one.
type commit struct {
	n    int    // counted from 1 since the turnstile was set
	what string // the statement that is committed; of a transaction, its last
}

// isSwitch reports whether the commit makes another generation live.
func (c commit) isSwitch() bool { return strings.HasPrefix(c.what, "UPDATE ledger.active") }

// A side of a commit.
type side string

const (
	before side = "before" // the database never gets it
	after  side = "after"  // the database did it, and nobody learns of it
)

// A stop is where the turnstile is to stop, and what becomes of it.
type stop struct {
	side side
	at   func(commit) bool
	seen atomic.Int64
	// reached gets the commit once the database is where the side says.
	reached chan commit
	// ended is closed when the stop is over: what was held back then passes if
	// passes is set, and its connection is closed otherwise.
	ended  chan struct{}
	passes atomic.Bool
}

// newTurnstile starts a turnstile in front of a database. It ends with the test.
func newTurnstile(t testing.TB, database string) *turnstile {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	require.Equal(t, "disable", u.Query().Get("sslmode"), "the turnstile must be able to read along")
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	s := &turnstile{listener: listener, target: u.Host, conns: map[net.Conn]bool{}}
	s.running.Go(s.accept)
	t.Cleanup(func() {
		s.open(false)
		_ = listener.Close()
		s.drop()
		s.running.Wait()
	})
	return s
}

// url is the database's URL through the turnstile.
func (s *turnstile) url(database string) string {
	u, err := url.Parse(database)
	if err != nil {
		return database // newTurnstile has parsed it already
	}
	u.Host = s.listener.Addr().String()
	return u.String()
}

// set makes the turnstile stop at the first commit that at is true of.
func (s *turnstile) set(side side, at func(commit) bool) *stop {
	st := &stop{side: side, at: at, reached: make(chan commit, 1), ended: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = st
	return st
}

// open ends a stop: what it held back passes, or its connection is closed.
func (s *turnstile) open(passes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop.passes.Store(passes)
		close(s.stop.ended)
		s.stop = nil
	}
}

func (s *turnstile) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

func (s *turnstile) accept() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return // the test ends
		}
		s.running.Go(func() { s.serve(client) })
	}
}

func (s *turnstile) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp4", s.target)
	if err != nil {
		return // the client sees that nobody is behind
	}
	defer server.Close()
	s.mu.Lock()
	s.conns[client], s.conns[server] = true, true
	s.mu.Unlock()
	l := &turnstileLink{s: s, client: client, server: server}
	var both sync.WaitGroup
	both.Go(l.requests)
	both.Go(l.answers)
	both.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, client)
	delete(s.conns, server)
}

// at counts a commit and returns the stop that it has come to, or nil.
func (s *turnstile) at(what string) (*stop, commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop == nil {
		return nil, commit{}
	}
	c := commit{int(s.stop.seen.Add(1)), what}
	if len(s.stop.reached) > 0 || !s.stop.at(c) {
		return nil, c
	}
	return s.stop, c
}

// A turnstileLink is one connection with its twin to the server.
type turnstileLink struct {
	s              *turnstile
	client, server net.Conn
	inTx           bool
	last           string // the statement before
	// owed is set while the answer to a commit is not to be delivered.
	owed atomic.Pointer[owed]
}

type owed struct {
	stop   *stop
	commit commit
}

func (l *turnstileLink) close() { _, _ = l.client.Close(), l.server.Close() }

// requests passes whole messages to the server.
func (l *turnstileLink) requests() {
	defer l.close()
	in := bufio.NewReader(l.client)
	for head := 0; ; head = 1 { // the first message has no kind
		m, err := readMessage(in, head)
		if err != nil {
			return
		}
		if head == 1 && l.commits(m) && !l.turn() {
			return
		}
		if _, err := l.server.Write(m); err != nil {
			return
		}
	}
}

func readMessage(in *bufio.Reader, head int) ([]byte, error) {
	start, err := in.Peek(head + 4)
	if err != nil {
		return nil, err
	}
	m := make([]byte, head+int(binary.BigEndian.Uint32(start[head:])))
	_, err = io.ReadFull(in, m)
	return m, err
}

// commits follows the statements and reports whether this message commits one: a
// COMMIT, or the Sync after a statement outside a transaction.
func (l *turnstileLink) commits(m []byte) bool {
	switch m[0] {
	case 'Q':
		text := strings.ToLower(string(bytes.TrimRight(m[5:], "\x00")))
		switch {
		case strings.HasPrefix(text, "begin"):
			l.inTx, l.last = true, ""
		case text == "commit":
			l.inTx = false
			return true
		case text == "rollback":
			l.inTx = false
		}
	case 'P':
		l.last = string(bytes.SplitN(m[5:], []byte{0}, 3)[1])
	case 'E':
		if !l.inTx && strings.HasPrefix(l.last, "DELETE") {
			l.last = "executed: " + l.last
		}
	case 'S':
		return !l.inTx && strings.HasPrefix(l.last, "executed: ")
	}
	return false
}

// turn stops before the commit if it has to. It reports whether the commit is to
// be passed on.
func (l *turnstileLink) turn() bool {
	what := strings.TrimPrefix(l.last, "executed: ")
	l.last = ""
	st, c := l.s.at(what)
	switch {
	case st == nil:
		return true
	case st.side == after:
		l.owed.Store(&owed{st, c})
		return true
	}
	st.reached <- c
	<-st.ended
	return st.passes.Load()
}

// answers passes on what the server says, but for the answer to a commit after
// which the turnstile stops.
func (l *turnstileLink) answers() {
	defer l.close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := l.server.Read(buffer)
		if o := l.owed.Swap(nil); o != nil && n > 0 {
			o.stop.reached <- o.commit
			<-o.stop.ended
			if !o.stop.passes.Load() {
				return
			}
		}
		if n > 0 {
			if _, err := l.client.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c commit) String() string { return fmt.Sprintf("commit %d, %.40s", c.n, c.what) }
