package projector

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	p, err := h.plot(ctx, job)
	if err != nil || p == nil {
		return nil, err
	}
	t, err := h.teller(ctx, job, p.seqs[len(p.seqs)-1])
	if err != nil {
		return nil, err
	}
	t.told.Omitted = p.omitted
	for from := 0; from < len(p.seqs); from += historyAhead {
		part := p.seqs[from:min(from+historyAhead, len(p.seqs))]
		entries, err := h.fetch(ctx, part, p.rejections)
		if err != nil {
			return nil, err
		}
		for i, seq := range part {
			if more, err := t.next(entries[i], p.rejections[seq], until); err != nil || !more {
				return t.end(), err
			}
		}
	}
	return t.end(), nil
}

// A plot is what the tables know of a job's history.
type plot struct {
	seqs []uint64 // of the entries that concern it, in order
	// rejections are those that changed nothing: what was said of them is in the
	// table, and they are not fetched again.
	rejections map[uint64]*ledger.Rejection
	omitted    int // older rejections that are left out
}

// plot reads the sequences of the entries that concern a job; nil if there is no
// job.
func (h *Histories) plot(ctx context.Context, job uuid.UUID) (*plot, error) {
	j, err := h.queries.Job(ctx, job)
	if err != nil || j == nil {
		return nil, err
	}
	p := &plot{seqs: slices.Clone(j.Seqs), rejections: map[uint64]*ledger.Rejection{}}
	for _, a := range j.Attempts {
		p.seqs = append(p.seqs, a.Seqs...)
		// What a worker says of its start is true at best: it came after the
		// attempt was made, and before the claim that names it.
		if a.StartSeq > a.Seqs[0] && a.StartSeq < a.Seqs[len(a.Seqs)-1] {
			p.seqs = append(p.seqs, a.StartSeq)
		}
	}
	list, err := h.queries.Rejections(ctx, job, 0, ledger.MaxPage)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if !slices.Contains(p.seqs, r.Seq) {
			p.rejections[r.Seq] = r
		}
	}
	p.seqs = slices.AppendSeq(p.seqs, maps.Keys(p.rejections))
	if len(list) == ledger.MaxPage {
		if p.omitted, err = h.queries.countRejections(ctx, job); err != nil {
			return nil, err
		}
		p.omitted -= len(list)
	}
	slices.Sort(p.seqs)
	p.seqs = slices.Compact(p.seqs)
	return p, nil
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

// fetch fetches entries by their sequences, but for the rejections that are known.
func (h *Histories) fetch(ctx context.Context, seqs []uint64, known map[uint64]*ledger.Rejection) ([]*ledger.Entry, error) {
	entries := make([]*ledger.Entry, len(seqs))
	g, ctx := errgroup.WithContext(ctx)
	for i, seq := range seqs {
		if known[seq] != nil {
			continue
		}
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

// next tells the next entry, or the rejection of one that is not folded again, and
// reports whether the moment has not come yet.
func (t *teller) next(e *ledger.Entry, r *ledger.Rejection, until ledger.Moment) (more bool, err error) {
	switch {
	case r != nil && until.Holds(r.Seq, r.At):
		t.told.Entries = append(t.told.Entries, t.state.DescribeRejection(r, t.job))
		return true, nil
	case r != nil || !until.Holds(e.Seq, e.At):
		return false, nil
	case !concerns(e, t.job):
		return true, nil
	}
	return true, t.tell(e)
}

// end returns what was told.
func (t *teller) end() *ledger.History {
	t.told.Job = t.state.Job(t.job)
	return &t.told
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
