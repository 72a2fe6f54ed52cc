package projector

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv/ledgerenv"
	"jobledger/ledger"
)

// serializable, added to a database's URL, makes its transactions so.
const serializable = "&default_transaction_isolation=serializable"

// TestStore is what every database must do for the projector.
func TestStore(t *testing.T) {
	t.Parallel()
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		testStore(t, ledgerenv.Database(t))
	})
	t.Run("PostgreSQL at serializable", func(t *testing.T) {
		t.Parallel()
		testStore(t, ledgerenv.Database(t)+serializable)
	})
	t.Run("CockroachDB", func(t *testing.T) {
		t.Parallel()
		testStore(t, startCockroach(t))
	})
}

// testStore runs the suite on a database with the ledger's schema.
func testStore(t *testing.T, url string) {
	for name, test := range map[string]func(*testing.T, *tablesOf){
		"round trip":           testRoundTrip,
		"statements":           testStatements,
		"other writers":        testOtherWriters,
		"rivals":               testRivals,
		"shards at once":       testShardsAtOnce,
		"due rows":             testDueRows,
		"definitions in order": testDefinitionsInOrder,
		"projection":           testProjection,
	} {
		t.Run(name, func(t *testing.T) {
			reset(t, url)
			test(t, newTables(t, url))
		})
	}
}

// tablesOf are the tables of one test.
type tablesOf struct {
	t    *testing.T
	url  string
	wire *wire
	pool *pgxpool.Pool
}

func newTables(t *testing.T, url string) *tablesOf {
	t.Helper()
	d := &tablesOf{t: t, url: url, wire: &wire{}}
	w := &world{t: t}
	d.pool = w.openPool(url, d.wire.through)
	return d
}

// initialize makes the tables a ledger's and returns its store.
func (d *tablesOf) initialize(shards int) *Store {
	d.t.Helper()
	require.NoError(d.t, Initialize(d.t.Context(), d.pool, Meta{Stream: "S", Prefix: "p", Shards: shards}))
	return d.open()
}

// open returns another writer's store.
func (d *tablesOf) open() *Store {
	d.t.Helper()
	s, err := OpenStore(d.t.Context(), d.pool)
	require.NoError(d.t, err)
	return s
}

func (d *tablesOf) exec(sql string, args ...any) {
	d.t.Helper()
	_, err := d.pool.Exec(d.t.Context(), sql, args...)
	require.NoError(d.t, err)
}

func (d *tablesOf) count(table string) (n int) {
	d.t.Helper()
	require.NoError(d.t, d.pool.QueryRow(d.t.Context(), "SELECT count(*) FROM ledger_a."+table).Scan(&n))
	return n
}

// lives brings jobs into as many states as there are.
func lives() []ledger.Body {
	id := func(key string) uuid.UUID { return ledger.JobID("acme", key) }
	start := func(key string) []ledger.Body { return []ledger.Body{request(key), claimOf(id(key), 1)} }
	full := completionOf(id("failed"), 1, ledger.OutcomeFailed)
	full.Failure = ledger.Failure{Class: "broken", Message: "ünïcode 😀", Executed: true, Reach: ledger.ReachTransient}
	full.ProviderRef, full.Usage = "ref", []byte(`{"cost": 0.50}`)
	unknown := completionOf(id("unknown"), 1, ledger.OutcomeUnknown)
	unknown.Failure = ledger.Failure{Class: "timeout", RetryAfterMS: 10}
	later := request("later")
	later.DelayMS = 3_600_000
	named := request("named")
	named.Provider = "fallback"
	bodies := []ledger.Body{
		&ledger.Rules{Rules: 1}, echoKind(func(k *ledger.Kind) { k.StartTimeoutMS = 60_000 }),
		&ledger.ProviderDefinition{Name: "fallback", Type: "exec", Definition: []byte(`{"n": 1}`), Actor: "operator"},
		&ledger.Verification{Provider: "fallback", Kind: "echo", Passed: true, ExpiresAt: time.Date(2027, 1, 1, 0, 0, 0, 1000, time.UTC)},
		later, named, request("starting"),
		&ledger.Cancel{Job: id("nobody"), Actor: "someone", Reason: "rejected"},
	}
	for _, key := range []string{"running", "done", "failed", "unknown", "cancelled", "resolved", "again"} {
		bodies = append(bodies, start(key)...)
	}
	return append(
		bodies, completionOf(id("done"), 1, ledger.OutcomeSucceeded), full, unknown, &ledger.Cancel{Job: id("cancelled"), Actor: "someone"},
		&ledger.Resolution{Job: id("resolved"), Attempt: 1, As: ledger.OutcomeSucceeded, Result: []byte(`null`), Reason: "seen", Actor: "operator"},
		&ledger.Resolution{Job: id("again"), Attempt: 1, As: ledger.OutcomeCancelled, Reason: "seen"},
		&ledger.AttemptAsk{Job: id("again"), Key: "k", Actor: "operator"},
	)
}

// testRoundTrip: what the fold left is what it finds again.
func testRoundTrip(t *testing.T, d *tablesOf) {
	store := d.initialize(1)
	f := newFolder(t, store, 0, 1)
	bodies := lives()
	half := f.fold(bodies[:len(bodies)/2]...)
	require.NoError(t, store.Commit(t.Context(), &half.commit))
	b := f.fold(bodies[len(bodies)/2:]...)
	b.commit.EffectsSeq = 7
	require.NoError(t, store.Commit(t.Context(), &b.commit))

	points, err := store.Checkpoints(t.Context(), true)
	require.NoError(t, err)
	require.Len(t, points, 1)
	require.False(t, points[0].UpdatedAt.IsZero())
	points[0].UpdatedAt = time.Time{}
	require.Equal(t, []Checkpoint{{Shard: 0, Pos: f.shard.pos, EffectsSeq: 7, Rules: 1, Token: store.token}}, points)
	found := ledger.NewState(points[0].Rules)
	require.NoError(t, store.LoadDefinitions(t.Context(), found, points[0].Pos.Seq))
	var ids []uuid.UUID
	for _, body := range bodies {
		if r, ok := body.(*ledger.Request); ok {
			ids = append(ids, ledger.JobID(r.Owner, r.Key))
		}
	}
	nobody := ledger.JobID("acme", "nobody")
	require.NoError(t, store.Load(t.Context(), found, append(ids, nobody)))
	require.True(t, found.Knows(nobody))
	require.Nil(t, found.Job(nobody))
	states := map[ledger.JobState]bool{}
	for _, id := range ids {
		want, got := f.shard.state.Job(id), found.Job(id)
		states[want.State] = true
		if want.Failure.Class != "" { // what it reaches is the attempt's affair
			want.Failure.Reach = ""
		}
		require.Equal(t, want.Attempts, got.Attempts)
		require.Equal(t, want, got)
	}
	require.Len(t, states, 6, "the jobs are in every state")
	require.Equal(t, 1, d.count("rejections"))
}

// mixed returns a batch's worth of every kind of change: n of each.
func mixed(n, from int) []ledger.Body {
	var bodies []ledger.Body
	for i := from; i < from+n; i++ {
		k := echoKind(func(k *ledger.Kind) { k.MaxAttempts, k.Name = 1+i%100, fmt.Sprint("kind", i) })
		bodies = append(bodies, k,
			&ledger.ProviderDefinition{Name: fmt.Sprint("p", i), Type: "exec", Definition: []byte(`{}`)},
			&ledger.Verification{Provider: "fallback", Kind: "echo", Passed: true, ExpiresAt: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)},
			request(fmt.Sprint("new ", i)),
			&ledger.Cancel{Job: uuid.NewSHA1(uuid.Nil, []byte(fmt.Sprint(i)))},
			&ledger.Cancel{Job: ledger.JobID("acme", fmt.Sprint("old ", i))})
	}
	return bodies
}

// testStatements: a batch costs the same number of statements whatever its size
// and its mix; and none for a table that it does not change.
func testStatements(t *testing.T, d *tablesOf) {
	store := d.initialize(1)
	f := newFolder(t, store, 0, 1)
	const most = 1000
	bodies := []ledger.Body{echoKind()}
	for i := range most + 100 {
		bodies = append(bodies, request(fmt.Sprint("old ", i)))
	}
	commit := func(b *batch) []string {
		require.NoError(t, store.Commit(t.Context(), &b.commit))
		return d.wire.take()
	}
	commit(f.fold(bodies...))
	cost := map[int]int{}
	from := 0
	for _, n := range []int{1, 10, most} {
		f.shard.state = ledger.NewState(1) // nothing is in memory
		require.NoError(t, store.LoadDefinitions(t.Context(), f.shard.state, f.seq))
		d.wire.take()
		b := f.fold(mixed(n, from)...)
		load := d.wire.take()
		list := commit(b)
		t.Logf("%d entries of 6 kinds: %d statements to load, %d to write", n*6, len(load), len(list))
		cost[n] = len(load) + len(list)
		from += n
		require.LessOrEqual(t, len(list), 11)
		require.LessOrEqual(t, len(load), 4)
	}
	require.Equal(t, cost[1], cost[10])
	require.Equal(t, cost[10], cost[most])
	require.Equal(t, most+11, d.count("rejections"))
	b := f.fold(request("only a new job"))
	d.wire.take()
	list := commit(b)
	require.Len(t, list, 5, "begin, jobs, attempts, checkpoint, commit: %q", list)
	list = commit(f.fold())
	require.Len(t, list, 3, "begin, checkpoint, commit: %q", list)
}

// testOtherWriters: whoever comes second learns that, and changes nothing.
func testOtherWriters(t *testing.T, d *tablesOf) {
	store := d.initialize(1)
	one, other := newFolder(t, store, 0, 1), newFolder(t, d.open(), 0, 1)
	first := []ledger.Body{echoKind(), request("one"), claimOf(ledger.JobID("acme", "one"), 1)}
	require.NoError(t, store.Commit(t.Context(), &one.fold(first...).commit))
	second := other.fold(append(first, request("two"))...)
	lost := func(c *Commit, why string) {
		t.Helper()
		require.ErrorIs(t, other.shard.store.Commit(t.Context(), c), ErrOtherWriter, why)
		require.Equal(t, 1, d.count("jobs"))
		require.Equal(t, 0, d.count("rejections"))
		points, err := store.Checkpoints(t.Context(), false)
		require.NoError(t, err)
		require.Equal(t, uint64(3), points[0].Pos.Seq)
		require.Equal(t, store.token, points[0].Token)
	}
	lost(&second.commit, "the rows are there")
	point := Commit{From: second.commit.From, To: second.commit.To}
	lost(&point, "the checkpoint has moved")

	// The checkpoint fits, a row does not: somebody wrote without moving it.
	next := one.fold(completionOf(ledger.JobID("acme", "one"), 1, ledger.OutcomeSucceeded), &ledger.Cancel{Job: uuid.New()})
	d.exec("UPDATE ledger_a.jobs SET version = version + 1")
	lost(&next.commit, "another version")
	d.exec("UPDATE ledger_a.jobs SET version = version - 1")
	d.exec("UPDATE ledger_a.jobs SET completed_by = 7, state = 'succeeded'")
	lost(&next.commit, "another winner")
	d.exec("UPDATE ledger_a.jobs SET completed_by = NULL, state = 'running'")
	d.exec("UPDATE ledger_a.checkpoints SET epoch = epoch + 1")
	require.ErrorIs(t, store.Commit(t.Context(), &next.commit), ErrOtherWriter, "the generation was switched")
	_, err := store.Checkpoints(t.Context(), false)
	require.ErrorIs(t, err, ErrOtherWriter)
	d.exec("UPDATE ledger_a.checkpoints SET epoch = epoch - 1")
	require.NoError(t, store.Commit(t.Context(), &next.commit))
	require.Equal(t, 1, d.count("rejections"))
}

// testRivals: of two writers that store the same entries at the same time, in
// other batches, one goes on and the other learns that it did.
func testRivals(t *testing.T, d *tablesOf) {
	d.initialize(1)
	writers := []*folder{newFolder(t, d.open(), 0, 1), newFolder(t, d.open(), 0, 1)}
	for round := range 6 {
		bodies := []ledger.Body{echoKind()}
		for i := range 20 {
			bodies = append(bodies, request(fmt.Sprintf("%d-%d", round, i)))
			if round > 0 {
				bodies = append(bodies, claimOf(ledger.JobID("acme", fmt.Sprintf("%d-%d", round-1, i)), 1))
			}
		}
		var batches [2]*batch
		for i, w := range writers {
			batches[i] = w.fold(bodies...)
		}
		var errs [2]error
		var both sync.WaitGroup
		for i, w := range writers {
			both.Go(func() { errs[i] = w.shard.store.Commit(t.Context(), &batches[i].commit) })
		}
		both.Wait()
		for errs[0] != nil && errs[1] != nil { // the database ended both, as it may
			t.Logf("neither: %v, %v", errs[0], errs[1])
			errs[0] = writers[0].shard.store.Commit(t.Context(), &batches[0].commit)
		}
		require.True(t, (errs[0] == nil) != (errs[1] == nil), "%v, %v", errs[0], errs[1])
		require.Equal(t, 20*(round+1), d.count("jobs"))
	}
}

// testShardsAtOnce: all shards store the same definitions, at the same time,
// and each its own jobs.
func testShardsAtOnce(t *testing.T, d *tablesOf) {
	const shards = 4
	store := d.initialize(shards)
	var all sync.WaitGroup
	errs := make([]error, shards)
	for n := range shards {
		f := newFolder(t, store, n, shards)
		bodies := mixed(50, 0)
		bodies[0] = echoKind()
		b := f.fold(bodies...)
		own := b.commit.Changes.Jobs[:0]
		for _, j := range b.commit.Changes.Jobs {
			if jobShard(j.ID, shards) == n {
				own = append(own, j)
			}
		}
		attempts := b.commit.Changes.Attempts[:0]
		for _, a := range b.commit.Changes.Attempts {
			if jobShard(a.Job, shards) == n {
				attempts = append(attempts, a)
			}
		}
		b.commit.Changes.Jobs, b.commit.Changes.Attempts, b.commit.Rejections = own, attempts, nil
		all.Go(func() { errs[n] = store.Commit(t.Context(), &b.commit) })
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, 50, d.count("jobs"))
	require.Equal(t, 50, d.count("kinds"))
	require.Equal(t, 50, d.count("providers"))
	require.Equal(t, 50, d.count("provider_verifications"))
}

// testDueRows: the clock sees what is due longest, however much is.
func testDueRows(t *testing.T, d *tablesOf) {
	store := d.initialize(1)
	f := newFolder(t, store, 0, 1)
	bodies := []ledger.Body{echoKind(func(k *ledger.Kind) { k.AttemptTimeoutMS = 5000 })}
	for i := range 30 {
		r := request(fmt.Sprint("waiting ", i))
		r.DelayMS = 3_600_000
		bodies = append(bodies, r)
	}
	bodies = append(bodies, request("one"), claimOf(ledger.JobID("acme", "one"), 1))
	require.NoError(t, store.Commit(t.Context(), &f.fold(bodies...).commit))
	due := f.at.Add(5 * time.Second)
	rows, err := store.DueRows(t.Context(), due.Add(-time.Microsecond), 10)
	require.NoError(t, err)
	require.Empty(t, rows)
	rows, err = store.DueRows(t.Context(), due.Add(24*time.Hour), 10)
	require.NoError(t, err)
	require.Len(t, rows, 10)
	require.Equal(t, DueRow{Job: ledger.JobID("acme", "one"), Attempt: 1, Due: due}, rows[0])
	for i := range 9 {
		require.Equal(t, ledger.JobID("acme", fmt.Sprint("waiting ", i)), rows[i+1].Job)
	}
}

// testDefinitionsInOrder: a shard sees the definitions up to its checkpoint,
// though another has stored later ones.
func testDefinitionsInOrder(t *testing.T, d *tablesOf) {
	store := d.initialize(2)
	f := newFolder(t, store, 0, 2)
	kind := func(n int) *ledger.KindDefinition { return echoKind(func(k *ledger.Kind) { k.MaxAttempts = n }) }
	require.NoError(t, store.Commit(t.Context(), &f.fold(kind(1), kind(2), kind(3)).commit))
	for upTo := uint64(0); upTo <= 3; upTo++ {
		state := ledger.NewState(0)
		require.NoError(t, store.LoadDefinitions(t.Context(), state, upTo))
		e := ledger.Decode(upTo+1, f.at, string(ledger.JobRequest), request("one").Message().Data)
		state.LoadAbsent(e.Job)
		v, err := state.Apply(e)
		require.NoError(t, err)
		if upTo == 0 {
			require.Equal(t, ledger.UnknownKind, v.Answer.Reason)
			continue
		}
		require.Equal(t, upTo, state.Job(e.Job).KindSeq)
	}
}

// testProjection projects a short history and verifies it.
func testProjection(t *testing.T, d *tablesOf) {
	source := newWorld(t, 1)
	last := appendHistory(source, rand.Uint64(), 300)
	w := source.onDatabase(t, d.url, 3)
	stop := w.project(appendTo(silent{}))
	w.caughtUp(last)
	stop()
	w.verify()
	jobs, err := NewQueries(w.pool).Jobs(t.Context(), ledger.JobFilter{})
	require.NoError(t, err)
	require.NotEmpty(t, jobs)
}
