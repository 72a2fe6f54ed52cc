package projector

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/stream"
	"jobledger/internal/testenv/ledgerenv"
)

// recreate replaces the world's stream by a new one of the same name with the
// entries that keep returns, and gives it a moment to be there.
func (w *world) recreate(keep func(seq uint64, m *jetstream.RawStreamMsg) []byte) {
	w.t.Helper()
	var subjects []string
	var bodies [][]byte
	for seq := uint64(1); seq <= w.last(); seq++ {
		m, err := w.stream.GetMsg(w.ctx(), seq)
		require.NoError(w.t, err)
		if body := keep(seq, m); body != nil {
			subjects, bodies = append(subjects, m.Subject), append(bodies, body)
		}
	}
	require.NoError(w.t, w.js.DeleteStream(w.ctx(), w.name))
	_, err := stream.Create(w.ctx(), w.js, stream.Config(w.name, w.prefix, 1, 0))
	require.NoError(w.t, err)
	for i, body := range bodies {
		_, err := w.js.Publish(w.ctx(), subjects[i], body)
		require.NoError(w.t, err)
	}
}

// mutable makes the stream one from which entries can be deleted.
func (w *world) mutable() {
	w.t.Helper()
	require.NoError(w.t, w.js.DeleteStream(w.ctx(), w.name))
	cfg := stream.Config(w.name, w.prefix, 1, 0)
	cfg.DenyDelete, cfg.DenyPurge = false, false
	_, err := w.js.CreateStream(w.ctx(), cfg)
	require.NoError(w.t, err)
}

// TestAnotherStreamStopsTheProjector: a stream that is not the one that the
// tables were folded from is noticed before anything is written.
func TestAnotherStreamStopsTheProjector(t *testing.T) {
	t.Parallel()
	const entries = 20
	url := ledgerenv.Database(t)
	same := func(_ uint64, m *jetstream.RawStreamMsg) []byte { return m.Data }
	for name, c := range map[string]struct {
		spoil func(w *world)
		says  string
	}{
		"missing": {func(w *world) {
			require.NoError(w.t, w.js.DeleteStream(w.ctx(), w.name))
		}, "does not exist"},
		"rewound": {func(w *world) {
			w.recreate(func(seq uint64, m *jetstream.RawStreamMsg) []byte {
				if seq > entries-3 {
					return nil
				}
				return m.Data
			})
		}, fmt.Sprintf("ends at %d", entries-3)},
		"empty": {func(w *world) {
			w.recreate(func(uint64, *jetstream.RawStreamMsg) []byte { return nil })
		}, "ends at 0"},
		"created again with as many entries": {func(w *world) { w.recreate(same) }, "hash chain"},
		"created again with more entries": {func(w *world) {
			w.recreate(same)
			w.append(request("more"))
		}, "hash chain"},
		"a changed entry": {func(w *world) {
			w.recreate(func(seq uint64, m *jetstream.RawStreamMsg) []byte {
				if seq == entries {
					return request("changed").Message().Data
				}
				return m.Data
			})
		}, "hash chain"},
		"a gap after the checkpoint": {func(w *world) {
			seq := w.append(request("gone"))
			w.append(request("after the gap"))
			require.NoError(w.t, w.stream.DeleteMsg(w.ctx(), seq))
		}, "are gone"},
		"the entry at the checkpoint is gone": {func(w *world) {
			require.NoError(w.t, w.stream.DeleteMsg(w.ctx(), entries))
			w.append(request("after the gap"))
		}, "are gone"},
		"purged": {func(w *world) {
			require.NoError(w.t, w.stream.Purge(w.ctx()))
		}, "are gone"},
		"purged beyond the checkpoint": {func(w *world) {
			w.append(request("gone"))
			require.NoError(w.t, w.stream.Purge(w.ctx(), jetstream.WithPurgeSequence(w.last()+1)))
			w.append(request("after the gap"))
		}, "are gone"},
		"an entry whose effects are missing is gone": {func(w *world) {
			_, err := w.pool.Exec(w.ctx(), "UPDATE ledger_a.checkpoints SET effects_seq = 0")
			require.NoError(w.t, err)
			require.NoError(w.t, w.stream.DeleteMsg(w.ctx(), 3))
		}, "are gone"},
		"only one shard's checkpoint is beyond the end": {func(w *world) {
			w.setBack(1, entries/2)
			w.recreate(func(seq uint64, m *jetstream.RawStreamMsg) []byte {
				if seq > entries/2 {
					return nil
				}
				return m.Data
			})
		}, "does not fit the tables"},
		"a checkpoint beyond the end": {func(w *world) {
			_, err := w.pool.Exec(w.ctx(), "UPDATE ledger_a.checkpoints SET seq = 1000 WHERE shard = 1")
			require.NoError(w.t, err)
		}, fmt.Sprintf("ends at %d", entries)},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t, url)
			w := newWorldOn(t, url, 2)
			w.mutable()
			w.append(echoKind())
			for i := 1; i < entries; i++ {
				w.append(request(fmt.Sprint(i)))
			}
			stop := w.project(appendTo(silent{}))
			w.settled(entries)
			stop()
			c.spoil(w)
			before := w.whole()
			p, _, done := w.run(appendTo(silent{}))
			err := receive(t, done, "the projector's end")
			var wrong *StreamError
			require.ErrorAs(t, err, &wrong)
			require.ErrorContains(t, err, c.says)
			require.NotEmpty(t, wrong.Advice)
			require.Equal(t, err, p.Status().Err)
			require.False(t, p.Status().Active)
			require.Equal(t, before, w.whole())
			if _, err := Verify(w.ctx(), VerifyOptions{Pool: w.pool, Stream: w.stream, Prefix: w.prefix}); name != "a gap after the checkpoint" {
				require.ErrorAs(t, err, &wrong, "verify says so too")
			}
		})
	}
}

// whole returns all tables with the checkpoints.
func (w *world) whole() map[string]string {
	w.t.Helper()
	all := w.dump()
	rows, err := w.pool.Query(w.ctx(), "SELECT c::text FROM ledger_a.checkpoints AS c ORDER BY c.shard")
	require.NoError(w.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	all["checkpoints"] = fmt.Sprint(list)
	return all
}

// setBack puts a shard's checkpoint where it once was, with the chain that it
// had there. (The rows stay: the stream is looked at first.)
func (w *world) setBack(shard int, to uint64) {
	w.t.Helper()
	pos := Position{}
	for seq := uint64(1); seq <= to; seq++ {
		m, err := w.stream.GetMsg(w.ctx(), seq)
		require.NoError(w.t, err)
		pos = pos.next(seq, m.Time, m.Subject, m.Data)
	}
	_, err := w.pool.Exec(w.ctx(), "UPDATE ledger_a.checkpoints SET seq = $1, effects_seq = $1, chain = $2, chain_prev = $3 WHERE shard = $4",
		int64(to), pos.Chain[:], pos.Prev[:], shard)
	require.NoError(w.t, err)
}

// TestStreamGoesAwayWhileProjecting: the stream is deleted, or replaced, under
// a projector at work.
func TestStreamGoesAwayWhileProjecting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(w *world)
		says  string
	}{
		"deleted": {func(w *world) { require.NoError(w.t, w.js.DeleteStream(w.ctx(), w.name)) }, "does not exist"},
		"replaced": {func(w *world) {
			w.recreate(func(_ uint64, m *jetstream.RawStreamMsg) []byte { return m.Data })
		}, "hash chain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			w.append(echoKind())
			last := w.append(request("one"))
			p, _, done := w.run(appendTo(silent{}))
			w.settled(last)
			before := w.dump()
			c.spoil(w)
			err := receive(t, done, "the projector's end")
			var wrong *StreamError
			require.ErrorAs(t, err, &wrong)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, err, p.Status().Err)
			require.Equal(t, before, w.dump())
		})
	}
}

// TestPrefixOfAnotherLedger: a projector that is told the wrong prefix folds
// nothing.
func TestPrefixOfAnotherLedger(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.append(echoKind())
	_, _, done := w.run(appendTo(silent{}), func(o *Options) { o.Prefix = "another" })
	var wrong *StreamError
	require.ErrorAs(t, receive(t, done, "the projector's end"), &wrong)
	require.Empty(t, w.dump()["kinds"])
}

func TestRunWithoutTables(t *testing.T) {
	t.Parallel()
	_, err := New(Options{})
	require.ErrorContains(t, err, "Options.Pool")
	w := newWorld(t, 1)
	require.ErrorIs(t, Initialize(w.ctx(), w.pool, Meta{Stream: w.name, Prefix: w.prefix, Shards: 3}), ErrInitialized)
	require.ErrorContains(t, Initialize(w.ctx(), w.pool, Meta{Shards: MaxShards + 1}), "1 to 64")
	m, ok, err := ReadMeta(w.ctx(), w.pool)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Meta{Stream: w.name, Prefix: w.prefix, Shards: 1}, m)
	// A ledger whose checkpoints are not all there is not projected with fewer.
	_, err = w.pool.Exec(w.ctx(), "UPDATE ledger.ledger_meta SET shards = 2")
	require.NoError(t, err)
	p, cancel, done := w.run()
	ctx, end := context.WithTimeout(w.ctx(), 20*time.Second)
	defer end()
	for p.Status().Err == nil || p.Status().Err.Error() == "not started" {
		require.NoError(t, pause(ctx, 5*time.Millisecond))
	}
	require.ErrorContains(t, p.Status().Err, "checkpoint")
	cancel()
	require.NoError(t, receive(t, done, "the projector's end"))
}
