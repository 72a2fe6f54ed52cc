package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
)

const (
	// historyAhead is how many entries of a history are fetched at a time.
	historyAhead = 16
	// historyTimeout bounds the telling of a job's history.
	historyTimeout = 20 * time.Second
)

// Histories tells what became of jobs. The tables hold the sequences of the
// entries that touched a job; those entries are fetched and folded once more, by
// themselves. The stream is not searched, and nothing is changed.
type Histories struct {
	queries *Queries
	stream  jetstream.Stream
	prefix  string // of the ledger's subjects, with the dot
}

// NewHistories returns Histories on a pool, which they do not close. prefix is
// nats.subject_prefix, without the dot.
func NewHistories(pool *pgxpool.Pool, stream jetstream.Stream, prefix string) *Histories {
	return &Histories{NewQueries(pool), stream, prefix + "."}
}

// History tells the history of a job up to a moment: each entry that touched it
// or was refused, its start entries included. nil means that there is no such
// job. What left no trace is not told: repetitions that were recognised, and
// looks for a proof or at a brake, which move a waiting job's due time.
func (h *Histories) History(ctx context.Context, job uuid.UUID, until ledger.Moment) (*ledger.History, error) {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	seqs, omitted, err := h.sequences(ctx, job)
	if err != nil || seqs == nil {
		return nil, err
	}
	entries, err := h.fetch(ctx, seqs)
	if err != nil {
		return nil, err
	}
	t, err := h.teller(ctx, job, seqs[len(seqs)-1])
	if err != nil {
		return nil, err
	}
	t.told.Omitted = omitted
	for _, e := range entries {
		if !until.Holds(e.Seq, e.At) {
			break
		}
		if !concerns(e, job) {
			continue
		}
		if err := t.tell(e); err != nil {
			return nil, err
		}
	}
	t.told.Job = t.state.Job(job)
	return &t.told, nil
}

// sequences returns the sequences of the entries that concern a job, in order,
// and how many rejections are left out; nil if there is no job.
func (h *Histories) sequences(ctx context.Context, job uuid.UUID) (seqs []uint64, omitted int, err error) {
	j, err := h.queries.Job(ctx, job)
	if err != nil || j == nil {
		return nil, 0, err
	}
	seqs = slices.Clone(j.Seqs)
	for _, a := range j.Attempts {
		seqs = append(seqs, a.Seqs...)
		if a.StartSeq > 0 {
			seqs = append(seqs, a.StartSeq)
		}
	}
	rejections, err := h.queries.Rejections(ctx, job, 0, ledger.MaxPage)
	if err != nil {
		return nil, 0, err
	}
	for _, r := range rejections {
		seqs = append(seqs, r.Seq)
	}
	if len(rejections) == ledger.MaxPage {
		if omitted, err = h.queries.countRejections(ctx, job); err != nil {
			return nil, 0, err
		}
		omitted -= len(rejections)
	}
	slices.Sort(seqs)
	return slices.Compact(seqs), omitted, nil
}

// countRejections counts the rejections of a job.
func (q *Queries) countRejections(ctx context.Context, job uuid.UUID) (int, error) {
	scan := func(row pgx.CollectableRow) (n int, err error) { return n, row.Scan(&n) }
	n, err := collect(ctx, q, "count rejections", scan, "SELECT count(*) FROM ledger.rejections AS t WHERE t.job_id = $1", job)
	if err != nil {
		return 0, err
	}
	return n[0], nil
}

// fetch fetches entries by their sequences.
func (h *Histories) fetch(ctx context.Context, seqs []uint64) ([]*ledger.Entry, error) {
	entries := make([]*ledger.Entry, len(seqs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(historyAhead)
	for i, seq := range seqs {
		g.Go(func() error {
			m, err := fetchEntry(ctx, h.stream, seq)
			if err != nil {
				return err
			}
			entries[i] = ledger.Decode(m.Sequence, m.Time, strings.TrimPrefix(m.Subject, h.prefix), m.Data)
			return nil
		})
	}
	return entries, g.Wait()
}

// concerns reports whether an entry is about a job. The sequence of an attempt's
// start is what its worker said, and may be that of anything.
func concerns(e *ledger.Entry, job uuid.UUID) bool {
	if e.Kind != ledger.AttemptStart {
		return e.Job == job
	}
	start, err := ledger.ParseStart(e.Token, e.Raw)
	return err == nil && start.Job == job
}

// rules fetches the entries before the sequence last that set the fold's rules.
// No table holds their sequences, but the server finds them by their subject.
func (h *Histories) rules(ctx context.Context, last uint64) (list []*ledger.Entry, err error) {
	for seq := uint64(1); seq < last; {
		m, err := h.stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(h.prefix+string(ledger.RulesSet)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look for changes of the rules after entry %d: %w", seq-1, err)
		}
		list = append(list, ledger.Decode(m.Sequence, m.Time, string(ledger.RulesSet), m.Data))
		seq = m.Sequence + 1
	}
	return list, nil
}

// A teller folds the entries of one job. Rules and definitions are put into its
// state as it passes their sequences.
type teller struct {
	job   uuid.UUID
	state *ledger.State
	told  ledger.History

	rules         []*ledger.Entry
	kinds         []*ledger.KindRow
	providers     []*ledger.ProviderRow
	verifications []*ledger.VerificationRow
}

// teller reads what was defined up to the sequence last.
func (h *Histories) teller(ctx context.Context, job uuid.UUID, last uint64) (*teller, error) {
	t := &teller{job: job, state: ledger.NewState(0)}
	t.state.LoadAbsent(job)
	var err error
	if t.rules, err = h.rules(ctx, last); err != nil {
		return nil, err
	}
	upTo := func(cols, table string) string {
		return "SELECT " + cols + " FROM ledger." + table + " AS t WHERE t.seq < $1 ORDER BY t.seq"
	}
	if t.kinds, err = collect(ctx, h.queries, "read kinds", scanKind, upTo(kindsSelect, "kinds"), last); err != nil {
		return nil, err
	}
	if t.providers, err = collect(ctx, h.queries, "read providers", scanProvider, upTo(providersSelect, "providers"), last); err != nil {
		return nil, err
	}
	t.verifications, err = collect(ctx, h.queries, "read verifications", scanVerification,
		upTo(verificationsSelect, "provider_verifications"), last)
	return t, err
}

// tell folds an entry and notes what came of it.
func (t *teller) tell(e *ledger.Entry) error {
	if err := t.define(e.Seq); err != nil {
		return err
	}
	v, err := t.state.Retell(e)
	if err != nil {
		return fmt.Errorf("tell the history of job %s: %w", t.job, err)
	}
	t.told.Entries = append(t.told.Entries, t.state.Describe(e, v, t.job))
	return nil
}

// define puts the rules and definitions before the entry at seq into the state.
func (t *teller) define(seq uint64) error {
	for len(t.rules) > 0 && t.rules[0].Seq < seq {
		if _, err := t.state.Apply(t.rules[0]); err != nil {
			return fmt.Errorf("tell the history of job %s: %w", t.job, err)
		}
		t.rules = t.rules[1:]
	}
	for len(t.kinds) > 0 && t.kinds[0].Seq < seq {
		t.state.LoadKind(*t.kinds[0])
		t.kinds = t.kinds[1:]
	}
	for len(t.providers) > 0 && t.providers[0].Seq < seq {
		t.state.LoadProvider(*t.providers[0])
		t.providers = t.providers[1:]
	}
	for len(t.verifications) > 0 && t.verifications[0].Seq < seq {
		t.state.LoadVerification(*t.verifications[0])
		t.verifications = t.verifications[1:]
	}
	return nil
}
