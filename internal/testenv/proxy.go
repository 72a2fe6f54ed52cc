package testenv

import (
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

const (
	proxyBufferBytes = 32 << 10
	proxyDialTimeout = 5 * time.Second
)

// Proxy passes TCP connections on 127.0.0.1 on to a server and disturbs them
// on command. Its methods may be called from any goroutine.
type Proxy struct {
	t      testing.TB
	addr   string
	target string

	mu       sync.Mutex
	listener net.Listener // nil: cut
	links    map[*link]struct{}
	requests *gate // from clients to the server
	answers  *gate // from the server to clients
	running  sync.WaitGroup
}

// link is one connection of a client's and its twin to the server.
type link struct {
	client, server net.Conn
	once           sync.Once
	closed         chan struct{}
}

// NewProxy starts a proxy in front of target, a host:port or a URL with one.
// It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	if u, err := url.Parse(target); err == nil && u.Host != "" {
		target = u.Host
	}
	p := &Proxy{
		t: t, addr: address(FreePort(t)), target: target,
		links: map[*link]struct{}{}, requests: newGate(), answers: newGate(),
	}
	p.Restore()
	t.Cleanup(func() {
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Addr is the proxy's host:port, which nothing changes.
func (p *Proxy) Addr() string { return p.addr }

// URL is original, the URL of the server behind, with the proxy's address.
func (p *Proxy) URL(original string) string {
	p.t.Helper()
	u, err := url.Parse(original)
	if err != nil {
		p.t.Fatalf("parse the URL behind the proxy: %v", err)
	}
	u.Host = p.addr
	return u.String()
}

// Cut drops all connections and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close() // it only ends the accept loop
		p.listener = nil
	}
	for l := range p.links {
		l.close()
	}
}

// Drop drops all connections but lets new ones come.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Hold keeps everything back in both directions; connections stay open.
func (p *Proxy) Hold() {
	p.requests.shut()
	p.answers.shut()
}

// HoldAnswers lets requests through and keeps the answers back: what was asked
// for happens, and nobody learns of it. Followed by Cut or Drop, the answers
// are lost.
func (p *Proxy) HoldAnswers() { p.answers.shut() }

// Restore ends what Cut, Hold and HoldAnswers began. What was held back on
// connections that live is delivered.
func (p *Proxy) Restore() {
	p.t.Helper()
	p.requests.open()
	p.answers.open()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return
	}
	listener, err := net.Listen("tcp4", p.addr)
	if err != nil {
		p.t.Errorf("restore the proxy: %v", err)
		return
	}
	p.listener = listener
	p.running.Add(1)
	go p.accept(listener)
}

func (p *Proxy) accept(listener net.Listener) {
	defer p.running.Done()
	for {
		client, err := listener.Accept()
		if err != nil {
			return // cut
		}
		p.running.Add(1)
		go p.serve(listener, client)
	}
}

func (p *Proxy) serve(listener net.Listener, client net.Conn) {
	defer p.running.Done()
	server, err := net.DialTimeout("tcp", p.target, proxyDialTimeout)
	if err != nil {
		_ = client.Close() // the client sees that nobody is behind
		return
	}
	l := &link{client: client, server: server, closed: make(chan struct{})}
	defer l.close()
	if !p.register(listener, l) {
		return
	}
	defer p.forget(l)
	var both sync.WaitGroup
	both.Go(func() { l.copy(server, client, p.requests) })
	both.Go(func() { l.copy(client, server, p.answers) })
	both.Wait()
}

// register refuses a link whose listener was cut while it was being made.
func (p *Proxy) register(listener net.Listener, l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != listener {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// copy ends the whole link when one side ends: neither NATS nor PostgreSQL
// goes on with half a connection.
func (l *link) copy(to, from net.Conn, g *gate) {
	defer l.close()
	buffer := make([]byte, proxyBufferBytes)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !g.pass(l.closed) {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		_, _ = l.client.Close(), l.server.Close()
	})
}

// gate lets bytes pass in one direction, or holds them.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isOpen() {
		close(g.opened)
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOpen() {
		g.opened = make(chan struct{})
	}
}

// pass waits until the gate is open; false: the link was closed meanwhile.
func (g *gate) pass(closed <-chan struct{}) bool {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
		return true
	case <-closed:
		return false
	}
}
