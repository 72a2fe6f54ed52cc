package workertest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

const provider = "primary"

// A script is what a test has the ledger do with a claim. n counts the claims,
// from 1; answer is what the fold would say.
type script func(n int, c *ledger.Claim, answer ledger.Answer) move

type move uint8

const (
	tell   move = iota // decide, and say so
	mute               // decide, and the decision is lost
	absent             // the claim was never stored
	later              // decide, and say so when the test calls sayNow
)

// A ledgerPlay is the ledger as far as a worker sees it. It reads claims and
// completions from a real stream and decides them as the fold does.
type ledgerPlay struct {
	t              *testing.T
	nc             *nats.Conn
	js             jetstream.JetStream
	stream, prefix string
	url            string

	mu          sync.Mutex
	script      script         // nil: tell
	refusal     *ledger.Answer // of every claim; nil: none
	timeoutMS   int64          // the attempts', by the answer to a claim; 0: as in the start
	claims      []*ledger.Claim
	completions []*ledger.Completion
	holders     map[string]string // attempt -> claim
	outcomes    map[string]ledger.Outcome
	delayed     []func()
	acks        []ack
}

// An ack is what a worker said of a delivery: "+ACK", "-NAK", "+WPI".
type ack struct {
	seq  uint64 // of the start
	what string
}

func playLedger(t *testing.T) *ledgerPlay {
	t.Helper()
	js, stream, prefix := testenv.Stream(t)
	l := &ledgerPlay{
		t: t, nc: js.Conn(), js: js, stream: stream, prefix: prefix, url: testenv.NATSURL(t),
		holders: map[string]string{}, outcomes: map[string]ledger.Outcome{},
	}
	sub, err := l.nc.Subscribe("$JS.ACK."+stream+".worker-"+provider+".>", l.hearAck)
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	consumer, err := js.OrderedConsumer(l.ctx(), stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{
		prefix + ".attempt.claim.*", prefix + ".attempt.complete.*",
	}})
	require.NoError(t, err)
	reading, err := consumer.Consume(l.read)
	require.NoError(t, err)
	t.Cleanup(func() {
		reading.Stop()
		<-reading.Closed()
	})
	return l
}

func (l *ledgerPlay) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	l.t.Cleanup(cancel)
	return ctx
}

func attemptID(job fmt.Stringer, attempt int) string {
	return job.String() + "/" + strconv.Itoa(attempt)
}

// follow has the ledger do what a script says.
func (l *ledgerPlay) follow(s script) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.script = s
}

// allow has the answers to claims name a timeout.
func (l *ledgerPlay) allow(timeoutMS int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timeoutMS = timeoutMS
}

// refuse has every claim be decided like that; nil ends it.
func (l *ledgerPlay) refuse(refusal *ledger.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = refusal
}

// read decides one entry.
func (l *ledgerPlay) read(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		l.t.Errorf("a message without metadata: %v", err)
		return
	}
	e := ledger.Decode(meta.Sequence.Stream, meta.Timestamp, strings.TrimPrefix(msg.Subject(), l.prefix+"."), msg.Data())
	if e.Fault != nil {
		l.t.Errorf("the worker appended an entry that the ledger does not accept: %+v: %s", *e.Fault, msg.Data())
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch b := e.Body.(type) {
	case *ledger.Claim:
		l.claim(e.Seq, b, msg.Headers().Get(ledger.ReplyHeader))
	case *ledger.Completion:
		l.completions = append(l.completions, b)
		id := attemptID(b.Job, b.Attempt)
		if l.holders[id] == b.Claim && l.outcomes[id] == "" {
			l.outcomes[id] = b.Outcome
		}
	}
}

// claim decides a claim as the fold does, and tells as the script says.
func (l *ledgerPlay) claim(seq uint64, c *ledger.Claim, reply string) {
	if !strings.HasPrefix(reply, "_INBOX.") {
		l.t.Errorf("a claim without an inbox in Ledger-Reply: %q", reply)
	}
	l.claims = append(l.claims, c)
	id := attemptID(c.Job, c.Attempt)
	answer := ledger.Answer{Seq: seq, Decision: ledger.Refused, Job: c.Job, Attempt: c.Attempt, State: ledger.JobRunning, Version: 1}
	holder := l.holders[id]
	switch {
	case l.refusal != nil:
		answer.Decision, answer.Reason = l.refusal.Decision, l.refusal.Reason
	case l.outcomes[id] != "":
		answer.Reason = ledger.AttemptEnded
	case holder == "":
		answer.Decision, answer.TimeoutMS = ledger.Accepted, l.timeoutMS
	case holder == c.Claim:
		answer.Decision, answer.TimeoutMS = ledger.Duplicate, l.timeoutMS
	default:
		answer.Reason = ledger.AlreadyClaimed
	}
	now := tell
	if l.script != nil {
		now = l.script(len(l.claims), c, answer)
	}
	if now == absent {
		return
	}
	if answer.Decision == ledger.Accepted {
		l.holders[id] = c.Claim
	}
	say := func() {
		if err := l.nc.Publish(reply, answer.AppendJSON(nil)); err != nil {
			l.t.Errorf("answer a claim: %v", err)
		}
	}
	switch now {
	case tell:
		say()
	case later:
		l.delayed = append(l.delayed, say)
	}
}

// sayNow gives the answers that the script has put off.
func (l *ledgerPlay) sayNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, say := range l.delayed {
		say()
	}
	l.delayed = nil
}

// hearAck sees what the worker tells the server of its deliveries:
// $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
func (l *ledgerPlay) hearAck(msg *nats.Msg) {
	tokens := strings.Split(msg.Subject, ".")
	seq, err := strconv.ParseUint(tokens[5], 10, 64)
	if err != nil {
		l.t.Errorf("an acknowledgement on %s", msg.Subject)
		return
	}
	what, _, _ := strings.Cut(string(msg.Data), " ")
	if what == "" {
		what = "+ACK"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, ack{seq, what})
}

// A begun is a start that a test has appended.
type begun struct {
	*ledger.Start
	id  string // "<job>/<attempt>"
	seq uint64
}

// start appends the start of attempt 1 of a new job.
func (l *ledgerPlay) start(key, do string, timeoutMS int64) *begun {
	l.t.Helper()
	return l.startUnder(key, do, "", timeoutMS)
}

// startUnder is start for a job that was accepted under a contract.
func (l *ledgerPlay) startUnder(key, do, contract string, timeoutMS int64) *begun {
	l.t.Helper()
	s := &ledger.Start{
		Job: ledger.JobID("acme", key), Attempt: 1, JobVersion: 1, Owner: "acme", Kind: "echo", KindSeq: 1,
		Provider: provider, Input: fmt.Appendf(nil, `{"do":%q}`, do), TimeoutMS: timeoutMS, Contract: contract,
	}
	m := s.Message()
	ack, err := l.js.Publish(l.ctx(), l.prefix+"."+m.Subject, m.Data)
	require.NoError(l.t, err)
	return &begun{s, attemptID(s.Job, s.Attempt), ack.Sequence}
}

// redeliver has the server deliver a start again at once, as it would when the
// ack wait is over: in the place of whoever has it, it gives the start back. The
// server looks at the delivery's own sequence, which is one of those so far.
func (l *ledgerPlay) redeliver(b *begun) {
	l.t.Helper()
	for delivery := range l.consumer().Delivered.Consumer {
		require.NoError(l.t, l.nc.Publish(fmt.Sprintf("$JS.ACK.%s.worker-%s.1.%d.%d.%d.0",
			l.stream, provider, b.seq, delivery+1, time.Now().UnixNano()), []byte("-NAK")))
	}
}

// consumer asks for the provider's consumer.
func (l *ledgerPlay) consumer() *jetstream.ConsumerInfo {
	l.t.Helper()
	c, err := l.js.Consumer(l.ctx(), l.stream, "worker-"+provider)
	require.NoError(l.t, err)
	return c.CachedInfo()
}

// claimed waits for n claims and returns them.
func (l *ledgerPlay) claimed(n int) (found []*ledger.Claim) {
	l.t.Helper()
	testenv.Eventually(l.t, patience, func() (bool, string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		found = append(found[:0], l.claims...)
		return len(found) >= n, fmt.Sprintf("%d claims of %d", len(found), n)
	})
	return found
}

// completed waits for n completions and returns them.
func (l *ledgerPlay) completed(n int) (found []*ledger.Completion) {
	l.t.Helper()
	testenv.Eventually(l.t, patience, func() (bool, string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		found = append(found[:0], l.completions...)
		return len(found) >= n, fmt.Sprintf("%d completions of %d", len(found), n)
	})
	return found
}

// completionsOf returns what there is about an attempt so far.
func (l *ledgerPlay) completionsOf(b *begun) (found []*ledger.Completion) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.completions {
		if attemptID(c.Job, c.Attempt) == b.id {
			found = append(found, c)
		}
	}
	return found
}

// said waits until the worker has said something of a start, and returns all
// that it has said of it.
func (l *ledgerPlay) said(b *begun, what string) (all []ack) {
	l.t.Helper()
	testenv.Eventually(l.t, patience, func() (bool, string) {
		all = l.saidSoFar(b)
		for _, a := range all {
			if a.what == what {
				return true, ""
			}
		}
		return false, fmt.Sprintf("no %s of start %d; %v", what, b.seq, all)
	})
	return all
}

func (l *ledgerPlay) saidSoFar(b *begun) (all []ack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.acks {
		if a.seq == b.seq {
			all = append(all, a)
		}
	}
	return all
}

// isNotFetched reports whether there are starts that nobody asks for.
func (l *ledgerPlay) isNotFetched() bool {
	l.t.Helper()
	info := l.consumer()
	return info.NumPending > 0 && info.NumWaiting == 0
}

// settled waits until the server waits for no acknowledgement and has no start to
// deliver.
func (l *ledgerPlay) settled() {
	l.t.Helper()
	testenv.Eventually(l.t, patience, func() (bool, string) {
		info := l.consumer()
		return info.NumAckPending == 0 && info.NumPending == 0,
			fmt.Sprintf("%d starts unacknowledged, %d not delivered", info.NumAckPending, info.NumPending)
	})
}
