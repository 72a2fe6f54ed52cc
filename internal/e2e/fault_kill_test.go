package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/pgserver"
	"jobledger/internal/testenv"
)

// TestEverythingIsKilled kills every process at once under load, five times at
// random moments, and starts all of them again: servers and roles. Nothing that
// was acknowledged may be lost, nothing called twice, nothing stuck; and what
// nobody can know the end of is no more than what was being called at a kill.
func TestEverythingIsKilled(t *testing.T) {
	t.Parallel()
	const (
		kills        = 5
		jobsPerRound = 100 // at least
	)
	nats := testenv.StartNATS(t, natsserver.Options{SyncAlways: true})
	postgres := testenv.StartPostgres(t, pgserver.Options{})
	r := newFaultRig(t, faultSettings{
		nats: nats.URL(), database: postgres.Database(t),
		attemptTimeout: 5 * time.Second, concurrency: 4, callTime: 20 * time.Millisecond,
	})
	roles := []*process{r.serve("projector"), r.serve("worker"), r.serve("api")}
	r.apply()
	load := r.startLoad(roles[2], 20*time.Millisecond)

	var ends []uint64 // of the stream, as each kill left it
	for kill := range kills {
		load.awaitMore(jobsPerRound)
		load.pause(rand.N(time.Second))
		r.say("kill %d, after %d acknowledged jobs", kill+1, load.acknowledged())
		r.requireRunning(roles...)
		for _, i := range rand.Perm(len(roles) + 2) {
			switch i {
			case len(roles):
				nats.Kill()
			case len(roles) + 1:
				postgres.Kill()
			default:
				roles[i].signal(syscall.SIGKILL)
			}
		}
		for _, p := range roles {
			p.kill()
		}
		nats.Restart()
		ends = append(ends, r.awaitEnd()) // nobody appends yet
		postgres.Restart()
		for _, p := range roles {
			p.launch()
		}
		roles[2].awaitReady()
		r.say("everything is back")
	}
	load.awaitMore(jobsPerRound)
	load.stop()

	r.say("the load has ended")
	o := r.awaitQuiet(load)
	r.say("everything is quiet")
	load.requireNoRefusals()
	r.requireSound(o)
	r.requireUnknownsExplained(o, ends)
	r.say("%d jobs acknowledged, answers %v, jobs in the tables %v", load.acknowledged(), load.byStatus(), o.byState)
	require.GreaterOrEqual(t, o.byState["succeeded"]*100, len(o.jobs)*95, "jobs by state: %v", o.byState)
}

// requireUnknownsExplained checks that each unknown attempt was claimed and not
// completed in the stream that one of the kills left behind. Those are all that
// a kill can make unknown: before the claim is stored nobody calls, and once the
// completion is stored the end is known. The provider takes a small part of an
// attempt's time, so nothing else makes an attempt unknown here.
func (r *faultRig) requireUnknownsExplained(o *faultOutcome, ends []uint64) {
	r.t.Helper()
	explained := map[faultAttempt]string{}
	for kill, open := range r.claimedAndOpen(ends) {
		for a := range open {
			explained[a] = fmt.Sprint("open at kill ", kill+1)
		}
	}
	unknown := 0
	for a, state := range o.attempts {
		if state == "unknown" {
			unknown++
			require.NotEmpty(r.t, explained[a], "the attempt %v is unknown, but no kill explains it", a)
		}
	}
	r.say("%d attempts are unknown, of %d that were claimed and open at a kill", unknown, len(explained))
	require.Equal(r.t, unknown, o.byState["unknown"], "jobs that are unknown: those with an unknown attempt and no others")
}
