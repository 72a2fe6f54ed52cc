package e2e_test

import (
	"cmp"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// outage is how long each server is away.
const outage = 20 * time.Second

// TestServersAreAway takes the database and then NATS away for 20 s, under load.
// Meanwhile the API says that it cannot serve, or that it does not know yet, and
// never that it is broken; no component fills the log; and afterwards everything
// goes on by itself, with nothing lost but time.
func TestServersAreAway(t *testing.T) {
	t.Parallel()
	nats := testenv.StartNATS(t, natsserver.Options{SyncAlways: true})
	r := newFaultRig(t, faultSettings{
		nats: nats.URL(), attemptTimeout: 2 * time.Minute, concurrency: 4, callTime: 10 * time.Millisecond,
	})
	natsProxy, databaseProxy := testenv.NewProxy(t, r.nats), testenv.NewProxy(t, r.database)
	via := []serveOption{viaNATS(natsProxy.URL(r.nats)), viaDatabase(databaseProxy.URL(r.database))}
	projector, worker, api := r.serve("projector", via...), r.serve("worker", via...), r.serve("api", via...)
	r.apply()
	load := r.startLoad(api, 25*time.Millisecond)
	load.awaitMore(50)

	for _, server := range []struct {
		name  string
		proxy *testenv.Proxy
		// answer that must be among those to new requests while it is away
		answer int
	}{
		{"the database", databaseProxy, http.StatusAccepted},
		{"NATS", natsProxy, http.StatusServiceUnavailable},
	} {
		r.say("%s goes away, after %d acknowledged jobs", server.name, load.acknowledged())
		before, began := load.byStatus(), time.Now()
		server.proxy.Cut()
		readers := r.startReaders(api)
		load.pause(outage)
		during, ended := load.byStatus(), time.Now()
		readers.stop()
		server.proxy.Restore()

		r.say("%s is back; %d acknowledged jobs, answers %v, to readers %v", server.name, load.acknowledged(), during, readers.answers)
		require.Greater(t, during[server.answer], before[server.answer], "answers %d while %s was away: %v", server.answer, server.name, during)
		require.Empty(t, readers.refusals)
		for _, p := range []*process{projector, worker, api} {
			r.requireQuietLog(p, server.name, began, ended)
		}
		load.awaitMore(50)
		r.awaitProgress(faultPatience, server.name+" is back")
		r.requireRunning(projector, worker, api)
	}
	load.stop()
	o := r.awaitQuiet(load)
	load.requireNoRefusals()
	r.requireSound(o)
	r.requireAllSucceeded(o)
	r.say("%d jobs acknowledged, answers %v", load.acknowledged(), load.byStatus())
}

// requireQuietLog checks that no component of a process logged more than a line
// a second. A component is what the line says it is of.
func (r *faultRig) requireQuietLog(p *process, away string, from, to time.Time) {
	r.t.Helper()
	const more = 5 // lines about the change itself
	limit := int(to.Sub(from).Seconds()) + more
	counts, examples := map[string]int{}, map[string]string{}
	for _, line := range p.lines(from, to) {
		component := cmp.Or(line.members["component"], line.members["role"])
		counts[component]++
		examples[component] = line.text
	}
	r.say("%s away: lines of %s by component: %v", away, p.roles, counts)
	for component, n := range counts {
		require.LessOrEqual(r.t, n, limit, "lines of component %q of serve --roles %s in %s while %s was away; such as\n%s",
			component, p.roles, to.Sub(from), away, examples[component])
	}
}

// faultReaders ask for what is there, for what is not, and for lists, one
// request after the other.
type faultReaders struct {
	end     chan struct{}
	done    sync.WaitGroup
	mu      sync.Mutex
	answers map[int]int
	// refusals are answers that an outage does not excuse.
	refusals []string
}

func (r *faultRig) startReaders(api *process) *faultReaders {
	f := &faultReaders{end: make(chan struct{}), answers: map[int]int{}}
	c := api.client(faultOwner)
	for _, path := range []string{
		"/v1/jobs/" + ledger.JobID(faultOwner, "p0-0").String(),
		"/v1/jobs/" + ledger.JobID(faultOwner, "is not there").String(),
		"/v1/jobs?limit=10",
		"/v1/attempts?state=unknown",
	} {
		f.done.Go(func() { f.read(c, path) })
	}
	return f
}

func (f *faultReaders) stop() {
	close(f.end)
	f.done.Wait()
}

func (f *faultReaders) read(c *client, path string) {
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for {
		a, err := c.try(http.MethodGet, path, "")
		f.mu.Lock()
		f.answers[a.status]++
		switch {
		case err != nil:
			f.refusals = append(f.refusals, fmt.Sprintf("GET %s: %v", path, err))
		case a.status != http.StatusOK && a.status != http.StatusNotFound && a.status != http.StatusServiceUnavailable:
			f.refusals = append(f.refusals, fmt.Sprintf("GET %s: %d %s", path, a.status, a.raw))
		}
		f.mu.Unlock()
		select {
		case <-pace.C:
		case <-f.end:
			return
		}
	}
}
