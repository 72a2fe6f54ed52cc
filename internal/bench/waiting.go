package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	parkedKind     = "parked"
	parkedProvider = "nobody" // has no worker
	waiting        = "waiting"
	// apiConnections is what `serve` gives its API.
	apiConnections = 16
	// hotJobs are the jobs that the stalled readers follow; one of them changes
	// every churnEvery, so that each reader's buffers are full in some seconds.
	hotJobs    = 5
	churnEvery = 25 * time.Millisecond
	// settle is how long the waiters wait before a round with them begins.
	settle = 3 * time.Second
)

// A WaitingReport says what waiting costs the projection.
type WaitingReport struct {
	Jobs, Waiters, Stalled int
	// Without and With are job lives a second, round by round.
	Without, With []float64
	// Dropped is how many streams were cut since nobody read them; Kept, how
	// many had not been cut when their reader gave up.
	Dropped, Kept int64
	// Heard is how long after the decision that ended its job each waiter had
	// its answer, when all of the jobs were cancelled at once.
	Heard     Percentiles
	PeakBytes uint64
}

// Share returns the part of the rate that is left, by the medians.
func (r *WaitingReport) Share() float64 { return median(r.With) / median(r.Without) }

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[len(sorted)/2] + sorted[(len(sorted)-1)/2]) / 2
}

// Print writes the report for people.
func (r *WaitingReport) Print(w io.Writer) error {
	rounds := func(list []float64) string {
		var b strings.Builder
		for _, rate := range list {
			fmt.Fprintf(&b, " %.0f", rate)
		}
		return fmt.Sprintf("%.0f lives a second (rounds:%s)", median(list), b.String())
	}
	_, err := fmt.Fprintf(w, "%-30s %d a round, %d waiters, %d readers of events that do not read\n%-30s %s\n%-30s %s\n%-30s %.0f %%\n"+
		"%-30s %d dropped, %d not yet\n%-30s %s\n%-30s %.0f MiB at most\n",
		"jobs", r.Jobs, r.Waiters, r.Stalled, "without them", rounds(r.Without), "with them", rounds(r.With), "left of the rate", 100*r.Share(),
		"stalled readers", r.Dropped, r.Kept, "all jobs cancelled, heard after", r.Heard, "memory", float64(r.PeakBytes)/(1<<20))
	return err
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
	for n := range o.Rounds {
		rate, err := b.round(ctx, fmt.Sprintf("without-%d", n))
		if err != nil {
			return nil, err
		}
		r.Without = append(r.Without, rate)
		if rate, err = b.crowded(ctx, r, n); err != nil {
			return nil, err
		}
		r.With = append(r.With, rate)
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
	hot    []uuid.UUID
	rounds int64
	wishes int
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
			b.hot = append(b.hot, id)
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

// round is one load; it returns job lives a second.
func (b *waitBench) round(ctx context.Context, name string) (float64, error) {
	b.rounds++
	began := time.Now()
	if _, err := b.produce(ctx, name); err != nil {
		return 0, err
	}
	if err := b.awaitEnded(ctx, b.rounds*int64(b.o.Jobs)); err != nil {
		return 0, err
	}
	if err := b.awaitTables(ctx); err != nil {
		return 0, err
	}
	return float64(b.o.Jobs) / time.Since(began).Seconds(), nil
}

// crowded is a round with the waiters and the stalled readers. In the last one
// all jobs that are waited for are cancelled afterwards.
func (b *waitBench) crowded(ctx context.Context, r *WaitingReport, n int) (float64, error) {
	crowd, stop := context.WithCancel(ctx)
	defer stop()
	g, crowd := errgroup.WithContext(crowd)
	answers := make(chan heard, b.o.Waiters)
	for _, id := range b.parked {
		g.Go(func() error { return b.wait(crowd, id, answers) })
	}
	var dropped, kept atomic.Int64
	for i := range b.o.Stalled {
		g.Go(func() error { return b.stall(crowd, b.hot[i%hotJobs], &dropped, &kept) })
	}
	g.Go(func() error { return b.churn(crowd) })
	if err := b.crowdedNow(crowd); err != nil {
		stop()
		return 0, errors.Join(err, g.Wait())
	}
	rate, err := b.round(ctx, fmt.Sprintf("with-%d", n))
	if err == nil && n == b.o.Rounds-1 {
		r.Heard, err = b.release(crowd, answers)
	}
	stop()
	err = errors.Join(err, g.Wait())
	r.Dropped, r.Kept = r.Dropped+dropped.Load(), r.Kept+kept.Load()
	return rate, err
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
