package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// A Link is one of the process's connections to NATS, with what waits on it.
type Link struct {
	Role      string // whose it is
	Connected func() bool
	Waiting   func() int    // decisions that are waited for
	Dropped   func() uint64 // answers that nobody waited for
}

// A Pool is the workers of a provider in this process.
type Pool struct {
	Provider    string
	Concurrency int        // calls that may run at a time
	Calls       func() int // that run now
}

// States of a projector.
const (
	ProjectorActive     = "active"
	ProjectorStandby    = "standby"
	ProjectorRecovering = "recovering"
	ProjectorStopped    = "stopped"
)

var projectorStates = []string{ProjectorActive, ProjectorStandby, ProjectorRecovering, ProjectorStopped}

// live asks the process's parts how they are when somebody scrapes.
type live struct {
	providers *words

	mu        sync.Mutex
	links     []Link
	pools     []Pool
	projector func() string // nil: this process has none
	watches   func() int    // nil: this process has none
}

// AddLink makes a connection's figures part of the metrics. Those of one role
// are added up.
func (m *Metrics) AddLink(l Link) {
	m.live.mu.Lock()
	defer m.live.mu.Unlock()
	m.live.links = append(m.live.links, l)
}

// AddPool makes a provider's workers part of the metrics. Those of one provider
// are added up.
func (m *Metrics) AddPool(p Pool) {
	m.live.mu.Lock()
	defer m.live.mu.Unlock()
	m.live.pools = append(m.live.pools, p)
}

// SetProjector names what tells the state of the process's projector.
func (m *Metrics) SetProjector(state func() string) {
	m.live.mu.Lock()
	defer m.live.mu.Unlock()
	m.live.projector = state
}

// SetWatches names what counts the jobs whose outcomes are waited for.
func (m *Metrics) SetWatches(watches func() int) {
	m.live.mu.Lock()
	defer m.live.mu.Unlock()
	m.live.watches = watches
}

var (
	connectedDesc = desc("nats_connected", "Whether all of a role's connections to NATS are up: 1 or 0.", "role")
	waitingDesc   = desc("decisions_awaited", "Decisions that are waited for, appends under way included.", "role")
	droppedDesc   = desc("answers_dropped_total", "Decisions that came when nobody waited for them any more, or that could not be read.", "role")
	callsDesc     = desc("calls_in_flight", "Calls to a provider that this process has under way.", "provider")
	limitDesc     = desc("calls_limit", "Calls to a provider that this process may have under way.", "provider")
	stateDesc     = desc("projector_state", "What this process's projector does: 1 for active, standby, recovering (it tries again by itself) or stopped (for good: "+
		"the stream does not fit the tables).", "state")
	watchesDesc = desc("outcomes_awaited", "Jobs whose outcome somebody waits for through this process.")
)

// Describe implements prometheus.Collector.
func (l *live) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connectedDesc, waitingDesc, droppedDesc, callsDesc, limitDesc, stateDesc, watchesDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (l *live) Collect(out chan<- prometheus.Metric) {
	l.mu.Lock()
	links, pools, projector, watches := l.links, l.pools, l.projector, l.watches
	l.mu.Unlock()
	collectLinks(out, links)
	l.collectPools(out, pools)
	if projector != nil {
		now := projector()
		for _, state := range projectorStates {
			out <- gaugeNow(stateDesc, truth(state == now), state)
		}
	}
	if watches != nil {
		out <- gaugeNow(watchesDesc, float64(watches()))
	}
}

func collectLinks(out chan<- prometheus.Metric, links []Link) {
	type sum struct {
		down    bool
		waiting int
		dropped uint64
	}
	roles := map[string]sum{}
	for _, link := range links {
		s := roles[link.Role]
		s.down = s.down || !link.Connected()
		s.waiting += link.Waiting()
		s.dropped += link.Dropped()
		roles[link.Role] = s
	}
	for role, s := range roles {
		out <- gaugeNow(connectedDesc, truth(!s.down), role)
		out <- gaugeNow(waitingDesc, float64(s.waiting), role)
		out <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(s.dropped), role)
	}
}

func (l *live) collectPools(out chan<- prometheus.Metric, pools []Pool) {
	type sum struct{ calls, limit int }
	providers := map[string]sum{}
	for _, pool := range pools {
		name := l.providers.bound(pool.Provider)
		s := providers[name]
		s.calls += pool.Calls()
		s.limit += pool.Concurrency
		providers[name] = s
	}
	for provider, s := range providers {
		out <- gaugeNow(callsDesc, float64(s.calls), provider)
		out <- gaugeNow(limitDesc, float64(s.limit), provider)
	}
}

func gaugeNow(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}
