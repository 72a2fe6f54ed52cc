package projector

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

// folder feeds a shard with entries, without a stream.
type folder struct {
	t     *testing.T
	shard *shard
	at    time.Time
	seq   uint64
}

func newFolder(t *testing.T, store *Store, number, shards int) *folder {
	return &folder{t, &shard{number: number, shards: shards, store: store, state: ledger.NewState(0), obs: noObserver{}},
		time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 0}
}

// fold folds entries, as if the stream had stored them one second apart, and
// returns the batch that is to be stored.
func (f *folder) fold(bodies ...ledger.Body) *batch {
	f.t.Helper()
	messages := make([]ledger.Message, len(bodies))
	for i, b := range bodies {
		messages[i] = b.Message()
	}
	return f.foldRaw(messages...)
}

func (f *folder) foldRaw(messages ...ledger.Message) *batch {
	f.t.Helper()
	from := f.shard.pos
	var items []item
	for _, m := range messages {
		f.seq++
		f.at = f.at.Add(time.Second)
		f.shard.pos = f.shard.pos.next(f.seq, f.at, m.Subject, m.Data)
		items = append(items, item{entry: ledger.Decode(f.seq, f.at, m.Subject, m.Data)})
	}
	if f.shard.store == nil {
		for _, it := range items {
			if id := it.entry.Job; id != (uuid.UUID{}) && !f.shard.state.Knows(id) {
				f.shard.state.LoadAbsent(id)
			}
		}
	} else {
		require.NoError(f.t, f.shard.load(f.t.Context(), items))
	}
	b, err := f.shard.fold(items, from)
	require.NoError(f.t, err)
	return b
}

// TestMemoryIsBounded: a shard remembers the jobs that batches on their way
// need, and no more than its bounds of the others, however long it runs.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	f := newFolder(t, nil, 0, 1)
	f.fold(echoKind())
	trim := func(committed uint64) { f.shard.memory.trim(f.shard.state, committed) }

	// Jobs that live and end leave nothing.
	for i := range 2 * batchEntries {
		key := fmt.Sprint(i)
		id := ledger.JobID("acme", key)
		trim(f.fold(request(key)).number)
		require.True(t, f.shard.state.Knows(id), "it is not at rest")
		b := f.fold(&ledger.Cancel{Job: id})
		trim(b.number - 1)
		require.True(t, f.shard.state.Knows(id), "its batch is not stored yet")
		trim(b.number)
		require.False(t, f.shard.state.Knows(id), "settled jobs leave")
	}
	require.Zero(t, f.shard.state.Len())
	require.LessOrEqual(t, len(f.shard.memory.idle)+len(f.shard.memory.fresh), 2*batchEntries)

	// One that is asked for again and again stays one.
	for range 2 * batchEntries {
		trim(f.fold(request("one")).number)
	}
	require.Equal(t, 1, f.shard.state.Len())
	require.LessOrEqual(t, len(f.shard.memory.idle)+len(f.shard.memory.fresh), 2*batchEntries)

	// Too many that wait: the longest untouched ones leave.
	bodies := make([]ledger.Body, memoryJobs+100)
	for i := range bodies {
		bodies[i] = request(fmt.Sprint("waiting ", i))
	}
	b := f.fold(bodies...)
	trim(b.number - 1)
	require.False(t, f.shard.state.Knows(ledger.JobID("acme", "one")), "the longest untouched one")
	require.Equal(t, len(bodies), f.shard.state.Len(), "none whose batch is on its way may leave")
	trim(b.number)
	require.Equal(t, memoryJobs, f.shard.state.Len())
	require.True(t, f.shard.state.Knows(ledger.JobID("acme", fmt.Sprint("waiting ", len(bodies)-1))))
}
