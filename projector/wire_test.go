package projector

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A wire watches what a pool's connections send to PostgreSQL, and can lose
// a COMMIT or its answer.
type wire struct {
	mu         sync.Mutex
	statements []string
	// commit, if set, says what becomes of the COMMIT of a batch.
	commit func() fate
}

// fate is what becomes of a COMMIT.
type fate int

const (
	passes      fate = iota
	requestLost      // the connection ends before the server gets it
	answerLost       // the server does it, the connection ends before the client learns of it
)

// through makes a pool's connections use the wire.
func (w *wire) through(cfg *pgxpool.Config) {
	cfg.ConnConfig.TLSConfig, cfg.ConnConfig.Fallbacks = nil, nil
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		return &wireConn{Conn: conn, wire: w}, err
	}
}

// take returns the statements since the last call.
func (w *wire) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.statements
	w.statements = nil
	return list
}

// saw notes a statement; before is the one before it on the same connection.
func (w *wire) saw(statement, before string) fate {
	w.mu.Lock()
	if !strings.HasPrefix(statement, "--") { // the pool's pings
		w.statements = append(w.statements, statement)
	}
	decide := w.commit
	w.mu.Unlock()
	if decide == nil || !strings.EqualFold(statement, "commit") || !strings.Contains(before, "checkpoints SET") {
		return passes
	}
	return decide()
}

func (w *wire) onCommit(decide func() fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commit = decide
}

// wireConn reads along in the frontend's messages.
type wireConn struct {
	net.Conn
	wire    *wire
	started bool
	rest    []byte
	parsed  string // text of the last Parse
	before  string // the last statement
}

func (c *wireConn) Write(b []byte) (int, error) {
	c.rest = append(c.rest, b...)
	f := passes
	for f == passes {
		kind, body, ok := c.next()
		if !ok {
			break
		}
		switch kind {
		case 'Q':
			f = c.saw(string(body[:len(body)-1]))
		case 'P':
			c.parsed = string(bytes.Split(body, []byte{0})[1])
		case 'E':
			f = c.saw(c.parsed)
		}
	}
	switch f {
	case requestLost:
		_ = c.Close()
		return 0, net.ErrClosed
	case answerLost:
		n, err := c.Conn.Write(b)
		if err == nil {
			_, err = c.Read(make([]byte, 1)) // it is done
		}
		_ = c.Close()
		return n, err
	}
	return c.Conn.Write(b)
}

func (c *wireConn) saw(statement string) fate {
	before := c.before
	c.before = statement
	return c.wire.saw(statement, before)
}

// next returns the next whole message of what was written.
func (c *wireConn) next() (kind byte, body []byte, ok bool) {
	head := 1
	if !c.started { // the first message has no kind
		head = 0
	}
	if len(c.rest) < head+4 {
		return 0, nil, false
	}
	n := head + int(binary.BigEndian.Uint32(c.rest[head:]))
	if len(c.rest) < n {
		return 0, nil, false
	}
	if c.started {
		kind = c.rest[0]
	}
	body = c.rest[head+4 : n]
	c.rest, c.started = c.rest[n:], true
	return kind, body, true
}
