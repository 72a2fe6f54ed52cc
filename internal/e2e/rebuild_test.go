package e2e_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// switchedWithin is how long the tables may stand still after a switch: a second
// or two, and the rest for a busy machine.
const switchedWithin = 15 * time.Second

// TestRebuildWhileEverybodyWorks switches the tables under producers, readers
// and two projectors.
func TestRebuildWhileEverybodyWorks(t *testing.T) {
	t.Parallel()
	r := newRebuildRig(t, 800, 20*time.Millisecond)
	pair := &projectorPair{faultRig: r.faultRig, processes: [2]*process{r.projector, r.serve("projector")}}
	for range 4 {
		r.load.awaitMore(20)
		from := r.live()
		out := r.run("rebuild").is(t, 0)
		require.NotEqual(t, from, r.live())
		require.Contains(t, out.stdout, r.live()+" is in use now, "+from+" stays until the next rebuild")
		took := r.awaitProgress(switchedWithin, "the tables were switched")
		r.say("%s; at the stream's end %.2f s later", strings.TrimSpace(out.stdout), took.Seconds())
	}
	r.load.awaitMore(20)
	pair.requireOneStandsBy()
	projecting := ""
	for _, line := range pair.processes[pair.active()].lines(time.Time{}, time.Time{}) {
		if line.members["msg"] == saysProjecting {
			projecting = line.members["generation"]
		}
	}
	require.Equal(t, r.live(), projecting, "what the projector at work says that it writes")
	r.finish()
}

// TestRebuildsAreKilled kills fifty rebuilds at random moments. What they leave
// behind disturbs nobody, and the next one that is let through ends right.
func TestRebuildsAreKilled(t *testing.T) {
	t.Parallel()
	const kills = 50
	r := newRebuildRig(t, 800, 100*time.Millisecond)
	began := time.Now()
	r.rebuild()
	took := time.Since(began)
	killed, ended := 0, 0
	for killed < kills {
		require.Less(t, ended, kills, "most rebuilds must not be over before they are killed")
		p := r.rebuilding(r.database)
		select {
		case <-p.done:
			require.Contains(t, []int{0, 4}, p.cmd.ProcessState.ExitCode(), p.log.String())
			ended++
		case <-time.After(rand.N(took + took/4)):
			p.kill()
			killed++
		}
	}
	r.say("%d rebuilds were killed, %d ended before", killed, ended)
	r.rebuild()
	r.load.awaitMore(10)
	r.finish()
}

// TestRebuildIsKilledAroundEachCommit kills a rebuild before its first commit,
// then one after it, and so on until one has no more commits to be killed at.
func TestRebuildIsKilledAroundEachCommit(t *testing.T) {
	t.Parallel()
	r := newRebuildRig(t, 100, 500*time.Millisecond)
	s := newTurnstile(t, r.database)
	for _, side := range []side{before, after} {
		for n := 1; ; n++ {
			c, stopped := r.killAt(s, side, func(c commit) bool { return c.n == n })
			if !stopped {
				r.say("killed %s each of %d commits", side, n-1)
				require.Greater(t, n, 8, "the clearing, the batches and the switch commit")
				break
			}
			require.Less(t, n, 200, "%s: a rebuild does not end", c)
		}
	}
	r.rebuild()
	r.finish()
}

// TestRebuildIsKilledAroundTheSwitch: before it the old tables stay, after it
// the new ones are in use, and nobody notices either.
func TestRebuildIsKilledAroundTheSwitch(t *testing.T) {
	t.Parallel()
	r := newRebuildRig(t, 200, 50*time.Millisecond)
	s := newTurnstile(t, r.database)
	for _, side := range []side{before, after, before, after, after} {
		from := r.live()
		c, stopped := r.killAt(s, side, commit.isSwitch)
		require.True(t, stopped, "no switch was seen")
		require.Equal(t, side == after, r.live() != from, "killed %s the %s: %s is in use after %s", side, c, r.live(), from)
		r.load.awaitMore(5)
		r.awaitProgress(switchedWithin, "a rebuild was killed "+string(side)+" its switch")
	}
	r.rebuild()
	r.finish()
}

// killAt runs a rebuild until it comes to a commit, and kills it there. stopped
// is false if it ended, as it should, without coming to one.
func (r *rebuildRig) killAt(s *turnstile, side side, at func(commit) bool) (c commit, stopped bool) {
	r.t.Helper()
	for {
		stop := s.set(side, at)
		p := r.rebuilding(s.url(r.database))
		select {
		case c = <-stop.reached:
			p.kill()
			s.open(false)
			return c, true
		case <-p.done:
			s.open(false)
		case <-time.After(faultPatience):
			require.FailNow(r.t, "the rebuild does not go on", p.log.String())
		}
		if code := p.cmd.ProcessState.ExitCode(); code != 4 { // 4: the lock of the one before is not free yet
			require.Zero(r.t, code, p.log.String())
			return c, false
		}
	}
}

// TestTwoRebuilds: the second is refused and says why, and does the first no
// harm.
func TestTwoRebuilds(t *testing.T) {
	t.Parallel()
	r := newRebuildRig(t, 200, 100*time.Millisecond)
	s := newTurnstile(t, r.database)
	for _, at := range []func(commit) bool{
		func(c commit) bool { return c.n == 1 },
		func(c commit) bool { return strings.Contains(c.what, "checkpoints SET seq") },
		commit.isSwitch,
	} {
		from := r.live()
		stop := s.set(before, at)
		first := r.rebuilding(s.url(r.database))
		select {
		case c := <-stop.reached:
			r.say("the first waits before its %s", c)
		case <-time.After(faultPatience):
			require.FailNow(t, "the first rebuild does not come to its commit", first.log.String())
		}
		out := r.run("rebuild").is(t, 4)
		require.Contains(t, out.stderr, "another rebuild is at work on these tables; wait for it, or stop it")
		s.open(true)
		select {
		case <-first.done:
		case <-time.After(faultPatience):
			require.FailNow(t, "the first rebuild does not end", first.log.String())
		}
		require.Zero(t, first.cmd.ProcessState.ExitCode(), first.log.String())
		require.NotEqual(t, from, r.live())
	}
	r.finish()
}
