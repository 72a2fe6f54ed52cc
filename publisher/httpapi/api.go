package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"jobledger/ledger"
)

// A Decider appends entries and returns the decisions on them. Its errors are
// those of publisher.Client, which is one.
type Decider interface {
	// Decide appends m and waits for the decision until ctx ends.
	Decide(ctx context.Context, m ledger.Message) (ledger.Answer, error)
	// DecideFresh does so under a message id that nobody has used.
	DecideFresh(ctx context.Context, m ledger.Message) (ledger.Answer, error)
}

// A Reader reads the tables.
type Reader interface {
	// Job returns the job with its attempts, input and result; nil, nil if
	// there is none.
	Job(ctx context.Context, id uuid.UUID) (*ledger.Job, error)
	// Jobs returns a page of jobs, newest first by creation and id.
	Jobs(ctx context.Context, f ledger.JobFilter) ([]*ledger.Job, error)
	// Attempts returns a page of attempts, oldest first by request, job and
	// number.
	Attempts(ctx context.Context, f ledger.AttemptFilter) ([]*ledger.Attempt, error)
	// ProviderStates returns the providers as they are now, by name.
	ProviderStates(ctx context.Context) ([]*ledger.ProviderState, error)
	// Candidates returns the providers to which the job could fail over, in the
	// order of its kind, with why they are not proved at a time.
	Candidates(ctx context.Context, j *ledger.Job, at time.Time) ([]ledger.Candidate, error)
	// States returns the news of the jobs that there are, with one query.
	States(ctx context.Context, jobs []uuid.UUID) (map[uuid.UUID]ledger.JobNews, error)
	// Applied returns the sequences up to which the tables know of the jobs'
	// shards, in the order of the jobs, with one query.
	Applied(ctx context.Context, jobs []uuid.UUID) ([]uint64, error)
}

// An InputChecker checks a job's input against its kind's schema.
type InputChecker interface {
	// CheckInput returns what is wrong with the input of a job of the given
	// kind, nothing if it is right or the kind has no schema. Pointers are
	// JSON Pointers into the input.
	CheckInput(ctx context.Context, kind string, input []byte) []Detail
}

// Outcomes tells of jobs that settle or become unknown.
type Outcomes interface {
	// Watch calls heard after the job may have settled, until the returned
	// function is called. Nothing is promised: it only makes a waiting answer
	// faster. heard does not block, and may be called from any goroutine.
	Watch(job uuid.UUID, heard func()) (stop func())
}

// Options of an API. Decider, Reader, StreamEnd, Ready and Auth are required.
type Options struct {
	Decider Decider
	Reader  Reader
	// StreamEnd returns the stream's last sequence.
	StreamEnd func(context.Context) (uint64, error)
	// Ready returns why the process cannot serve, or nil. Anybody may read it.
	Ready func(context.Context) error
	Auth  Authenticator

	Inputs   InputChecker // nil: inputs are not checked against schemas
	Outcomes Outcomes     // nil: waiting polls only
	History  Historian    // nil: there is no route for a job's history
	Log      *slog.Logger // nil: slog.Default()
	Version  string       // of the program, for the OpenAPI document
	// Around, if not nil, makes the handler that Serve serves from the API's: to
	// count and to trace requests. The route is the request's Pattern afterwards.
	Around func(http.Handler) http.Handler

	// DecisionWait bounds the wait for an append and its decision: 5 s.
	DecisionWait time.Duration
	// BehindWait bounds the wait for tables that are behind the stream: 2 s.
	BehindWait time.Duration

	// MaxWaiters bounds the requests that wait for jobs at once: 10,000.
	MaxWaiters int
	// MaxStreams bounds the streams of events at once: 1,000.
	MaxStreams int
	// KeepAlive is how often a stream of events without any says that it lives:
	// 15 s.
	KeepAlive time.Duration
	// SlowReader is how long a reader of events may leave one unread: 5 s.
	SlowReader time.Duration
}

// API is the HTTP API: an http.Handler.
type API struct {
	opts    Options
	log     *slog.Logger
	mux     *http.ServeMux
	applied *appliedWatcher
	hub     *hub
	waiters slots
	streams slots
	openapi []byte
	bodies  *semaphore.Weighted
	closing chan struct{} // closed when waits are to end
	done    func()
}

// New makes an API. Close it when its server has stopped.
func New(o Options) (*API, error) {
	if o.Decider == nil || o.Reader == nil || o.StreamEnd == nil || o.Ready == nil || o.Auth == nil {
		return nil, errors.New("httpapi: Options.Decider, Reader, StreamEnd, Ready and Auth are required")
	}
	if o.DecisionWait <= 0 {
		o.DecisionWait = 5 * time.Second
	}
	if o.BehindWait <= 0 {
		o.BehindWait = 2 * time.Second
	}
	a := &API{opts: o, log: o.Log, mux: http.NewServeMux(), closing: make(chan struct{}), bodies: semaphore.NewWeighted(bodiesInHand)}
	if a.log == nil {
		a.log = slog.Default()
	}
	a.done = sync.OnceFunc(func() { close(a.closing) })
	a.serveNews()
	if err := a.register(); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// EndWaits makes waiting requests answer with what is known. A server calls it
// when it begins to shut down.
func (a *API) EndWaits() { a.done() }

// Close ends the waits and the goroutines.
func (a *API) Close() {
	a.EndWaits()
	a.hub.close()
	a.applied.close()
}

// handler answers a request or returns why it did not: a *Problem, or an error
// whose details are nobody's business.
type handler func(w http.ResponseWriter, r *http.Request) error

const (
	// bodiesInHand bounds the bodies of requests that are being served, in
	// bytes.
	bodiesInHand = 256 << 20
	// admitWait is how long a request waits until there is room for its body.
	admitWait = time.Second
)

// known makes a handler of one that needs to know who asks. Nobody's body is
// read before that, and there are never more bodies in memory than are allowed.
func (a *API) known(serve func(w http.ResponseWriter, r *http.Request, who Principal) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		who, err := a.opts.Auth(r)
		if err != nil {
			return err
		}
		room := min(r.ContentLength, ledger.MaxRequestBytes)
		if room < 0 { // not said
			room = ledger.MaxRequestBytes
		}
		if room == 0 { // reads never wait behind uploads
			return serve(w, r, who)
		}
		release, err := a.admit(r.Context(), room)
		if err != nil {
			return err
		}
		defer release()
		return serve(w, r, who)
	}
}

// admit waits a little until there is room for a body of that many bytes, which
// the caller gives back.
func (a *API) admit(ctx context.Context, room int64) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, admitWait)
	defer cancel()
	if err := a.bodies.Acquire(ctx, room); err != nil {
		return nil, problem(http.StatusServiceUnavailable, "overloaded", "too many requests are being served; nothing was done, repeat it later")
	}
	return func() { a.bodies.Release(room) }, nil
}

// RequestIDHeader names the request in answers and logs. A caller's own is
// taken if it is a plain short text.
const RequestIDHeader = "Ledger-Request-Id"

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := requestID(r)
	w.Header().Set(RequestIDHeader, id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	started := &startedWriter{ResponseWriter: w}
	defer a.recovered(started, r, id)
	if _, pattern := a.mux.Handler(r); pattern == "" {
		a.noRoute(started, r)
		return
	}
	a.mux.ServeHTTP(started, r)
}

// noRoute turns the mux's plain answers into problems.
func (a *API) noRoute(w http.ResponseWriter, r *http.Request) {
	plain := headerRecorder{header: http.Header{}}
	a.mux.ServeHTTP(&plain, r)
	if allow := plain.header.Get("Allow"); plain.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allow)
		a.fail(w, r, problem(http.StatusMethodNotAllowed, "method-not-allowed", "%s is not served here; %s are", r.Method, allow))
		return
	}
	a.fail(w, r, problem(http.StatusNotFound, "not-found", "nothing is served at %s", r.URL.Path))
}

// recovered answers a request whose handler panicked.
func (a *API) recovered(w *startedWriter, r *http.Request, id string) {
	reason := recover()
	if reason == nil {
		return
	}
	if reason == http.ErrAbortHandler {
		panic(reason)
	}
	a.log.Error("a request handler panicked", "request_id", id, "method", r.Method, "path", r.URL.Path,
		"panic", fmt.Sprint(reason), "stack", string(debug.Stack()))
	if w.started {
		panic(http.ErrAbortHandler) // the answer is half written: cut it
	}
	a.write(w, internalProblem(id))
}

// handle makes an http.HandlerFunc of h.
func (a *API) handle(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			a.fail(w, r, err)
		}
	}
}

// fail answers with a problem.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	var later *undecided
	if errors.As(err, &later) {
		a.sendResult(w, later.result())
		return
	}
	a.write(w, a.problemOf(r.Context(), err, w.Header().Get(RequestIDHeader), "method", r.Method, "path", r.URL.Path))
}

// problemOf makes the problem of an error that is none: its details go to the
// log, with what tells of the request.
func (a *API) problemOf(ctx context.Context, err error, id string, request ...any) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	request = append(request, "request_id", id, "error", err)
	if ctx.Err() != nil {
		a.log.Debug("a client went away", request...)
	} else {
		// A warning: while a server is away every request fails, and the
		// log lets few warnings through.
		a.log.Warn("a request failed", request...)
	}
	p = problem(http.StatusServiceUnavailable, "unavailable", "the ledger cannot answer now, and its logs say why; ask again (this request was %s)", id)
	p.RequestID = id
	return p
}

func requestID(r *http.Request) string {
	const longest = 64
	id := r.Header.Get(RequestIDHeader)
	if id == "" || len(id) > longest {
		return rand.Text()
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return rand.Text()
		}
	}
	return id
}

// startedWriter knows whether the answer has begun.
type startedWriter struct {
	http.ResponseWriter
	started bool
}

func (w *startedWriter) WriteHeader(status int) {
	w.started = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *startedWriter) Write(b []byte) (int, error) {
	w.started = true
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *startedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// headerRecorder keeps an answer's status and header and drops its body.
type headerRecorder struct {
	header http.Header
	status int
}

func (w *headerRecorder) Header() http.Header         { return w.header }
func (w *headerRecorder) WriteHeader(status int)      { w.status = status }
func (w *headerRecorder) Write(b []byte) (int, error) { return len(b), nil }
