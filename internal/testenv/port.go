package testenv

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Stable ports are taken from below the range from which Linux takes the ports
// of outgoing connections. A port of that range could be lost to one while its
// server is down, and a client that keeps reconnecting to it would even, now
// and then, reach itself.
const (
	firstStablePort = 20000
	lastStablePort  = 31999
	portTries       = 100
)

// FreePort returns a port on 127.0.0.1 that nobody listens on, and that
// nobody is likely to take while its server is down.
func FreePort(t testing.TB) int {
	t.Helper()
	for range portTries {
		port := firstStablePort + rand.IntN(lastStablePort-firstStablePort+1)
		listener, err := net.Listen("tcp4", address(port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			t.Fatalf("release port %d: %v", port, err)
		}
		return port
	}
	t.Fatalf("no free port between %d and %d in %d tries", firstStablePort, lastStablePort, portTries)
	return 0
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
