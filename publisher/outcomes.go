package publisher

import (
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"jobledger/ledger"
)

// maxWatched bounds the jobs that are watched at once.
const maxWatched = 4096

// Outcomes hears of jobs that settle or become unknown. It subscribes to single
// jobs, so that a process hears of no others.
type Outcomes struct {
	nc     *nats.Conn
	prefix string
	slots  chan struct{}
}

// NewOutcomes makes Outcomes on a connection, which it does not close. prefix
// is the ledger's subject prefix, without the dot.
func NewOutcomes(nc *nats.Conn, prefix string) *Outcomes {
	return &Outcomes{nc: nc, prefix: prefix, slots: make(chan struct{}, maxWatched)}
}

// Watched returns how many watches there are.
func (o *Outcomes) Watched() int { return len(o.slots) }

// Watch returns a channel that receives when the job's outcome is announced,
// and a function that ends the watch. Announcements are best effort, so whoever
// waits must look for itself now and then. The channel is nil, which never
// receives, if too many jobs are watched or the connection is closed.
func (o *Outcomes) Watch(job uuid.UUID) (<-chan struct{}, func()) {
	select {
	case o.slots <- struct{}{}:
	default:
		return nil, func() {}
	}
	heard := make(chan struct{}, 1)
	sub, err := o.nc.Subscribe(o.prefix+"."+ledger.OutcomeSubject(job.String()), func(*nats.Msg) {
		select {
		case heard <- struct{}{}:
		default: // the last one has not been looked at yet
		}
	})
	if err != nil {
		<-o.slots
		return nil, func() {}
	}
	return heard, func() {
		_ = sub.Unsubscribe() // fails only where there is nothing left to end
		<-o.slots
	}
}
