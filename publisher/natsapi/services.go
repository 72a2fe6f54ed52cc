package natsapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"jobledger/publisher/httpapi"
)

const (
	// Name is the service's name in NATS' discovery.
	Name = "jobledger"

	// DefaultInHand is how many requests that change something are served at
	// once.
	DefaultInHand = 4096
	// DefaultReads is how many that only read are served at once, without those
	// that wait.
	DefaultReads = 8192
	// DefaultGrace is how long Run lets requests finish.
	DefaultGrace = 10 * time.Second

	queueGroup = "jobledger-api"
	// subscribeWait bounds the wait until the server knows the subscriptions.
	subscribeWait = 5 * time.Second
	// headerRoom is kept free in a message for an answer's headers.
	headerRoom = 2 << 10
	// maxDescription bounds the error's text in a header, in bytes.
	maxDescription = 512
)

// A Caller serves calls: an *httpapi.API.
type Caller interface {
	// Call does what body asks for; the answer's body has at most limit bytes. It
	// calls waits before it waits for a job; it has bounds of its own for that.
	Call(ctx context.Context, op httpapi.Operation, body []byte, limit int, waits func()) httpapi.Response
}

// Options of Services. Conn, Caller, Stream and SubjectPrefix are required.
type Options struct {
	Conn          *nats.Conn // not closed
	Caller        Caller
	Stream        string // the ledger's stream, for discovery
	SubjectPrefix string // of the ledger's subjects, without the dot
	Version       string // of the program; "0.0.0" in discovery if it is not semantic

	// InHand bounds the requests that are served at once and change something,
	// and Reads those that do not: however many read, they take no place of
	// others. More are answered 503. 0: DefaultInHand, DefaultReads.
	InHand, Reads int
	// Begin, if not nil, is called before a request is served, with its W3C
	// traceparent, "" for none. The context that it returns is that of the
	// request, and served is called with the answer.
	Begin func(ctx context.Context, op httpapi.Operation, traceparent string) (_ context.Context, served func(httpapi.Response))
	Log   *slog.Logger // nil: slog.Default()
}

// Services is the micro service of one process.
type Services struct {
	opts    Options
	log     *slog.Logger
	service micro.Service
	changes slots
	reads   slots
	ended   chan struct{} // closed when the service has stopped, asked or not

	base   context.Context // of the requests
	cancel context.CancelFunc
	counts map[string]*counts // by the endpoint's name

	mu      sync.Mutex
	closing bool
	serving sync.WaitGroup
}

// Start offers the services, and returns when the server knows. Run must
// follow.
func Start(o Options) (*Services, error) {
	if o.Conn == nil || o.Caller == nil || o.Stream == "" || o.SubjectPrefix == "" {
		return nil, errors.New("natsapi: Options.Conn, Caller, Stream and SubjectPrefix are required")
	}
	if o.InHand <= 0 {
		o.InHand = DefaultInHand
	}
	if o.Reads <= 0 {
		o.Reads = DefaultReads
	}
	s := &Services{
		opts: o, log: o.Log, changes: make(slots, o.InHand), reads: make(slots, o.Reads),
		ended: make(chan struct{}), counts: map[string]*counts{},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.opts.Begin == nil {
		s.opts.Begin = func(ctx context.Context, _ httpapi.Operation, _ string) (context.Context, func(httpapi.Response)) {
			return ctx, func(httpapi.Response) {}
		}
	}
	s.base, s.cancel = context.WithCancel(context.Background())
	for _, op := range httpapi.Operations() {
		s.counts[endpointName(op)] = &counts{answers: map[int]int{}}
	}
	if err := s.start(); err != nil {
		s.cancel()
		return nil, fmt.Errorf("offer the services on %s.api.>: %w", o.SubjectPrefix, err)
	}
	return s, nil
}

func (s *Services) start() error {
	var err error
	s.service, err = micro.AddService(s.opts.Conn, micro.Config{
		Name: Name, Version: semantic(s.opts.Version), QueueGroup: queueGroup,
		Description:  "Job ledger: submits, shows, cancels and resolves jobs and their attempts",
		Metadata:     map[string]string{"stream": s.opts.Stream, "subject_prefix": s.opts.SubjectPrefix},
		StatsHandler: func(e *micro.Endpoint) any { return s.counts[e.Name].snapshot() },
		DoneHandler:  func(micro.Service) { close(s.ended) },
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			s.log.Warn("the services have trouble with NATS", "subject", err.Subject, "error", err)
		},
	})
	if err != nil {
		return err
	}
	for _, op := range httpapi.Operations() {
		if err := s.addEndpoint(op); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", op, err), s.service.Stop())
		}
	}
	if err := s.opts.Conn.FlushTimeout(subscribeWait); err != nil {
		return errors.Join(err, s.service.Stop())
	}
	return nil
}

func (s *Services) addEndpoint(op httpapi.Operation) error {
	schemas, err := httpapi.SchemasOf(op)
	if err != nil {
		return err
	}
	return s.service.AddEndpoint(endpointName(op), micro.HandlerFunc(func(r micro.Request) { s.receive(op, r) }),
		micro.WithEndpointSubject(s.opts.SubjectPrefix+".api."+string(op)),
		micro.WithEndpointMetadata(map[string]string{
			"request_schema": schemas.Request, "response_schema": schemas.Response, "error_schema": schemas.Problem,
		}))
}

// endpointName makes a name of an operation: names have no dots.
func endpointName(op httpapi.Operation) string { return strings.ReplaceAll(string(op), ".", "-") }

var semVer = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)$`)

// semantic makes of the program's version one that NATS takes.
func semantic(version string) string {
	if m := semVer.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return "0.0.0"
}

// Run serves until ctx ends; then it takes no more requests and lets those that
// it has finish within grace (0: DefaultGrace). It returns nil if all of them
// did, and an error if the service ends by itself, with its connection.
func (s *Services) Run(ctx context.Context, grace time.Duration) error {
	if grace <= 0 {
		grace = DefaultGrace
	}
	select {
	case <-ctx.Done():
	case <-s.ended:
		return errors.Join(errors.New("the connection to NATS was closed"), s.finish(grace))
	}
	err := s.service.Stop()
	// Once the server has heard of it, what it had sent before is here, and is
	// served. A server that is away sends nothing.
	if flushErr := s.opts.Conn.FlushTimeout(min(grace, subscribeWait)); flushErr != nil {
		s.log.Debug("the server has not heard that the services have stopped", "error", flushErr)
	}
	return errors.Join(err, s.finish(grace))
}

// finish waits for the requests in hand. What is still delivered is answered
// that nothing was done.
func (s *Services) finish(grace time.Duration) error {
	defer s.cancel()
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	served := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(served)
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-served:
		return nil
	case <-timer.C:
		return fmt.Errorf("requests were still being served after %s", grace)
	}
}
