package projector

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"jobledger/ledger"
)

// rejectionWindows gather the rejections of all shards until all have passed a
// sequence. Then the table's rows up to there are compared with them: those
// that are missing, and those that should not be there.
type rejectionWindows struct {
	mu      sync.Mutex
	pending []*ledger.Rejection
	reached []uint64 // by shard
	from    uint64   // up to here it was compared
}

func (w *rejectionWindows) reset(v *verifier) { w.reached = make([]uint64, len(v.points)) }

// rejected notes what a shard has rejected up to a sequence, and has a window
// compared if it is large enough.
func (v *verifier) rejected(ctx context.Context, shard int, upTo uint64, list []*ledger.Rejection) error {
	from, to, want, due := v.rejections.add(shard, upTo, list, v.limits)
	if !due {
		return nil
	}
	return v.ask(ctx, func(ctx context.Context) error { return v.compareRejections(ctx, from, to, want) })
}

func (w *rejectionWindows) add(shard int, upTo uint64, list []*ledger.Rejection, limits verifyLimits) (
	from, to uint64, want []*ledger.Rejection, due bool,
) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = append(w.pending, list...)
	w.reached[shard] = upTo
	from, to = w.from, slices.Min(w.reached)
	if to == math.MaxUint64 || to == from || len(w.pending) < limits.rejections && to-from < limits.window {
		return 0, 0, nil, false
	}
	w.from = to
	later := []*ledger.Rejection(nil)
	for _, r := range w.pending {
		if r.Seq <= to {
			want = append(want, r)
		} else {
			later = append(later, r)
		}
	}
	w.pending = later
	return from, to, want, true
}

// finishRejections compares what is left, and what stands beyond the last
// window and outside the buckets.
func (v *verifier) finishRejections(ctx context.Context) error {
	if err := v.compareRejections(ctx, v.rejections.from, math.MaxInt64, v.rejections.pending); err != nil {
		return err
	}
	return compareRows(ctx, v, rejectionsTable, "(bucket < 0 OR bucket >= "+strconv.Itoa(ledger.RejectionBuckets)+")", nil)
}

// compareRejections compares the rows after from up to and with to.
func (v *verifier) compareRejections(ctx context.Context, from, to uint64, want []*ledger.Rejection) error {
	after := int64(from)
	if from == 0 {
		after = math.MinInt64
	}
	return compareRows(ctx, v, rejectionsTable, "bucket IN ("+allBuckets+") AND seq > $1 AND seq <= $2", want,
		intParam(after), intParam(int64(to)))
}

var allBuckets = func() string {
	list := make([]string, ledger.RejectionBuckets)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return strings.Join(list, ", ")
}()
