package natsapi_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/publisher/httpapi"
	"jobledger/publisher/natsapi"
)

const patience = time.Minute

// caller is an API that notes its calls and answers as it is told to.
type caller struct {
	mu     sync.Mutex
	calls  []string
	answer httpapi.Response
	hold   chan struct{}     // not nil: answers wait until it is closed
	holds  httpapi.Operation // and that is for this one only; "": for all
	waits  bool              // while they do, they are calls that wait for a job
	bodies []weak.Pointer[byte]
}

func (c *caller) Call(ctx context.Context, op httpapi.Operation, body []byte, limit int, waits func()) httpapi.Response {
	held := c.hold != nil && (c.holds == "" || c.holds == op)
	if held && c.waits {
		waits()
	}
	c.mu.Lock()
	c.calls = append(c.calls, fmt.Sprintf("%s %s %d", op, body, limit))
	if len(body) > 0 {
		c.bodies = append(c.bodies, weak.Make(&body[0]))
	}
	answer := c.answer
	c.mu.Unlock()
	if held {
		select {
		case <-c.hold:
		case <-ctx.Done():
			answer.Status = 599
		}
	}
	return answer
}

func (c *caller) called() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.calls...)
}

// offered is services under test, and a client of theirs.
type offered struct {
	t      *testing.T
	prefix string
	caller *caller
	client *nats.Conn
	done   chan error
	stop   context.CancelFunc
}

func offer(t *testing.T, c *caller, options ...func(*natsapi.Options)) *offered {
	t.Helper()
	o := natsapi.Options{
		Conn: testenv.NATS(t), Caller: c, Stream: "LEDGER", SubjectPrefix: "n" + strings.ToLower(rand.Text()[:12]),
		Version: "v1.2.3", Log: slog.New(slog.DiscardHandler),
	}
	for _, change := range options {
		change(&o)
	}
	s, err := natsapi.Start(o)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	f := &offered{t: t, prefix: o.SubjectPrefix, caller: c, client: testenv.NATS(t), done: make(chan error, 1), stop: stop}
	go func() { f.done <- s.Run(ctx, 5*time.Second) }()
	t.Cleanup(stop)
	return f
}

func (f *offered) request(op httpapi.Operation, body string) *nats.Msg {
	f.t.Helper()
	msg, err := f.client.Request(f.prefix+".api."+string(op), []byte(body), patience)
	require.NoError(f.t, err)
	return msg
}

// ends stops the services and waits until they have stopped.
func (f *offered) ends() error {
	f.t.Helper()
	f.stop()
	select {
	case err := <-f.done:
		return err
	case <-time.After(patience):
		f.t.Fatal("the services have not stopped")
		return nil
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	c := &caller{answer: httpapi.Response{Status: 201, Body: []byte(`{"id":1}`), Headers: [][2]string{{"Ledger-Job-Id", "x"}}}}
	f := offer(t, c)
	for _, op := range httpapi.Operations() {
		msg := f.request(op, "b")
		require.Equal(t, `{"id":1}`, string(msg.Data))
		require.Equal(t, nats.Header{"Ledger-Job-Id": {"x"}, "Ledger-Status": {"201"}}, msg.Header)
		calls := c.called()
		require.Equal(t, fmt.Sprintf("%s b %d", op, f.client.MaxPayload()-2048), calls[len(calls)-1])
	}

	c.mu.Lock()
	c.answer = httpapi.Response{Status: 409, Body: []byte(`{"status":409}`), Detail: "a\r\nb: " + strings.Repeat("é", 1000)}
	c.mu.Unlock()
	msg := f.request(httpapi.JobSubmit, "{}")
	require.Equal(t, "409", msg.Header.Get(micro.ErrorCodeHeader))
	require.Equal(t, "409", msg.Header.Get(natsapi.StatusHeader))
	require.Equal(t, `{"status":409}`, string(msg.Data))
	require.True(t, strings.HasPrefix(msg.Header.Get(micro.ErrorHeader), "a  b: éé"))
	require.LessOrEqual(t, len(msg.Header.Get(micro.ErrorHeader)), 512)
	require.NoError(t, f.ends())
}

// discover asks all services of the name, and returns what this test's says.
func discover[T any](f *offered, verb micro.Verb, mine func(T) bool) (found []T) {
	f.t.Helper()
	subject, err := micro.ControlSubject(verb, natsapi.Name, "")
	require.NoError(f.t, err)
	inbox := f.client.NewInbox()
	sub, err := f.client.SubscribeSync(inbox)
	require.NoError(f.t, err)
	defer func() { require.NoError(f.t, sub.Unsubscribe()) }()
	require.NoError(f.t, f.client.PublishRequest(subject, inbox, nil))
	for {
		msg, err := sub.NextMsg(time.Second) // other tests' services answer, too
		if err != nil {
			return found
		}
		var v T
		require.NoError(f.t, json.Unmarshal(msg.Data, &v))
		if mine(v) {
			found = append(found, v)
		}
	}
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	c := &caller{answer: httpapi.Response{Status: 404, Body: []byte(`{}`), Detail: "no"}}
	f := offer(t, c)
	f.request(httpapi.JobGet, "{}")
	f.request(httpapi.JobGet, "{}")
	mine := func(id micro.ServiceIdentity) bool { return id.Metadata["subject_prefix"] == f.prefix }

	pings := discover(f, micro.PingVerb, func(v micro.Ping) bool { return mine(v.ServiceIdentity) })
	require.Len(t, pings, 1)
	require.Equal(t, "1.2.3", pings[0].Version)
	require.Equal(t, "LEDGER", pings[0].Metadata["stream"])

	infos := discover(f, micro.InfoVerb, func(v micro.Info) bool { return mine(v.ServiceIdentity) })
	require.Len(t, infos, 1)
	require.NotEmpty(t, infos[0].Description)
	found := map[string]string{}
	for _, e := range infos[0].Endpoints {
		found[e.Subject] = e.Name
		for _, name := range []string{"request_schema", "response_schema", "error_schema"} {
			var schema map[string]any
			require.NoError(t, json.Unmarshal([]byte(e.Metadata[name]), &schema), "%s of %s", name, e.Name)
			require.Equal(t, "https://json-schema.org/draft/2020-12/schema", schema["$schema"])
		}
	}
	require.Equal(t, map[string]string{
		f.prefix + ".api.job.submit": "job-submit", f.prefix + ".api.job.get": "job-get", f.prefix + ".api.job.cancel": "job-cancel",
		f.prefix + ".api.attempt.start": "attempt-start", f.prefix + ".api.attempt.resolve": "attempt-resolve",
	}, found)

	stats := discover(f, micro.StatsVerb, func(v micro.Stats) bool { return mine(v.ServiceIdentity) })
	require.Len(t, stats, 1)
	for _, e := range stats[0].Endpoints {
		var data natsapi.Statistics
		require.NoError(t, json.Unmarshal(e.Data, &data))
		if e.Name == "job-get" {
			require.Equal(t, 2, e.NumRequests)
			require.Equal(t, map[int]int{404: 2}, data.Answers)
		} else {
			require.Empty(t, data.Answers)
		}
	}
}

func TestVersionsThatNATSDoesNotTake(t *testing.T) {
	t.Parallel()
	for given, expected := range map[string]string{
		"(devel)": "0.0.0", "": "0.0.0", "v1.2.3": "1.2.3", "v0.0.0-20260101000000-abcdef123456+dirty": "0.0.0-20260101000000-abcdef123456+dirty",
	} {
		f := offer(t, &caller{}, func(o *natsapi.Options) { o.Version = given })
		pings := discover(f, micro.PingVerb, func(v micro.Ping) bool { return v.Metadata["subject_prefix"] == f.prefix })
		require.Len(t, pings, 1)
		require.Equal(t, expected, pings[0].Version)
	}
}

// TestProcessesShareTheRequests: each request goes to one of them, and when one
// ends the others take all.
func TestProcessesShareTheRequests(t *testing.T) {
	t.Parallel()
	a, b := &caller{answer: httpapi.Response{Status: 200}}, &caller{answer: httpapi.Response{Status: 200}}
	f := offer(t, a)
	second := offer(t, b, func(o *natsapi.Options) { o.SubjectPrefix = f.prefix })
	const n = 200
	for range n {
		f.request(httpapi.JobGet, "")
	}
	require.Len(t, append(a.called(), b.called()...), n)
	require.NotEmpty(t, a.called())
	require.NotEmpty(t, b.called())
	require.NoError(t, second.ends())
	before := len(b.called())
	for range 20 {
		require.Equal(t, "200", f.request(httpapi.JobGet, "").Header.Get(natsapi.StatusHeader))
	}
	require.Len(t, b.called(), before)
}

func TestMoreThanFitAreRefused(t *testing.T) {
	t.Parallel()
	// However many read, they are in nobody's way who changes something, nor he
	// in theirs.
	for held, other := range map[httpapi.Operation]httpapi.Operation{httpapi.JobGet: httpapi.JobSubmit, httpapi.JobCancel: httpapi.JobGet} {
		t.Run(string(held), func(t *testing.T) {
			t.Parallel()
			c := &caller{answer: httpapi.Response{Status: 200}, hold: make(chan struct{}), holds: held}
			f := offer(t, c, func(o *natsapi.Options) { o.InHand, o.Reads = 2, 2 })
			sub := f.ask(held, 2) // one slow operation does not hold up the others
			refused := f.request(held, "")
			require.Equal(t, "503", refused.Header.Get(micro.ErrorCodeHeader))
			require.NotEmpty(t, refused.Header.Get("Retry-After"))
			require.Contains(t, string(refused.Data), "urn:jobledger:problem:overloaded")
			require.Equal(t, "200", f.request(other, "").Header.Get(natsapi.StatusHeader))
			close(c.hold)
			requireAnswers(t, sub, 2)
			require.Equal(t, "200", f.request(held, "").Header.Get(natsapi.StatusHeader))
		})
	}
}

// ask sends so many requests that are held, and waits until all are served.
func (f *offered) ask(op httpapi.Operation, n int) *nats.Subscription {
	f.t.Helper()
	inbox := f.client.NewInbox()
	sub, err := f.client.SubscribeSync(inbox)
	require.NoError(f.t, err)
	for range n {
		require.NoError(f.t, f.client.PublishRequest(f.prefix+".api."+string(op), inbox, []byte(strings.Repeat("held", 100))))
	}
	f.serves(n)
	return sub
}

// serves waits until so many calls have been made.
func (f *offered) serves(n int) {
	f.t.Helper()
	testenv.Eventually(f.t, patience, func() (bool, string) {
		calls := len(f.caller.called())
		return calls >= n, fmt.Sprintf("%d calls of %d", calls, n)
	})
}

func requireAnswers(t *testing.T, sub *nats.Subscription, n int) {
	t.Helper()
	for range n {
		msg, err := sub.NextMsg(patience)
		require.NoError(t, err)
		require.Equal(t, "200", msg.Header.Get(natsapi.StatusHeader))
	}
}

// TestThousandsWait: they take nobody's slot, not even each other's, and what
// they sent is not kept.
func TestThousandsWait(t *testing.T) {
	t.Parallel()
	const waiters = 5000
	c := &caller{answer: httpapi.Response{Status: 200}, hold: make(chan struct{}), holds: httpapi.JobGet, waits: true}
	f := offer(t, c)
	sub := f.ask(httpapi.JobGet, waiters)
	for _, op := range []httpapi.Operation{httpapi.JobSubmit, httpapi.AttemptResolve} {
		require.Equal(t, "200", f.request(op, "").Header.Get(natsapi.StatusHeader))
	}
	testenv.Eventually(t, patience, func() (bool, string) {
		runtime.GC()
		kept := 0
		for _, body := range c.bodies { // nobody adds to them any more
			if body.Value() != nil {
				kept++
			}
		}
		return kept < waiters/100, fmt.Sprint(kept, " bodies are kept") // the client may still have its latest
	})
	close(c.hold)
	requireAnswers(t, sub, waiters)
	require.NoError(t, f.ends())
}

func TestAWaitGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	c := &caller{answer: httpapi.Response{Status: 200}, hold: make(chan struct{}), waits: true}
	f := offer(t, c, func(o *natsapi.Options) { o.Reads = 1 })
	inbox := f.client.NewInbox()
	sub, err := f.client.SubscribeSync(inbox)
	require.NoError(t, err)
	for n := range 3 {
		require.NoError(t, f.client.PublishRequest(f.prefix+".api.job.get", inbox, nil))
		f.serves(n + 1)
	}
	close(c.hold)
	requireAnswers(t, sub, 3)
	require.Equal(t, "200", f.request(httpapi.JobGet, "").Header.Get(natsapi.StatusHeader), "given back once only")
}

func TestTheEndWaitsForWhatIsInHand(t *testing.T) {
	t.Parallel()
	c := &caller{answer: httpapi.Response{Status: 200}, hold: make(chan struct{})}
	f := offer(t, c)
	answered := make(chan *nats.Msg, 1)
	go func() { answered <- f.request(httpapi.JobGet, "") }()
	testenv.Eventually(t, patience, func() (bool, string) { return len(c.called()) == 1, "not called" })
	f.stop()
	testenv.Eventually(t, patience, func() (bool, string) {
		// Nobody listens any more, or what is left of it refuses.
		msg, err := f.client.Request(f.prefix+".api.job.get", nil, time.Second)
		return err != nil || msg.Header.Get(micro.ErrorCodeHeader) == "503", "still taken"
	})
	close(c.hold)
	require.Equal(t, "200", (<-answered).Header.Get(natsapi.StatusHeader))
	require.NoError(t, f.ends())
}

func TestTheEndDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	c := &caller{answer: httpapi.Response{Status: 200}, hold: make(chan struct{})}
	prefix := "slow" + rand.Text()
	s, err := natsapi.Start(natsapi.Options{Conn: testenv.NATS(t), Caller: c, Stream: "L", SubjectPrefix: prefix, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	nc := testenv.NATS(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, nc.Publish(prefix+".api.job.get", nil))
	testenv.Eventually(t, patience, func() (bool, string) { return len(c.called()) == 1, "not called" })
	require.ErrorContains(t, s.Run(ctx, 50*time.Millisecond), "still being served")
}

func TestALostConnectionEndsTheServices(t *testing.T) {
	t.Parallel()
	nc := testenv.NATS(t)
	f := offer(t, &caller{}, func(o *natsapi.Options) { o.Conn = nc })
	nc.Close()
	select {
	case err := <-f.done:
		require.ErrorContains(t, err, "closed")
	case <-time.After(patience):
		t.Fatal("Run goes on without a connection")
	}
}

// TestAnswersGoToInboxesOnly: what may append must not be made to publish its
// answers into the stream.
func TestAnswersGoToInboxesOnly(t *testing.T) {
	t.Parallel()
	c := &caller{answer: httpapi.Response{Status: 200}}
	f := offer(t, c)
	subject := f.prefix + ".api.job.get"
	sub, err := f.client.SubscribeSync(f.prefix + ".job.request")
	require.NoError(t, err)
	require.NoError(t, f.client.PublishRequest(subject, f.prefix+".job.request", []byte("evil")))
	require.NoError(t, f.client.Publish(subject, []byte("no reply")))
	f.request(httpapi.JobGet, "last") // they are taken one after the other, but served all at once
	f.serves(2)
	require.NoError(t, f.ends())
	require.Len(t, c.called(), 2, "%v", c.called())
	require.NotContains(t, strings.Join(c.called(), " "), "evil")
	_, err = sub.NextMsg(50 * time.Millisecond)
	require.ErrorIs(t, err, nats.ErrTimeout)
}

func TestWhatStartNeeds(t *testing.T) {
	t.Parallel()
	_, err := natsapi.Start(natsapi.Options{})
	require.ErrorContains(t, err, "required")
	nc := testenv.NATS(t)
	nc.Close()
	_, err = natsapi.Start(natsapi.Options{Conn: nc, Caller: &caller{}, Stream: "S", SubjectPrefix: "p"})
	require.ErrorIs(t, err, nats.ErrConnectionClosed)
}

// TestBeginSeesEveryRequest: with its trace before it is served and its answer
// afterwards, of those that are not served, too.
func TestBeginSeesEveryRequest(t *testing.T) {
	t.Parallel()
	type key struct{}
	var mu sync.Mutex
	var seen []string
	c := &caller{answer: httpapi.Response{Status: 201}, hold: make(chan struct{})}
	begun := make(chan struct{}, 2)
	f := offer(t, c, func(o *natsapi.Options) {
		o.InHand = 1
		o.Begin = func(ctx context.Context, op httpapi.Operation, traceparent string) (context.Context, func(httpapi.Response)) {
			begun <- struct{}{}
			return context.WithValue(ctx, key{}, traceparent), func(r httpapi.Response) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, fmt.Sprint(op, " ", traceparent, " ", r.Status))
			}
		}
	})
	done := make(chan error, 1)
	go func() {
		_, err := f.client.RequestMsg(&nats.Msg{Subject: f.prefix + ".api.job.cancel", Data: []byte(`{}`),
			Header: nats.Header{"traceparent": {"the trace"}}}, patience)
		done <- err
	}()
	<-begun
	require.Equal(t, "503", f.request(httpapi.JobSubmit, `{}`).Header.Get(natsapi.StatusHeader))
	close(c.hold)
	require.NoError(t, <-done)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"job.submit  503", "job.cancel the trace 201"}, seen)
}
