package testenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"jobledger/internal/natsserver"
)

// NATSCluster is NATS servers of a test's own that keep streams together, each
// in a process that can be killed, frozen and restarted.
type NATSCluster struct {
	Servers []*NATSProcess
}

// StartNATSCluster starts size servers as one cluster and returns when it places
// streams on all of them. Of o each server has its own Dir, Port, Name and
// ConfigFile; the rest is the same for all.
func StartNATSCluster(t testing.TB, size int, o natsserver.Options) *NATSCluster {
	t.Helper()
	dir := t.TempDir()
	routes := make([]string, size)
	for i := range routes {
		routes[i] = "nats://" + address(FreePort(t))
	}
	c := &NATSCluster{}
	for i, route := range routes {
		o.Name = fmt.Sprint("n", i+1)
		o.Dir, o.Port = filepath.Join(dir, o.Name), 0
		o.ConfigFile = filepath.Join(dir, o.Name+".conf")
		config := fmt.Sprintf("cluster { name: test, listen: %q, routes: [%s] }\n",
			strings.TrimPrefix(route, "nats://"), strings.Join(routes, ", "))
		if err := os.WriteFile(o.ConfigFile, []byte(config), 0o600); err != nil {
			t.Fatalf("write the configuration of a NATS server: %v", err)
		}
		c.Servers = append(c.Servers, StartNATS(t, o))
	}
	c.awaitPlacement(t)
	return c
}

// URL names all servers.
func (c *NATSCluster) URL() string {
	urls := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		urls[i] = s.URL()
	}
	return strings.Join(urls, ",")
}

// Server returns the server of that name, nil if there is none.
func (c *NATSCluster) Server(name string) *NATSProcess {
	for _, s := range c.Servers {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

// awaitPlacement waits until a stream with a replica on each server can be made,
// which takes a leader and servers that know of each other.
func (c *NATSCluster) awaitPlacement(t testing.TB) {
	t.Helper()
	nc := Connect(t, c.URL())
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("open JetStream: %v", err)
	}
	name := unique()
	Eventually(t, setupTimeout, func() (bool, string) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: name, Subjects: []string{name}, Storage: jetstream.MemoryStorage, Replicas: len(c.Servers),
		})
		if err == nil {
			err = js.DeleteStream(ctx, name)
		}
		return err == nil, fmt.Sprintf("the cluster of %d NATS servers does not take streams: %v", len(c.Servers), err)
	})
}
