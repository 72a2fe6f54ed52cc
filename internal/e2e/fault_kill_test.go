package e2e

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
		jobsPerRound = 150 // at least
	)
	nats := testenv.StartNATS(t, natsserver.Options{SyncAlways: true})
	postgres := testenv.StartPostgres(t, pgserver.Options{})
	r := newFaultRig(t, faultSettings{
		nats: nats.URL(), database: postgres.Database(t),
		attemptTimeout: "5s", concurrency: 4, callTime: 20 * time.Millisecond,
	})
	roles := r.startRoles()
	r.define()
	load := r.startLoad(20 * time.Millisecond)

	var ends []uint64 // of the stream, as each kill left it
	for range kills {
		load.awaitMore(jobsPerRound)
		load.pause(rand.N(time.Second))
		requireRunning(t, roles...)
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
			p.wait()
		}
		nats.Restart()
		ends = append(ends, r.awaitLastSeq()) // nobody appends yet
		postgres.Restart()
		roles = r.startRoles()
	}
	load.awaitMore(jobsPerRound)
	load.stop()

	o := r.awaitQuiet(load)
	load.requireNoRefusals()
	r.requireSound(o)
	r.requireUnknownsExplained(o, ends)
	t.Logf("%d jobs acknowledged, answers %v, jobs in the tables %v", load.acknowledged(), load.byStatus(), o.byState)
	require.GreaterOrEqual(t, o.byState["succeeded"]*100, len(o.jobs)*95, "jobs by state: %v", o.byState)
}

// startRoles starts each role in a process of its own and waits for the API.
func (r *faultRig) startRoles() []*faultProcess {
	r.t.Helper()
	var list []*faultProcess
	for _, role := range []string{"projector", "worker", "api"} {
		list = append(list, r.serve(role, role, "", ""))
	}
	r.awaitReady(list[len(list)-1])
	return list
}

// requireUnknownsExplained checks that each unknown attempt was claimed and not
// completed in the stream that one of the kills left behind. Those are all that
// a kill can make unknown: before the claim is stored nobody calls, and once the
// completion is stored the end is known. Provider and stub answer in a small
// part of the attempt's time, so nothing else makes an attempt unknown here.
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
	r.t.Logf("%d attempts are unknown, of %d that were claimed and open at a kill", unknown, len(explained))
	require.Equal(r.t, unknown, o.byState["unknown"], "an unknown attempt makes its job unknown, and nothing else does")
}
