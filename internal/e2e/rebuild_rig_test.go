package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

const (
	rebuildShards = 2
	// rebuildBad is how many entries of a history are rejected.
	rebuildBad = 20
)

// A rebuildRig is a ledger with a history whose tables are rebuilt while
// producers, a projector and a worker are at work, and readers watch.
type rebuildRig struct {
	*faultRig
	old            int // jobs of the history, of four entries each
	projector, api *process
	load           *faultLoad
	readers        *errgroup.Group
	quit           context.CancelFunc // ends the readers and the producers
}

// newRebuildRig makes the ledger and a history of so many jobs, and starts
// everybody. every is how often each producer submits.
func newRebuildRig(t *testing.T, jobs int, every time.Duration) *rebuildRig {
	t.Helper()
	stub := newFaultStub(t, time.Millisecond)
	yaml := fmt.Sprintf("kinds:\n  %s: {providers: [stub], effects: external, attempt_timeout: 5m}\n"+
		"providers:\n  stub: {type: http, url: %q, concurrency: 8}\n", faultKind, stub.url)
	r := &rebuildRig{faultRig: &faultRig{t: t, stub: stub, began: time.Now()}, old: jobs}
	r.world = newWorld(t, setup{yaml: yaml, shards: rebuildShards})
	r.projector, r.api = r.serve("projector"), r.serve("api")
	r.serve("worker")
	r.apply()
	r.fill()
	r.say("a history of %d entries", r.awaitEnd())
	r.load = r.startLoad(r.api, every)
	var ctx context.Context
	ctx, r.quit = context.WithCancel(context.Background())
	r.readers, ctx = errgroup.WithContext(ctx)
	r.readers.Go(func() error { return r.readTables(ctx) })
	r.readers.Go(func() error { return r.readAPI(ctx) })
	r.readers.Go(func() error { return r.decide(ctx, every) })
	t.Cleanup(func() { r.quit(); _ = r.readers.Wait() }) // finish has looked at the error
	return r
}

// fill makes the history: jobs that have succeeded, and entries that were
// rejected.
func (r *rebuildRig) fill() {
	r.t.Helper()
	js, err := jetstream.New(r.js.Conn(), jetstream.WithPublishAsyncMaxPending(r.old+rebuildBad+1))
	require.NoError(r.t, err)
	for i := range r.old {
		req := ledger.Request{Owner: faultOwner, Key: fmt.Sprint("old ", i), Kind: faultKind, Input: []byte(`{"old":true}`)}
		_, err := js.PublishAsync(r.prefix+".job.request", req.Message().Data)
		require.NoError(r.t, err)
	}
	for i := range rebuildBad {
		_, err := js.PublishAsync(r.prefix+".job.request", []byte(fmt.Sprint("no JSON ", i)))
		require.NoError(r.t, err)
	}
	<-js.PublishAsyncComplete()
	testenv.Eventually(r.t, faultPatience, func() (bool, string) {
		n := r.number("SELECT count(*) FROM ledger.jobs WHERE state = 'succeeded'")
		return n == r.old, fmt.Sprintf("%d of %d jobs have succeeded", n, r.old)
	})
}

// finish ends the load and the readers, and holds everything against the stream.
func (r *rebuildRig) finish() {
	r.t.Helper()
	r.load.stop()
	r.quit()
	require.NoError(r.t, r.readers.Wait())
	o := r.awaitQuiet(r.load)
	r.load.requireNoRefusals()
	r.requireSound(o)
	r.requireAllSucceeded(o)
	r.say("%d jobs acknowledged, answers %v", r.load.acknowledged(), r.load.byStatus())
}

// live is the generation of tables that is in use.
func (r *rebuildRig) live() string { return r.text("SELECT name FROM ledger.active WHERE id = 1") }

// rebuilding starts `jobledger rebuild` on a database's URL.
func (r *rebuildRig) rebuilding(database string) *process {
	r.t.Helper()
	p := &process{w: r.world, roles: "(rebuild)", args: []string{"rebuild"}, env: r.environment(database)}
	p.launch()
	r.t.Cleanup(p.kill)
	return p
}

// rebuild runs one to its end. The lock of one that was killed may last until
// the database notices that it is gone.
func (r *rebuildRig) rebuild() {
	r.t.Helper()
	testenv.Eventually(r.t, faultPatience, func() (bool, string) {
		out := r.run("rebuild")
		if out.code != 4 {
			out.is(r.t, 0)
		}
		return out.code == 0, out.stderr
	})
}

// A snapshot is what one statement sees of the views.
type snapshot struct {
	jobs, attempts, rejections, kinds int
	counted                           int // attempts, as the jobs count them
	loose                             int // rows that do not belong together
	points                            []int64
}

// snapshotSQL looks at all views in one statement, whose parts must agree.
const snapshotSQL = `SELECT (SELECT count(*) FROM ledger.jobs), (SELECT count(*) FROM ledger.attempts),
	(SELECT count(*) FROM ledger.rejections), (SELECT count(*) FROM ledger.kinds),
	(SELECT coalesce(sum(j.attempt_count), 0) FROM ledger.jobs AS j),
	(SELECT count(*) FROM ledger.jobs AS j WHERE j.completed_by IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ledger.attempts AS a
		WHERE a.job_id = j.id AND a.number = j.completed_by AND a.state = 'succeeded')),
	ARRAY(SELECT c.seq FROM ledger.checkpoints AS c ORDER BY c.shard)`

// after returns what is wrong with a snapshot that follows another, or nil.
func (s *snapshot) after(old *snapshot) error {
	back := s.jobs < old.jobs || s.attempts < old.attempts || s.rejections < old.rejections || s.kinds < old.kinds
	for i := range old.points {
		back = back || i >= len(s.points) || s.points[i] < old.points[i]
	}
	if back || s.counted != s.attempts || s.loose > 0 || len(s.points) != rebuildShards {
		return fmt.Errorf("a reader saw %+v after %+v", *s, *old)
	}
	return nil
}

// readTables reads the views in a loop: each statement must see one whole state,
// and none may see less than the one before.
func (r *rebuildRig) readTables(ctx context.Context) error {
	old := &snapshot{jobs: r.old, attempts: r.old, rejections: rebuildBad, kinds: 1}
	versions := map[uuid.UUID]int64{}
	for ctx.Err() == nil {
		s := &snapshot{}
		err := r.pool.QueryRow(ctx, snapshotSQL).Scan(&s.jobs, &s.attempts, &s.rejections, &s.kinds, &s.counted, &s.loose, &s.points)
		if err == nil {
			if err := s.after(old); err != nil {
				return err
			}
			old = s
			err = r.readVersions(ctx, versions)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (r *rebuildRig) readVersions(ctx context.Context, versions map[uuid.UUID]int64) error {
	rows, err := r.pool.Query(ctx, "SELECT j.id, j.version FROM ledger.jobs AS j")
	if err != nil {
		return err
	}
	var id uuid.UUID
	var version int64
	seen := 0
	_, err = pgx.ForEachRow(rows, []any{&id, &version}, func() error {
		seen++
		if version < versions[id] {
			return fmt.Errorf("job %s has version %d after %d", id, version, versions[id])
		}
		versions[id] = version
		return nil
	})
	if err == nil && seen < len(versions) {
		err = fmt.Errorf("%d jobs are there after %d", seen, len(versions))
	}
	return err
}

// readAPI reads jobs over HTTP in a loop: what was there once stays there, and
// never goes back.
func (r *rebuildRig) readAPI(ctx context.Context) error {
	c := r.api.client(faultOwner)
	versions := map[string]float64{}
	for ctx.Err() == nil {
		id := c.jobID(fmt.Sprint("old ", rand.N(r.old)))
		for acked := range r.load.jobs() { // any one of them, half of the time
			if rand.N(2) == 0 {
				id = acked
			}
			break
		}
		a, err := c.try(http.MethodGet, jobPath(id), "")
		if err != nil {
			return err
		}
		version, ok := a.body["version"].(float64)
		if a.status != http.StatusOK || !ok || version < versions[id] {
			return fmt.Errorf("job %s, which had version %v: %d %s", id, versions[id], a.status, a.raw)
		}
		versions[id] = version
	}
	return nil
}

// decide asks for one job after the other by plain publishing, each once it has
// the decision on the one before, and no more than one in the given time.
func (r *rebuildRig) decide(ctx context.Context, every time.Duration) error {
	inbox := r.js.Conn().NewInbox()
	replies, err := r.js.Conn().SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = replies.Unsubscribe() }()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		req := ledger.Request{Owner: faultOwner, Key: fmt.Sprint("plain ", n), Kind: faultKind, Input: []byte(`1`)}
		msg := nats.NewMsg(r.prefix + ".job.request")
		msg.Data = req.Message().Data
		msg.Header.Set(ledger.ReplyHeader, inbox)
		ack, err := r.js.PublishMsg(context.WithoutCancel(ctx), msg)
		if err != nil {
			return err
		}
		if err := awaitDecision(replies, ack.Sequence); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// awaitDecision waits for the decision on an entry; those on entries before it
// may be given once more.
func awaitDecision(replies *nats.Subscription, seq uint64) error {
	for {
		m, err := replies.NextMsg(patience)
		if err != nil {
			return fmt.Errorf("no decision on entry %d: %w", seq, err)
		}
		var d decision
		if err := json.Unmarshal(m.Data, &d); err != nil || d.Decision != "accepted" {
			return errors.Join(fmt.Errorf("entry %d: the answer %s", seq, m.Data), err)
		}
		if d.Seq == seq {
			return nil
		}
	}
}
