package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/testenv"
)

// takeOverWithin is how long the tables may stand still when the projector at
// work is lost: the other one waits for 3 to 4.5 s, the sessions of a frozen one
// are ended after 5 s; the rest is for a busy machine.
const takeOverWithin = 20 * time.Second

// TestTwoProjectors runs two projectors on one ledger under load and takes the
// one that is at work away in different ways and at different moments of a
// transaction. Each time the other one goes on, and in the end nothing was done
// twice.
func TestTwoProjectors(t *testing.T) {
	t.Parallel()
	nats := testenv.StartNATS(t, natsserver.Options{SyncAlways: true})
	r := newFaultRig(t, faultSettings{
		nats: nats.URL(), attemptTimeout: time.Minute, concurrency: 4, callTime: 10 * time.Millisecond,
	})
	p := &projectorPair{faultRig: r}
	for i := range p.processes {
		p.proxies[i] = testenv.NewProxy(t, r.database)
		p.processes[i] = r.serve("projector", viaDatabase(p.proxies[i].URL(r.database)))
	}
	worker, api := r.serve("worker"), r.serve("api")
	r.apply()
	load := r.startLoad(api, 25*time.Millisecond)
	load.awaitMore(20)

	p.say("both project under load")
	killed := p.active()
	p.processes[killed].kill()
	p.requireTakeOver(killed, "one was killed")
	p.processes[killed].start()

	frozen := p.active()
	since := time.Now()
	p.processes[frozen].freeze()
	p.requireTakeOver(frozen, "one is frozen")
	load.pause(20*time.Second - time.Since(since))
	p.processes[frozen].thaw()
	load.awaitMore(20)
	p.requireOneStandsBy()

	inTransaction := p.active()
	p.freezeInTransaction(inTransaction)
	p.requireTakeOver(inTransaction, "one is frozen with the checkpoint's lock")
	p.processes[inTransaction].thaw()
	load.awaitMore(20)
	p.requireOneStandsBy()

	// What it has asked for happens, such as a commit, and it does not learn of
	// it; later it does.
	deaf := p.active()
	p.proxies[deaf].HoldAnswers()
	p.requireTakeOver(deaf, "one gets no answers from the database")
	p.proxies[deaf].Restore()
	load.awaitMore(20)
	p.requireOneStandsBy()

	r.requireRunning(p.processes[0], p.processes[1], worker, api)
	load.stop()
	o := r.awaitQuiet(load)
	load.requireNoRefusals()
	r.requireSound(o)
	r.requireAllSucceeded(o)
	r.say("%d jobs acknowledged, answers %v", load.acknowledged(), load.byStatus())
}

// A projectorPair is two projectors, each with a proxy in front of its database.
type projectorPair struct {
	*faultRig
	processes [2]*process
	proxies   [2]*testenv.Proxy
}

// What a projector's log says when it starts or ceases to be the one at work.
const (
	saysProjecting = "projecting"
	saysStandingBy = "another projector is at work; standing by"
)

// state returns which of the two the projector said last.
func (p *projectorPair) state(i int) string {
	last := ""
	for _, line := range p.processes[i].lines(time.Time{}, time.Time{}) {
		if msg := line.members["msg"]; msg == saysProjecting || msg == saysStandingBy {
			last = msg
		}
	}
	return last
}

// active waits until one projector is at work and the other stands by, and
// returns the former.
func (p *projectorPair) active() (active int) {
	p.t.Helper()
	testenv.Eventually(p.t, faultPatience, func() (bool, string) {
		states := [2]string{p.state(0), p.state(1)}
		active = 0
		if states[1] == saysProjecting {
			active = 1
		}
		return states[active] == saysProjecting && states[1-active] == saysStandingBy, fmt.Sprintf("the projectors say: %q", states)
	})
	return active
}

// requireTakeOver checks that the tables go on without the lost projector.
func (p *projectorPair) requireTakeOver(lost int, how string) {
	p.t.Helper()
	took := p.awaitProgress(takeOverWithin, how)
	p.say("%s: the tables went on after %.1f s", how, took.Seconds())
	require.Equal(p.t, saysProjecting, p.state(1-lost), "the other projector")
}

// requireOneStandsBy waits until one of the two has noticed that it is not the
// only one. Which of them goes on is of no account: one that lost its session
// while it was frozen starts anew, and may come first.
func (p *projectorPair) requireOneStandsBy() {
	p.t.Helper()
	p.active()
}

// freezeInTransaction freezes a projector just where it does most harm: with all
// rows written and the checkpoint's lock held, before the commit. The test holds
// that lock until the projector waits for it, and then lets it have it.
func (p *projectorPair) freezeInTransaction(i int) {
	p.t.Helper()
	ctx, cancel := contextFor(faultPatience)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.database)
	require.NoError(p.t, err)
	defer conn.Close(ctx)
	// A projector that waits for longer than its lock_timeout tries anew.
	testenv.Eventually(p.t, faultPatience, func() (bool, string) { return p.freezeWaiting(ctx, conn, i) })
}

func (p *projectorPair) freezeWaiting(ctx context.Context, conn *pgx.Conn, i int) (bool, string) {
	p.t.Helper()
	tx, err := conn.Begin(ctx)
	require.NoError(p.t, err)
	defer func() { require.NoError(p.t, tx.Rollback(ctx)) }()
	_, err = tx.Exec(ctx, "SELECT 1 FROM "+p.generation()+".checkpoints WHERE shard = 0 FOR UPDATE")
	require.NoError(p.t, err)
	waits := false
	for end := time.Now().Add(3 * time.Second); !waits && time.Now().Before(end); {
		require.NoError(p.t, p.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ILIKE '%checkpoints%')`).Scan(&waits))
	}
	if waits {
		p.processes[i].freeze()
	}
	return waits, "no projector waits for the checkpoint's lock"
}

// generation is the schema of the live tables.
func (p *projectorPair) generation() string {
	return p.text("SELECT name FROM ledger.active WHERE id = 1")
}
