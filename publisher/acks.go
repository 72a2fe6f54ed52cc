package publisher

import (
	"bytes"
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

// parse reads the server's answer. Nearly all are of one form, which is read
// without reflection: every entry passes here.
func (a *pubAck) parse(data []byte) error {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	stream, seq, found := bytes.Cut(rest, []byte(`","seq":`))
	digits, closed := bytes.CutSuffix(seq, []byte("}"))
	if ok && found && closed && !bytes.ContainsAny(stream, `"\\`) {
		if n, err := strconv.ParseUint(string(digits), 10, 64); err == nil {
			a.Stream, a.Seq = string(stream), n
			return nil
		}
	}
	return json.Unmarshal(data, a)
}

// A flight is one publish, or one batch, that waits for its answer.
type flight struct {
	calls []*call       // in the order of their sequences
	slots chan struct{} // gets a slot back when the flight ends
	timer *time.Timer
	// sent: the client library has taken it. Until then only its sender ends
	// it, who knows more than that the connection was lost meanwhile.
	sent   bool
	losses int // of the connection when the flight began
}

// acks receives the answers on one wildcard subscription.
type acks struct {
	inbox string // without the token
	sub   *nats.Subscription

	mu      sync.Mutex
	last    uint64 // number of flights so far; the token is made of it
	losses  int    // how often the connection was lost
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
	f.losses = s.losses
	s.flights[token] = f
	return token, s.inbox + token
}

// sent notes that a flight is on its way, and ends it if the connection was
// lost while it was handed over.
func (s *acks) sent(token string) {
	s.mu.Lock()
	f := s.flights[token]
	lost := f != nil && f.losses != s.losses
	if lost {
		delete(s.flights, token)
	} else if f != nil {
		f.sent = true
	}
	s.mu.Unlock()
	if lost {
		f.end(unanswered(errLost))
	}
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

// loseAll ends every flight that was sent: the connection is gone, and answers
// with it.
func (s *acks) loseAll() {
	var lost []*flight
	s.mu.Lock()
	s.losses++
	for token, f := range s.flights {
		if f.sent {
			lost = append(lost, f)
			delete(s.flights, token)
		}
	}
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
	err := out.ack.parse(msg.Data)
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
