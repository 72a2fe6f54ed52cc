package publisher

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// pubAck is the server's answer to a publish.
type pubAck struct {
	Stream    string       `json:"stream"`
	Seq       uint64       `json:"seq"`
	Duplicate bool         `json:"duplicate"`
	Count     int          `json:"count"` // messages of a batch
	Error     *ServerError `json:"error"`
}

// A flight is one publish, or one batch, that waits for its answer.
type flight struct {
	calls []*call       // in the order of their sequences
	slots chan struct{} // gets a slot back when the flight ends
	timer *time.Timer
}

// acks receives the answers on one wildcard subscription.
type acks struct {
	inbox string // without the token
	sub   *nats.Subscription

	mu      sync.Mutex
	last    uint64 // number of flights so far; the token is made of it
	flights map[string]*flight
}

func newAcks(nc *nats.Conn) (*acks, error) {
	s := &acks{inbox: nc.NewInbox() + ".", flights: map[string]*flight{}}
	var err error
	s.sub, err = nc.Subscribe(s.inbox+"*", s.receive)
	return s, err
}

// register makes the flight wait for an answer, for at most the given time.
func (s *acks) register(f *flight, wait time.Duration) (token, reply string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	token = strconv.FormatUint(s.last, 36)
	f.timer = time.AfterFunc(wait, func() { s.finish(token, unanswered(errNoAnswer)) })
	s.flights[token] = f
	return token, s.inbox + token
}

func unanswered(err error) outcome { return outcome{err: err, sent: true, stored: true} }

// finish ends a flight, if it has not ended yet.
func (s *acks) finish(token string, out outcome) {
	s.mu.Lock()
	f := s.flights[token]
	delete(s.flights, token)
	s.mu.Unlock()
	if f != nil {
		f.end(out)
	}
}

// loseAll ends every flight: the connection is gone, and answers with it.
func (s *acks) loseAll() {
	s.mu.Lock()
	lost := s.flights
	s.flights = map[string]*flight{}
	s.mu.Unlock()
	for _, f := range lost {
		f.end(unanswered(errLost))
	}
}

func (s *acks) close() error {
	if err := s.sub.Unsubscribe(); err != nil && !gone(err) {
		return fmt.Errorf("unsubscribe from acknowledgements: %w", err)
	}
	return nil
}

// gone reports whether a subscription could not be ended because it had ended
// with its connection.
func gone(err error) bool {
	return errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrBadSubscription)
}

// end gives every member of the flight its outcome, and the slot back.
func (f *flight) end(out outcome) {
	f.timer.Stop()
	<-f.slots
	out.batch = len(f.calls) > 1
	last := out.ack.Seq
	for i, c := range f.calls {
		if out.err == nil {
			out.ack.Seq = last - uint64(len(f.calls)-1-i)
		}
		c.done <- out
	}
}

func (s *acks) receive(msg *nats.Msg) {
	token := strings.TrimPrefix(msg.Subject, s.inbox)
	s.mu.Lock()
	f := s.flights[token]
	delete(s.flights, token)
	s.mu.Unlock()
	if f != nil { // else it came too late; the entry was sent again
		f.end(f.read(msg))
	}
}

// read makes an outcome of the server's answer.
func (f *flight) read(msg *nats.Msg) outcome {
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
		return outcome{err: errNoStream, sent: true, rest: true}
	}
	out := outcome{sent: true}
	err := json.Unmarshal(msg.Data, &out.ack)
	switch refusal := out.ack.Error; {
	case err != nil:
		return unanswered(fmt.Errorf("an acknowledgement that cannot be read: %w", err))
	case refusal != nil && len(f.calls) > 1:
		out.err, out.stored, out.rest = refusal, !refusal.leavesNothing(), refusal.passing()
	case refusal != nil:
		out.err, out.rest = refusal, refusal.passing()
	case out.ack.Seq < uint64(len(f.calls)):
		return unanswered(fmt.Errorf("an acknowledgement with the sequence %d for %d messages", out.ack.Seq, len(f.calls)))
	case len(f.calls) > 1 && out.ack.Count != len(f.calls):
		return unanswered(fmt.Errorf("an acknowledgement for %d messages of %d", out.ack.Count, len(f.calls)))
	}
	return out
}
