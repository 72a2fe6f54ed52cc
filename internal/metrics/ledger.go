package metrics

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"jobledger/projector"
	"jobledger/workers"
)

const (
	// keepFor is how long figures of the tables and of the stream are good for:
	// however often it is scraped, they are asked once in that time.
	keepFor = 5 * time.Second
	// askFor bounds the asking of one source.
	askFor = 3 * time.Second
	// listFor bounds the listing of consumers.
	listFor = time.Second
	// mostShardTimes bounds the entries that are fetched to learn how old the
	// first one is that a shard has not applied.
	mostShardTimes = 16
)

// A Source is where the ledger's own figures come from.
type Source struct {
	// Tables reads the tables; see projector.Queries.Gauges.
	Tables func(context.Context) (projector.Gauges, error)
	// Stream is the ledger's stream.
	Stream jetstream.Stream
	Log    *slog.Logger
}

// AddSource makes figures of the tables and the stream part of the metrics. They
// are the same from every process that has them. It panics if it is called twice.
func (m *Metrics) AddSource(s Source) {
	m.registry.MustRegister(&ledgerFigures{source: s, kinds: m.kinds, providers: m.providers, now: time.Now})
}

// ledgerFigures asks the tables and the stream, and remembers the answers for a
// while.
type ledgerFigures struct {
	source           Source
	kinds, providers *words
	now              func() time.Time

	mu     sync.Mutex // held while asking: whoever comes meanwhile gets the answer, too
	asked  time.Time
	tables *projector.Gauges // nil: they could not be read
	stream *streamFigures
}

type streamFigures struct {
	bytes, messages, last uint64
	limit                 int64 // 0 or less: none
	consumers             []*jetstream.ConsumerInfo
	since                 map[uint64]time.Time // when entries were stored that wait to be applied
}

var (
	tablesReadableDesc = desc("tables_readable", "Whether the figures of the tables could be read: 1 or 0. If not, they are left out.")
	streamReadableDesc = desc("stream_readable", "Whether the figures of the stream could be read: 1 or 0. If not, they are left out.")
	unknownDesc        = desc("unknown_attempts", "Attempts of which nobody knows how they ended, of the 10,000 that were requested first; those of settled jobs are left out if their kind has no effects.", "provider", "kind")
	unknownOldestDesc  = desc("unknown_oldest_seconds", "How long the oldest unknown attempt has been unknown.", "provider", "kind")
	proofDesc          = desc("provider_proof", "What is proved of a provider for a kind: 1 for valid (jobs may fail over to it) or for why it is not: none, failed, expired, contract_changed, provider_changed.", "provider", "kind", "state")
	proofExpiresDesc   = desc("provider_proof_expires_seconds", "How long the proof of a provider for a kind lets jobs fail over to it; 0 if there is none that counts.", "provider", "kind")
	waitingJobsDesc    = desc("jobs_waiting", "Jobs that wait, by reason, of the 20,000 oldest waiting ones.", "reason")
	lagEntriesDesc     = desc("projector_lag_entries", "Entries by which the tables are behind the stream.", "shard")
	lagSecondsDesc     = desc("projector_lag_seconds", "How long the first entry has been waiting that is not in the tables; 0 if they are up to date.", "shard")
	streamBytesDesc    = desc("stream_bytes", "Size of the stream.")
	streamLimitDesc    = desc("stream_limit_bytes", "Size at which the stream refuses new entries; left out if it has no limit.")
	streamMessagesDesc = desc("stream_messages", "Entries in the stream.")
	startsWaitingDesc  = desc("starts_waiting", "Starts of attempts that no worker has taken yet.", "provider")
	startsTakenDesc    = desc("starts_taken", "Starts of attempts that workers have in hand.", "provider")
	pullsDesc          = desc("worker_pulls", "Workers that ask for starts; those whose slots are all in use ask for none.", "provider")
)

// Describe implements prometheus.Collector.
func (f *ledgerFigures) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{tablesReadableDesc, streamReadableDesc, unknownDesc, unknownOldestDesc, waitingJobsDesc, proofDesc, proofExpiresDesc,
		lagEntriesDesc, lagSecondsDesc, streamBytesDesc, streamLimitDesc, streamMessagesDesc, startsWaitingDesc, startsTakenDesc, pullsDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (f *ledgerFigures) Collect(out chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked.IsZero() || f.now().Sub(f.asked) >= keepFor {
		f.ask()
	}
	out <- gaugeNow(tablesReadableDesc, truth(f.tables != nil))
	out <- gaugeNow(streamReadableDesc, truth(f.stream != nil))
	if f.tables != nil {
		f.collectTables(out)
	}
	if f.stream != nil {
		f.collectStream(out)
	}
	if f.tables != nil && f.stream != nil {
		f.collectLag(out)
	}
}

// ask asks the tables first: what is appended meanwhile is a lag, but never a
// negative one.
func (f *ledgerFigures) ask() {
	f.tables, f.stream = nil, nil
	ctx, cancel := context.WithTimeout(context.Background(), askFor)
	defer cancel()
	tables, err := f.source.Tables(ctx)
	if err == nil {
		f.tables = &tables
	} else {
		f.source.Log.Warn("figures of the tables could not be read for the metrics", "error", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), askFor)
	defer cancel()
	stream, err := askStream(ctx, f.source.Stream, tables.Checkpoints)
	if err == nil {
		f.stream = stream
		if stream.consumers, err = listConsumers(f.source.Stream); err != nil {
			f.source.Log.Warn("the stream's consumers could not be listed for the metrics; may this user publish $JS.API.CONSUMER.LIST.<stream>?", "error", err)
		}
	} else {
		f.source.Log.Warn("figures of the stream could not be read for the metrics", "error", err)
	}
	f.asked = f.now()
}

func askStream(ctx context.Context, stream jetstream.Stream, checkpoints []uint64) (*streamFigures, error) {
	info, err := stream.Info(ctx)
	if err != nil {
		return nil, err
	}
	f := &streamFigures{
		bytes: info.State.Bytes, messages: info.State.Msgs, last: info.State.LastSeq, limit: info.Config.MaxBytes,
		since: map[uint64]time.Time{},
	}
	for _, seq := range checkpoints {
		if _, known := f.since[seq]; known || seq >= f.last || len(f.since) == mostShardTimes {
			continue
		}
		m, err := stream.GetMsg(ctx, seq+1)
		if err != nil {
			return nil, err
		}
		f.since[seq] = m.Time
	}
	return f, nil
}

// listConsumers asks for the consumers of workers. A NATS user that may not list
// them gets no answer, so that not long is waited for it, and the other figures
// do not depend on it.
func listConsumers(stream jetstream.Stream) ([]*jetstream.ConsumerInfo, error) {
	ctx, cancel := context.WithTimeout(context.Background(), listFor)
	defer cancel()
	var found []*jetstream.ConsumerInfo
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		found = append(found, c)
	}
	return found, list.Err()
}

func (f *ledgerFigures) collectTables(out chan<- prometheus.Metric) {
	type name struct{ provider, kind string }
	type sum struct {
		attempts int64
		oldest   time.Duration
	}
	groups := map[name]sum{} // names beyond the bound become one
	for _, g := range f.tables.Unknown {
		n := name{f.providers.bound(g.Provider), f.kinds.bound(g.Kind)}
		s := groups[n]
		s.attempts += g.Attempts
		s.oldest = max(s.oldest, f.now().Sub(g.Since))
		groups[n] = s
	}
	for n, s := range groups {
		out <- gaugeNow(unknownDesc, float64(s.attempts), n.provider, n.kind)
		out <- gaugeNow(unknownOldestDesc, s.oldest.Seconds(), n.provider, n.kind)
	}
	f.collectProofs(out)
	for reason, jobs := range f.tables.Waiting {
		out <- gaugeNow(waitingJobsDesc, float64(jobs), string(reason))
	}
}

// collectProofs tells for how long proofs count. Of names beyond the bound, which
// become one, the proof that ends first is told.
func (f *ledgerFigures) collectProofs(out chan<- prometheus.Metric) {
	type name struct{ provider, kind string }
	type proof struct {
		state string
		left  float64
	}
	proofs := map[name]proof{}
	for _, p := range f.tables.Proofs {
		n, now := name{f.providers.bound(p.Provider), f.kinds.bound(p.Kind)}, proof{"valid", p.ExpiresAt.Sub(f.now()).Seconds()}
		switch {
		case p.Lapsed != "":
			now = proof{strings.ReplaceAll(p.Lapsed, " ", "_"), 0}
		case now.left <= 0: // since it was read
			now = proof{"expired", 0}
		}
		if other, twice := proofs[n]; !twice || now.left < other.left {
			proofs[n] = now
		}
	}
	for n, p := range proofs {
		out <- gaugeNow(proofDesc, 1, n.provider, n.kind, p.state)
		out <- gaugeNow(proofExpiresDesc, p.left, n.provider, n.kind)
	}
}

func (f *ledgerFigures) collectStream(out chan<- prometheus.Metric) {
	out <- gaugeNow(streamBytesDesc, float64(f.stream.bytes))
	out <- gaugeNow(streamMessagesDesc, float64(f.stream.messages))
	if f.stream.limit > 0 {
		out <- gaugeNow(streamLimitDesc, float64(f.stream.limit))
	}
	type sum struct{ waiting, taken, pulls int }
	providers := map[string]sum{}
	for _, c := range f.stream.consumers {
		provider, ok := strings.CutPrefix(c.Name, workers.ConsumerName(""))
		if !ok {
			continue
		}
		provider = f.providers.bound(provider)
		s := providers[provider]
		s.waiting += int(min(c.NumPending, 1<<53))
		s.taken += c.NumAckPending
		s.pulls += c.NumWaiting
		providers[provider] = s
	}
	for provider, s := range providers {
		out <- gaugeNow(startsWaitingDesc, float64(s.waiting), provider)
		out <- gaugeNow(startsTakenDesc, float64(s.taken), provider)
		out <- gaugeNow(pullsDesc, float64(s.pulls), provider)
	}
}

func (f *ledgerFigures) collectLag(out chan<- prometheus.Metric) {
	for shard, seq := range f.tables.Checkpoints {
		var entries, seconds float64
		if seq < f.stream.last {
			entries = float64(f.stream.last - seq)
			if since, known := f.stream.since[seq]; known {
				seconds = max(f.now().Sub(since), 0).Seconds()
			}
		}
		out <- gaugeNow(lagEntriesDesc, entries, shardName(shard))
		out <- gaugeNow(lagSecondsDesc, seconds, shardName(shard))
	}
}
