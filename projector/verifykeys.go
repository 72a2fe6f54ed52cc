package projector

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
)

// Sizes of what is kept of all keys together. They do not depend on their
// number.
const (
	keyBuckets  = 1 << 16
	filterWords = 1 << 20 // of 64 bits: 8 MiB
	filterBits  = 4       // that a job sets
)

// keySums know of the jobs and attempts that the folds created, without a place
// for each: sums of a hash of their keys, by bucket, from which the keys in the
// tables are taken away at the end. What is left are rows too many. And a filter
// that tells which jobs were certainly not created yet.
type keySums struct {
	mu             sync.Mutex
	seeds          [2]maphash.Seed
	jobs, attempts [keyBuckets]keySum
	filter         []uint64
	// reported are rows too many that were reported already, the first ones.
	reported map[rowKey]struct{}
}

// A rowKey is the key of a job's row (attempt is jobRow) or of an attempt's.
type rowKey struct {
	job     uuid.UUID
	attempt int64
}

const jobRow = math.MinInt64

// A keySum is a count and a sum of 128 bits. Sums do not depend on the order.
type keySum struct {
	count int64
	sum   [2]uint64
}

func newKeySums() *keySums {
	return &keySums{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, filter: make([]uint64, filterWords),
		reported: map[rowKey]struct{}{},
	}
}

func (k *keySums) hash(r rowKey) (h [2]uint64) {
	var b [24]byte
	key := binary.BigEndian.AppendUint64(append(b[:0], r.job[:]...), uint64(r.attempt))
	for i, seed := range k.seeds {
		h[i] = maphash.Bytes(seed, key)
	}
	return h
}

// add counts a key, or with n = -1 takes it away. It returns its hash.
func (k *keySums) add(r rowKey, n int64) [2]uint64 {
	h := k.hash(r)
	s := k.sumOf(r, h)
	s.count += n
	s.sum[0] += uint64(n) * h[0]
	s.sum[1] += uint64(n) * h[1]
	return h
}

func (k *keySums) sumOf(r rowKey, h [2]uint64) *keySum {
	if r.attempt == jobRow {
		return &k.jobs[h[0]%keyBuckets]
	}
	return &k.attempts[h[0]%keyBuckets]
}

// isOdd reports whether the sums where a key belongs are not even.
func (k *keySums) isOdd(r rowKey) bool { return *k.sumOf(r, k.hash(r)) != keySum{} }

// create notes the rows that a fold has created.
func (k *keySums) create(c *ledger.Changes) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range c.Jobs {
		if j := &c.Jobs[i]; j.IsNew() {
			h := k.add(rowKey{j.ID, jobRow}, 1)
			word, bits := filterPlace(h)
			k.filter[word] |= bits
		}
	}
	for i := range c.Attempts {
		if a := &c.Attempts[i]; a.IsNew() {
			k.add(rowKey{a.Job, int64(a.Number)}, 1)
		}
	}
}

// filterPlace returns the word of the filter where a job belongs, and its bits
// there.
func filterPlace(h [2]uint64) (word, bits uint64) {
	for range filterBits {
		bits |= 1 << (h[1] % 64)
		h[1] /= 64
	}
	return h[0] % filterWords, bits
}

// perhapsCreated returns the jobs among ids that may have been created; all
// others were not.
func (k *keySums) perhapsCreated(ids []uuid.UUID) []uuid.UUID {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []uuid.UUID
	for _, id := range ids {
		word, bits := filterPlace(k.hash(rowKey{id, jobRow}))
		if k.filter[word]&bits == bits {
			list = append(list, id)
		}
	}
	return list
}

// missing notes that a row that should be there is not, which is reported, so
// that it is not looked for again.
func (k *keySums) missing(r rowKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.add(r, -1)
}

// tooMany notes that a row is there that should not, likewise.
func (k *keySums) tooMany(r rowKey, most int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.add(r, 1)
	if len(k.reported) < most {
		k.reported[r] = struct{}{}
	}
}

// compareKeys finds the rows of jobs and attempts that should not be there.
func (v *verifier) compareKeys(ctx context.Context) error {
	if err := v.snap.byKeys(ctx, false); err != nil {
		return err
	}
	for _, attempts := range []bool{false, true} {
		err := v.eachKey(ctx, attempts, func(r rowKey) {
			v.report.Rows++
			v.keys.add(r, -1)
		})
		if err != nil {
			return err
		}
	}
	for _, t := range []struct {
		name     string
		attempts bool
		sums     *[keyBuckets]keySum
	}{{jobsTable.name, false, &v.keys.jobs}, {attemptsTable.name, true, &v.keys.attempts}} {
		odd, surplus := false, 0
		for i := range t.sums {
			odd = odd || t.sums[i] != keySum{}
			surplus -= int(t.sums[i].count)
		}
		if !odd {
			continue
		}
		named, err := v.nameSurplus(ctx, t.attempts)
		if err != nil {
			return err
		}
		if rest := surplus - named; rest > 0 || named == 0 {
			v.report.Found += max(rest, 1) - 1
			v.differ(Difference{Table: t.name, Want: "no more rows", Got: fmt.Sprintf("%d more", max(rest, 1))})
		}
	}
	return nil
}

// eachKey visits the keys of all rows of a table.
func (v *verifier) eachKey(ctx context.Context, attempts bool, visit func(rowKey)) error {
	table, columns := jobsTable.name, "id"
	if attempts {
		table, columns = attemptsTable.name, "job_id, number"
	}
	sql := "SELECT " + columns + " FROM " + v.snap.store.generation + "." + table
	return v.snap.each(ctx, "the keys of "+table, sql, nil, func(raw [][]byte) {
		r := rowKey{uuid.UUID(raw[0]), jobRow}
		if attempts {
			r.attempt = int64(binary.BigEndian.Uint64(raw[1]))
		}
		visit(r)
	})
}

// nameSurplus reports the rows of a table that no entry has created, and returns
// how many they are. They are among those whose sums are odd, which are few; the
// stream is folded once more for their jobs.
func (v *verifier) nameSurplus(ctx context.Context, attempts bool) (named int, err error) {
	var candidates []rowKey
	if err := v.snap.byKeys(ctx, false); err != nil {
		return 0, err
	}
	err = v.eachKey(ctx, attempts, func(r rowKey) {
		_, known := v.keys.reported[r]
		if !known && len(candidates) < v.limits.candidates && v.keys.isOdd(r) {
			candidates = append(candidates, r)
		}
	})
	if err != nil {
		return 0, err
	}
	created, err := v.foldOnly(ctx, candidates)
	if err != nil {
		return 0, err
	}
	if err := v.snap.byKeys(ctx, true); err != nil {
		return 0, err
	}
	candidates = slices.DeleteFunc(candidates, func(r rowKey) bool { return created[r] })
	for batch := range slices.Chunk(candidates, v.limits.batch) {
		ids := make([]uuid.UUID, len(batch))
		for i, r := range batch {
			ids[i] = r.job
		}
		rows, err := v.snap.rows(ctx, ids)
		if err != nil {
			return 0, err
		}
		for _, r := range batch {
			if r.attempt == jobRow {
				v.differ(tooMany(jobsTable, rows[r.job].cells, jobSeqs))
			}
			for _, a := range rows[r.job].attempts {
				if a.number == r.attempt {
					v.differ(tooMany(attemptsTable, a.cells, attemptSeqs))
				}
			}
		}
	}
	return len(candidates), nil
}

// foldOnly folds the stream once more, for the jobs of some rows only, and says
// which of the rows its entries create.
func (v *verifier) foldOnly(ctx context.Context, rows []rowKey) (map[rowKey]bool, error) {
	wanted := make(map[uuid.UUID]bool, len(rows))
	for _, r := range rows {
		wanted[r.job] = true
	}
	g, ctx := errgroup.WithContext(ctx)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	channels, states := make([]chan chunk, len(v.points)), make([]*ledger.State, len(v.points))
	var folds sync.WaitGroup
	for i, c := range v.points {
		channels[i], states[i] = make(chan chunk, chunkAhead), ledger.NewState(0)
		folds.Add(1)
		g.Go(func() error {
			defer folds.Done()
			return foldJobs(ctx, states[i], channels[i], c.Pos.Seq, wanted)
		})
	}
	g.Go(func() error { return sourceError(reading, v.source(reading, channels)) })
	g.Go(func() error { folds.Wait(); stop(); return nil })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	created := map[rowKey]bool{}
	for _, r := range rows {
		j := states[jobShard(r.job, len(states))].Job(r.job)
		created[r] = j != nil && (r.attempt == jobRow || j.Attempt(int(r.attempt)) != nil)
	}
	return created, nil
}

// foldJobs folds some jobs of a shard, and the definitions.
func foldJobs(ctx context.Context, state *ledger.State, in <-chan chunk, to uint64, wanted map[uuid.UUID]bool) error {
	for at := uint64(0); at < to; {
		select {
		case c := <-in:
			for _, it := range c.items {
				id := it.entry.Job
				if it.entry.Seq > to || id != (uuid.UUID{}) && !wanted[id] {
					continue
				}
				if id != (uuid.UUID{}) && !state.Knows(id) {
					state.LoadAbsent(id)
				}
				if _, err := state.Apply(it.entry); err != nil {
					return err
				}
			}
			state.Drain()
			at = c.pos.Seq
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
