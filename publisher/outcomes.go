package publisher

import (
	"sync"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"jobledger/ledger"
)

const (
	// maxWatched bounds the jobs that are watched at once.
	maxWatched = 16384
	// heardAhead bounds the announcements that have come and were not handed
	// out; what comes beyond them is dropped.
	heardAhead = 8192
)

// Outcomes hears of jobs that settle or become unknown. It subscribes to single
// jobs, so that the server sends a process nothing of the others, however many
// settle; the subscriptions share one channel and one goroutine, which runs
// while something is watched.
type Outcomes struct {
	nc     *nats.Conn
	prefix string
	heard  chan *nats.Msg

	mu      sync.Mutex
	watched map[*nats.Subscription]func()
	idle    chan struct{} // closed when nothing is watched any more
}

// NewOutcomes makes Outcomes on a connection, which it does not close. prefix
// is the ledger's subject prefix, without the dot.
func NewOutcomes(nc *nats.Conn, prefix string) *Outcomes {
	return &Outcomes{nc: nc, prefix: prefix, heard: make(chan *nats.Msg, heardAhead), watched: map[*nats.Subscription]func(){}}
}

// Watch calls heard when the job's outcome is announced, until the returned
// function is called; a call that is under way may still come. heard must not
// block. Announcements are best effort, so whoever waits must look for itself
// now and then; nothing is heard if too many jobs are watched or the connection
// is closed.
func (o *Outcomes) Watch(job uuid.UUID, heard func()) (stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.watched) == maxWatched {
		return func() {}
	}
	sub, err := o.nc.ChanSubscribe(o.prefix+"."+ledger.OutcomeSubject(job.String()), o.heard)
	if err != nil {
		return func() {}
	}
	if o.watched[sub] = heard; len(o.watched) == 1 {
		o.idle = make(chan struct{})
		go o.handOut(o.idle)
	}
	return sync.OnceFunc(func() { o.unwatch(sub) })
}

// Watched returns how many watches there are.
func (o *Outcomes) Watched() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.watched)
}

func (o *Outcomes) unwatch(sub *nats.Subscription) {
	_ = sub.Unsubscribe() // fails only where there is nothing left to end
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.watched, sub); len(o.watched) == 0 {
		close(o.idle)
	}
}

// handOut tells the watchers, until nothing is watched.
func (o *Outcomes) handOut(idle <-chan struct{}) {
	for {
		select {
		case m := <-o.heard:
			o.mu.Lock()
			heard := o.watched[m.Sub]
			o.mu.Unlock()
			if heard != nil {
				heard()
			}
		case <-idle:
			return
		}
	}
}
