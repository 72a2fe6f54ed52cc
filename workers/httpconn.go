package workers

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// errSealed: a write was tried after it had been said that there was none.
var errSealed = errors.New("the connection was given up before anything was written")

// A sealableConn counts the writes to a connection and can be sealed: from then
// on nothing can be written. That turns "nothing seems to have been written"
// into a proof, whatever the transport's goroutines are still about to do.
type sealableConn struct {
	net.Conn
	writes atomic.Int64 // negative: sealed
}

func (c *sealableConn) Write(p []byte) (int, error) {
	if c.writes.Add(1) <= 0 {
		return 0, errSealed
	}
	return c.Conn.Write(p)
}

// seal reports whether nothing was written since the count was mark, and then
// makes sure of it for ever.
func (c *sealableConn) seal(mark int64) bool {
	return c.writes.CompareAndSwap(mark, math.MinInt64)
}

// dialSealable returns a dialer whose connections can be sealed.
func dialSealable(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &sealableConn{Conn: conn}, nil
	}
}

// A wire watches how far one request gets.
type wire struct {
	taken atomic.Pointer[wireConn]
}

// wireConn is the connection that the request was given.
type wireConn struct {
	conn *sealableConn // nil: one of which nothing can be proved
	mark int64         // its writes so far: a TLS handshake, earlier requests
}

// trace reports to the wire. The transport gives a request a connection before
// it writes; names, connections and handshakes that fail come before that.
func (w *wire) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn := info.Conn
		if secure, ok := conn.(*tls.Conn); ok {
			conn = secure.NetConn()
		}
		taken := &wireConn{}
		if c, ok := conn.(*sealableConn); ok {
			taken.conn, taken.mark = c, c.writes.Load()
		}
		w.taken.Store(taken)
	}}
}

// proveUnsent reports whether the request provably left nothing on the wire,
// and sees to it that it stays so.
func (w *wire) proveUnsent() bool {
	taken := w.taken.Load()
	return taken == nil || taken.conn != nil && taken.conn.seal(taken.mark)
}
