package natsapi

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"jobledger/ledger"
	"jobledger/publisher"
	"jobledger/publisher/httpapi"
)

// StatusHeader carries the HTTP status of every answer, of those that are no
// errors, too: 201 is new, 200 was there, 202 is not decided yet.
const StatusHeader = "Ledger-Status"

// receive takes a request on the subscription's goroutine, which serves one
// after the other, and hands it to one of its own.
func (s *Services) receive(op httpapi.Operation, r micro.Request) {
	reply := r.Reply()
	if reply != "" && !isInbox(reply) {
		s.log.Warn("a request asks for its answer where no inbox is; it is not served", "subject", r.Subject(), "reply", ledger.Quote(reply))
		return
	}
	count := s.counts[endpointName(op)]
	ctx, served := s.opts.Begin(s.base, op, r.Headers().Get(publisher.TraceHeader))
	leave, refusal := s.enter(op)
	if leave == nil {
		count.answered(refusal.Status, 0)
		served(refusal)
		s.answer(op, reply, refusal)
		return
	}
	began := time.Now()
	go s.serve(ctx, op, r.Data(), leave, func(answer httpapi.Response) {
		count.answered(answer.Status, time.Since(began))
		served(answer)
		s.answer(op, reply, answer)
	})
}

// serve serves a request that has its slot. The body is a parameter, and nobody
// else has it: it may be big, and is garbage while the request waits.
func (s *Services) serve(ctx context.Context, op httpapi.Operation, body []byte, leave func(), done func(httpapi.Response)) {
	defer s.serving.Done()
	leave = sync.OnceFunc(leave)
	defer leave()
	done(s.opts.Caller.Call(ctx, op, body, s.limit(), leave))
}

// isInbox reports whether answers may be published on a subject. Otherwise a
// client could make this process, which may append, publish its answers into
// the stream. Requests from other accounts are answered under _R_.
func isInbox(subject string) bool {
	return (strings.HasPrefix(subject, "_INBOX") || strings.HasPrefix(subject, "_R_.")) && !strings.ContainsAny(subject, "*>")
}

// slots bound what is served at once.
type slots chan struct{}

func (s slots) leave() { <-s }

// enter takes a slot, which leave gives back; if there is none leave is nil, and
// the refusal says why. What is served until the end is s.serving.
func (s *Services) enter(op httpapi.Operation) (leave func(), refusal httpapi.Response) {
	slots := s.changes
	if op == httpapi.JobGet {
		slots = s.reads
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, httpapi.Unavailable("not-ready", "shutting down; nothing was done, repeat it")
	}
	select {
	case slots <- struct{}{}:
		s.serving.Add(1)
		return slots.leave, httpapi.Response{}
	default:
		return nil, httpapi.Unavailable("overloaded", "%d requests are being served, which is the most; nothing was done, repeat it later", cap(slots))
	}
}

// limit bounds the body of an answer, in bytes.
func (s *Services) limit() int { return int(s.opts.Conn.MaxPayload()) - headerRoom }

// answer publishes an answer. It does not use the framework's request, whose
// errors are read on the goroutine of the subscription without a lock.
func (s *Services) answer(op httpapi.Operation, reply string, answer httpapi.Response) {
	if reply == "" {
		return // nobody asks
	}
	msg := &nats.Msg{Subject: reply, Data: answer.Body, Header: nats.Header{}}
	for _, h := range answer.Headers {
		msg.Header.Set(h[0], h[1])
	}
	msg.Header.Set(StatusHeader, strconv.Itoa(answer.Status))
	if answer.Status >= http.StatusBadRequest {
		msg.Header.Set(micro.ErrorCodeHeader, strconv.Itoa(answer.Status))
		msg.Header.Set(micro.ErrorHeader, headerText(answer.Detail))
	}
	if err := s.opts.Conn.PublishMsg(msg); err != nil {
		s.log.Debug("an answer could not be sent; whoever asked will repeat it", "operation", op, "error", err)
	}
}

// headerText makes one line of a text, not too long, for a header.
func headerText(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxDescription {
		text = strings.ToValidUTF8(text[:maxDescription], "")
	}
	return text
}

// counts are what an endpoint has done. NATS' own counters see only that a
// request was handed over, so these stand beside them, as data of the
// endpoint's statistics.
type counts struct {
	mu      sync.Mutex
	answers map[int]int // by status
	took    time.Duration
}

func (c *counts) answered(status int, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[status]++
	c.took += took
}

// Statistics of an endpoint: the data in its NATS statistics.
type Statistics struct {
	Answers map[int]int `json:"answers"` // by HTTP status
	Seconds float64     `json:"seconds"` // that all of them took together
}

func (c *counts) snapshot() Statistics {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Statistics{Answers: maps.Clone(c.answers), Seconds: c.took.Seconds()}
}
