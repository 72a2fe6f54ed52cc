package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
	"jobledger/projector"
	"jobledger/publisher"
	"jobledger/publisher/httpapi"
)

// WaitingOptions say what waits beside the load.
type WaitingOptions struct {
	Options     // Jobs are those of one round
	Waiters int // requests GET ?wait, each for a job of its own that does not end
	Stalled int // streams of events that nobody reads
	Rounds  int // each once without and once with them; 0: 3
}

const (
	parkedKind = "parked"
	// parkedProvider has no worker. Its name makes events long.
	parkedProvider = "nobody-nobody-nobody-nobody-nobody-nobody-nobody-nobody-nobody"
	waiting        = "waiting"
	// apiConnections is what `serve` gives its API.
	apiConnections = 16
	// hotJobs are the jobs that the stalled readers follow; each changes as often
	// as it can, but not more often than this, so that the readers' buffers are
	// full in some seconds.
	hotJobs    = 5
	churnEvery = 200 * time.Millisecond
	// alone is how long it is looked at what waiting takes without a load.
	alone = 5 * time.Second
	// settle is how long the waiters wait before a round with them begins: by
	// then the first stalled readers have been dropped and have come back.
	settle = 12 * time.Second
)

// A WaitingReport says what waiting costs the projection.
type WaitingReport struct {
	Jobs, Waiters, Stalled int
	Without, With          []Round
	// Alone is how many cores the waiters and the readers take before the load
	// begins, both their sides included, beyond what an idle stack takes.
	Alone float64
	// Dropped is how many streams were cut since nobody read them; Kept, how
	// many had not been cut when their reader gave up.
	Dropped, Kept int64
	// Heard is how long after the decision that ended its job each waiter had
	// its answer, when all of the jobs were cancelled at once.
	Heard     Percentiles
	PeakBytes uint64
}

// A Round is one load.
type Round struct {
	Rate float64       // job lives a second
	CPU  time.Duration // of this process and PostgreSQL, a life; 0: not known
}

func rate(r Round) float64 { return r.Rate }

func cpu(r Round) float64 { return float64(r.CPU) }

// Share returns the part of the rate that is left, by the medians.
func (r *WaitingReport) Share() float64 { return median(r.With, rate) / median(r.Without, rate) }

// Cores returns how much of a core waiting takes. On a machine with other work
// it says more than Share: what is taken then does not count.
func (r *WaitingReport) Cores() float64 {
	more := median(r.With, cpu) - median(r.Without, cpu)
	return more / float64(time.Second) * median(r.With, rate)
}

func median(list []Round, of func(Round) float64) float64 {
	values := make([]float64, len(list))
	for i, r := range list {
		values[i] = of(r)
	}
	slices.Sort(values)
	return (values[len(values)/2] + values[(len(values)-1)/2]) / 2
}

// Print writes the report for people.
func (r *WaitingReport) Print(w io.Writer) error {
	var b strings.Builder
	for _, line := range [][2]string{
		{"jobs", fmt.Sprintf("%d a round, %d waiters, %d readers of events that do not read", r.Jobs, r.Waiters, r.Stalled)},
		{"without them", describe(r.Without)},
		{"with them", describe(r.With)},
		{"left of the rate", fmt.Sprintf("%.0f %% by the clock", 100*r.Share())},
		{"waiting takes", fmt.Sprintf("%.2f cores of %d under load, %.2f without", r.Cores(), runtime.NumCPU(), r.Alone)},
		{"stalled readers", fmt.Sprintf("%d dropped, %d not yet when they looked", r.Dropped, r.Kept)},
		{"all jobs cancelled, heard after", r.Heard.String()},
		{"memory", fmt.Sprintf("%.0f MiB at most (this process: all but PostgreSQL, the waiters' own side included)", float64(r.PeakBytes)/(1<<20))},
	} {
		fmt.Fprintf(&b, "%-32s %s\n", line[0], line[1])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func describe(list []Round) string {
	var rounds strings.Builder
	for _, r := range list {
		fmt.Fprintf(&rounds, " %.0f", r.Rate)
	}
	return fmt.Sprintf("%.0f lives a second, %.0f µs of CPU each (rounds:%s)", median(list, rate), median(list, cpu)/1e3, rounds.String())
}

// RunWaiting measures how fast jobs live with and without requests that wait
// and readers that stall, in turn on one stack.
func RunWaiting(ctx context.Context, o WaitingOptions) (_ *WaitingReport, err error) {
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	o.setDefaults()
	b := &waitBench{bench: bench{o: o.Options}, o: o}
	defer func() { err = errors.Join(err, b.stop()) }()
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	if err := b.serve(); err != nil {
		return nil, err
	}
	if err := b.park(ctx); err != nil {
		return nil, err
	}
	r := &WaitingReport{Jobs: o.Jobs, Waiters: o.Waiters, Stalled: o.Stalled}
	if _, err := b.round(ctx, "warm-up"); err != nil {
		return nil, err
	}
	if r.Alone, err = b.cores(ctx); err != nil {
		return nil, err
	}
	r.Alone = -r.Alone
	for n := range o.Rounds {
		without, err := b.round(ctx, fmt.Sprintf("without-%d", n))
		if err != nil {
			return nil, err
		}
		with, err := b.crowded(ctx, r, n)
		if err != nil {
			return nil, err
		}
		r.Without, r.With = append(r.Without, without), append(r.With, with)
	}
	r.PeakBytes = peakMemory()
	return r, nil
}

// A waitBench is a bench with an API.
type waitBench struct {
	bench
	o      WaitingOptions
	nc     *nats.Conn // the API's, for outcomes
	addr   string     // of the API
	parked []uuid.UUID
	hot    []*hotJob
	rounds int64
}

// serve serves the API, as the role api does.
func (b *waitBench) serve() error {
	pool, err := projector.NewPool(context.Background(), b.pool.Config().ConnString(), apiConnections)
	if err != nil {
		return err
	}
	b.onStop(func() error { pool.Close(); return nil })
	if b.nc, err = nats.Connect(b.url); err != nil {
		return err
	}
	b.onStop(func() error { b.nc.Close(); return nil })
	api, err := httpapi.New(httpapi.Options{
		Decider: b.client, Reader: projector.NewQueries(pool), Auth: httpapi.DevAuth(), Log: b.o.Log,
		Outcomes: publisher.NewOutcomes(b.nc, prefix), Ready: func(context.Context) error { return nil },
		StreamEnd: func(ctx context.Context) (uint64, error) {
			info, err := b.stream.Info(ctx)
			if err != nil {
				return 0, err
			}
			return info.State.LastSeq, nil
		},
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, closed(api))
	}
	b.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, l, httpapi.DefaultGrace) }()
	b.onStop(func() error {
		cancel()
		defer api.Close()
		return <-served
	})
	return nil
}

func closed(api *httpapi.API) error { api.Close(); return nil }

// park submits the jobs that are waited for and that do not end.
func (b *waitBench) park(ctx context.Context) error {
	k := ledger.DefaultKind()
	k.Name, k.Providers, k.Effects = parkedKind, []string{parkedProvider}, ledger.EffectsNone
	if err := b.say(ctx, &ledger.KindDefinition{Kind: k}); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(512)
	for n := range b.o.Waiters + hotJobs {
		req := &ledger.Request{Owner: waiting, Key: fmt.Sprintf("job-%d", n), Kind: parkedKind, Input: []byte(`{}`)}
		id := ledger.JobID(req.Owner, req.Key)
		if n < hotJobs {
			b.hot = append(b.hot, &hotJob{id: id})
		} else {
			b.parked = append(b.parked, id)
		}
		g.Go(func() error { return b.say(ctx, req) })
	}
	return g.Wait()
}

// say appends an entry that must be accepted.
func (b *waitBench) say(ctx context.Context, body ledger.Body) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a, err := b.client.Decide(ctx, body.Message())
	if err == nil && a.Decision != ledger.Accepted {
		err = fmt.Errorf("%s: %s %s", body.Message().Subject, a.Decision, a.Detail)
	}
	return err
}

// round is one load.
func (b *waitBench) round(ctx context.Context, name string) (r Round, err error) {
	b.rounds++
	began, cpu := time.Now(), b.cpuTime()
	if _, err := b.produce(ctx, name); err != nil {
		return r, err
	}
	if err := b.awaitEnded(ctx, b.rounds*int64(b.o.Jobs)); err != nil {
		return r, err
	}
	if err := b.awaitTables(ctx); err != nil {
		return r, err
	}
	r.Rate = float64(b.o.Jobs) / time.Since(began).Seconds()
	r.CPU = (b.cpuTime() - cpu) / time.Duration(b.o.Jobs)
	return r, nil
}

// crowded is a round with the waiters and the stalled readers. In the last one
// all jobs that are waited for are cancelled afterwards.
func (b *waitBench) crowded(ctx context.Context, r *WaitingReport, n int) (Round, error) {
	crowd, stop := context.WithCancel(ctx)
	defer stop()
	g, crowd := errgroup.WithContext(crowd)
	answers := make(chan heard, b.o.Waiters)
	for _, id := range b.parked {
		g.Go(func() error { return b.wait(crowd, id, answers) })
	}
	var dropped, kept atomic.Int64
	for i := range b.o.Stalled {
		g.Go(func() error { return b.stall(crowd, b.hot[i%hotJobs].id, &dropped, &kept) })
	}
	for _, job := range b.hot {
		g.Go(func() error { return b.churn(crowd, job) })
	}
	if err := b.crowdedNow(crowd); err != nil {
		stop()
		return Round{}, errors.Join(err, g.Wait())
	}
	taken, err := b.cores(crowd)
	if err != nil {
		stop()
		return Round{}, errors.Join(err, g.Wait())
	}
	r.Alone += taken / float64(b.o.Rounds)
	round, err := b.round(ctx, fmt.Sprintf("with-%d", n))
	if err == nil && n == b.o.Rounds-1 {
		r.Heard, err = b.release(crowd, answers)
	}
	stop()
	err = errors.Join(err, g.Wait())
	r.Dropped, r.Kept = r.Dropped+dropped.Load(), r.Kept+kept.Load()
	return round, err
}

// cores returns how many cores the stack takes for a while.
func (b *waitBench) cores(ctx context.Context) (float64, error) {
	began, taken := time.Now(), b.cpuTime()
	select {
	case <-time.After(alone):
		return (b.cpuTime() - taken).Seconds() / time.Since(began).Seconds(), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// crowdedNow waits until all are waiting: each job is watched then.
func (b *waitBench) crowdedNow(ctx context.Context) error {
	watched := len(b.parked)
	if b.o.Stalled > 0 {
		watched += min(b.o.Stalled, hotJobs)
	}
	for deadline := time.Now().Add(patience); b.nc.NumSubscriptions() < watched; {
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%d of %d jobs are waited for", b.nc.NumSubscriptions(), watched)
		}
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(settle)
	return nil
}

// release cancels the jobs that are waited for, and returns how long after the
// decision the answers came.
func (b *waitBench) release(ctx context.Context, answers <-chan heard) (Percentiles, error) {
	decided := make([]time.Time, len(b.parked))
	g, bounded := errgroup.WithContext(ctx)
	g.SetLimit(512)
	for i, id := range b.parked {
		g.Go(func() error {
			err := b.say(bounded, &ledger.Cancel{Job: id})
			decided[i] = time.Now()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Percentiles{}, err
	}
	when := map[uuid.UUID]time.Time{}
	for i, id := range b.parked {
		when[id] = decided[i]
	}
	var took []time.Duration
	for range b.parked {
		select {
		case a := <-answers:
			if a.state != string(ledger.JobCancelled) {
				return Percentiles{}, fmt.Errorf("a waiter for job %s was answered %s", a.job, a.state)
			}
			took = append(took, max(a.at.Sub(when[a.job]), 0)) // it may know before whoever cancels
		case <-time.After(patience):
			return Percentiles{}, fmt.Errorf("%d of %d waiters have heard that their job is cancelled", len(took), len(b.parked))
		case <-ctx.Done():
			return Percentiles{}, ctx.Err()
		}
	}
	return percentiles(took), nil
}

// get makes a request for the API, to be written to a connection.
func (b *waitBench) get(path string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\n%s: %s\r\n\r\n", path, b.addr, httpapi.OwnerHeader, waiting)
}

// ended turns what a closed connection returns into nil.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
