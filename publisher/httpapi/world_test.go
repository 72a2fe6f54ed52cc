package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
	"jobledger/publisher"
	"jobledger/publisher/httpapi"
)

// world is a ledger in memory: the real fold behind the API's interfaces. The
// tables show what was folded, unless frozen.
type world struct {
	t   *testing.T
	api *httpapi.API

	mu      sync.Mutex
	state   *ledger.State
	now     time.Time
	seq     uint64
	ids     map[string]uint64
	entries []ledger.Message
	reads   int

	jobReads int   // of single jobs
	looks    []int // how many jobs each call of States was for
	applied  []int // how many jobs each call of Applied was for

	// fault, if set, is what Decide returns instead of appending.
	fault error
	// silent makes Decide append and return no decision.
	silent bool
	// frozen tables know nothing of what was appended.
	frozen bool
	// readFault is what every read returns.
	readFault error
	// jobFault is what reading a single job returns.
	jobFault error
	ready    error

	candidates     []ledger.Candidate
	filterJobs     ledger.JobFilter
	filterAttempts ledger.AttemptFilter
}

type option func(*httpapi.Options)

func newWorld(t *testing.T, options ...option) *world {
	t.Helper()
	w := &world{t: t, state: ledger.NewState(1), now: time.Now().UTC().Truncate(time.Microsecond), ids: map[string]uint64{}}
	o := httpapi.Options{
		Decider: w, Reader: w, Auth: httpapi.TokenAuth(tokens),
		StreamEnd:    func(context.Context) (uint64, error) { w.mu.Lock(); defer w.mu.Unlock(); return w.seq, nil },
		Ready:        func(context.Context) error { return w.ready },
		Log:          slog.New(slog.DiscardHandler),
		DecisionWait: 2 * time.Second, BehindWait: 100 * time.Millisecond,
	}
	for _, change := range options {
		change(&o)
	}
	var err error
	w.api, err = httpapi.New(o)
	require.NoError(t, err)
	t.Cleanup(w.api.Close)
	for _, name := range []string{"main", "fallback"} {
		w.append((&ledger.ProviderDefinition{Name: name, Type: "http", Definition: []byte(`{}`)}).Message())
	}
	kind := ledger.DefaultKind()
	kind.Name, kind.Providers = "echo", []string{"main", "fallback"}
	w.append((&ledger.KindDefinition{Kind: kind}).Message())
	return w
}

// tokens: p-<owner> is a producer's, o-<owner> an operator's.
func tokens(token string) (owner, role string, ok bool) {
	kind, owner, _ := strings.Cut(token, "-")
	role = map[string]string{"p": httpapi.RoleProducer, "o": httpapi.RoleOperator}[kind]
	return owner, role, role != ""
}

// append folds a message.
func (w *world) append(m ledger.Message) ledger.Answer {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fold(m)
}

func (w *world) fold(m ledger.Message) ledger.Answer {
	w.seq++
	w.now = w.now.Add(time.Second)
	if m.ID != "" {
		w.ids[m.ID] = w.seq
	}
	w.entries = append(w.entries, m)
	e := ledger.Decode(w.seq, w.now, m.Subject, m.Data)
	if e.Job != (uuid.UUID{}) && !w.state.Knows(e.Job) {
		w.state.LoadAbsent(e.Job)
	}
	verdict, err := w.state.Apply(e)
	if err != nil {
		w.t.Errorf("fold entry %d: %v", w.seq, err)
	}
	return verdict.Answer
}

func (w *world) Decide(ctx context.Context, m ledger.Message) (ledger.Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault != nil {
		return ledger.Answer{}, w.fault
	}
	if seq := w.ids[m.ID]; seq != 0 {
		return ledger.Answer{}, &publisher.DuplicateAppendError{Seq: seq}
	}
	answer := w.fold(m)
	if w.silent {
		return ledger.Answer{}, &publisher.NoDecisionError{Seq: answer.Seq, Cause: context.DeadlineExceeded}
	}
	return answer, nil
}

func (w *world) DecideFresh(ctx context.Context, m ledger.Message) (ledger.Answer, error) {
	return w.Decide(ctx, publisher.Fresh(m))
}

func (w *world) Job(_ context.Context, id uuid.UUID) (*ledger.Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	w.jobReads++
	j := w.state.Job(id)
	if err := errors.Join(w.readFault, w.jobFault); err != nil || w.frozen || j == nil {
		return nil, err
	}
	return copyJob(j), nil
}

func copyJob(j *ledger.Job) *ledger.Job {
	c := *j
	c.Attempts = slices.Clone(j.Attempts)
	for i, at := range c.Attempts {
		a := *at
		c.Attempts[i] = &a
	}
	return &c
}

func (w *world) Jobs(_ context.Context, f ledger.JobFilter) ([]*ledger.Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.filterJobs = f
	var list []*ledger.Job
	for _, m := range w.entries {
		e := ledger.Decode(1, w.now, m.Subject, m.Data)
		if j := w.state.Job(e.Job); e.Kind == ledger.JobRequest && j != nil && (f.Owner == "" || f.Owner == j.Owner) && len(list) < f.Limit {
			list = append(list, copyJob(j))
		}
	}
	return list, w.readFault
}

func (w *world) Attempts(_ context.Context, f ledger.AttemptFilter) ([]*ledger.Attempt, error) {
	jobs, err := w.Jobs(context.Background(), ledger.JobFilter{Owner: f.Owner, Limit: f.Limit})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.filterAttempts = f
	var list []*ledger.Attempt
	for _, j := range jobs {
		list = append(list, j.Attempts...)
	}
	return list, err
}

func (w *world) States(_ context.Context, ids []uuid.UUID) (map[uuid.UUID]ledger.JobNews, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	w.looks = append(w.looks, len(ids))
	states := map[uuid.UUID]ledger.JobNews{}
	for _, id := range ids {
		if j := w.state.Job(id); j != nil && !w.frozen && w.readFault == nil {
			states[id] = j.News()
		}
	}
	return states, w.readFault
}

func (w *world) Applied(_ context.Context, ids []uuid.UUID) ([]uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applied = append(w.applied, len(ids))
	seqs := make([]uint64, len(ids))
	for i := range seqs {
		if !w.frozen {
			seqs[i] = w.seq
		}
	}
	return seqs, w.readFault
}

// set changes the world under its lock.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) appended() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.entries)
}

// A call is a request in the making.
type call struct {
	w   *world
	req *http.Request
}

func (w *world) request(method, path, body string) *call {
	req := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(body))
	return (&call{w: w, req: req}).with("Authorization", "Bearer p-acme")
}

func (w *world) get(path string) *call { return w.request("GET", path, "") }

func (w *world) submit(key, body string) *call {
	return w.request("POST", "/v1/jobs", body).with("Idempotency-Key", key)
}

func (c *call) with(name, value string) *call {
	c.req.Header.Set(name, value)
	return c
}

func (c *call) as(token string) *call { return c.with("Authorization", "Bearer "+token) }

func (c *call) without(name string) *call {
	c.req.Header.Del(name)
	return c
}

// answer is what came back.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   map[string]any
}

func (c *call) do() answer {
	c.w.t.Helper()
	rec := httptest.NewRecorder()
	c.w.api.ServeHTTP(rec, c.req)
	a := answer{t: c.w.t, status: rec.Code, header: rec.Header()}
	require.NoError(c.w.t, json.Unmarshal(rec.Body.Bytes(), &a.body), "%s", rec.Body)
	return a
}

// is checks the status and, for problems, the name of the type.
func (a answer) is(status int, name ...string) answer {
	a.t.Helper()
	require.Equal(a.t, status, a.status, "%v", a.body)
	if len(name) > 0 {
		require.Equal(a.t, "application/problem+json", a.header.Get("Content-Type"))
		require.Equal(a.t, "urn:jobledger:problem:"+name[0], a.body["type"], "%v", a.body)
		require.EqualValues(a.t, status, a.body["status"])
		require.NotEmpty(a.t, a.body["detail"])
	} else {
		require.Equal(a.t, "application/json", a.header.Get("Content-Type"))
	}
	if status == http.StatusServiceUnavailable || status == http.StatusAccepted {
		require.NotEmpty(a.t, a.header.Get("Retry-After"))
	}
	if id, ok := a.body["job_id"]; ok {
		require.Equal(a.t, id, a.header.Get("Ledger-Job-Id"))
	}
	return a
}

const (
	order17 = "932e6392-de75-5f3a-ac8f-94870d967406" // acme, order-17
	simple  = `{"kind":"echo","input":{"n":1}}`
)

// claimed makes a worker claim the job's latest attempt.
func (w *world) claimed(id string) *ledger.Claim {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.state.Job(uuid.MustParse(id))
	at := j.Attempts[len(j.Attempts)-1]
	claim := &ledger.Claim{Job: j.ID, Attempt: at.Number, JobVersion: j.Version, Provider: at.Provider,
		Claim: "0123456789abcdef", Worker: "w1", StartSeq: w.seq}
	require.Equal(w.t, ledger.Accepted, w.fold(claim.Message()).Decision)
	return claim
}

func (w *world) completed(c *ledger.Claim, outcome ledger.Outcome) {
	w.t.Helper()
	done := &ledger.Completion{Job: c.Job, Attempt: c.Attempt, JobVersion: c.JobVersion, Provider: c.Provider, Claim: c.Claim, Outcome: outcome}
	switch outcome {
	case ledger.OutcomeSucceeded:
		done.Result = []byte(`{"ok":true}`)
	case ledger.OutcomeFailed:
		done.Failure = ledger.Failure{Class: "refused", Message: "no", Reach: ledger.ReachRequest}
	default:
		done.Failure = ledger.Failure{Class: "timeout", Message: "no answer", Executed: true}
	}
	require.Equal(w.t, ledger.Accepted, w.append(done.Message()).Decision)
}
