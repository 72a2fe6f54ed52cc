package e2e_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/pgserver"
	"jobledger/internal/testenv"
)

// stormEnv says how many rounds TestStorm takes; without it the test is skipped.
const stormEnv = "JOBLEDGER_STORM"

// TestStorm is for hunting by hand: round after round, some of the servers and
// processes are killed, frozen, held or cut at random, several at a time. It
// promises no more than the other fault tests do and looks further:
//
//	JOBLEDGER_STORM=50 go test -run TestStorm -timeout 1h -v ./internal/e2e
func TestStorm(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv(stormEnv))
	if err != nil || rounds < 1 {
		t.Skipf("%s is %q; expected a number of rounds, of some 5 s each", stormEnv, os.Getenv(stormEnv))
	}
	s := newStorm(t)
	load := s.startLoad(s.processes[0], 10*time.Millisecond)
	for round := range rounds {
		load.awaitMore(10)
		load.pause(rand.N(time.Second))
		s.requireRunning(s.processes...)
		faults := s.breakSome()
		load.pause(rand.N(7 * time.Second))
		s.repair()
		s.say("round %d of %d: %s; %d acknowledged jobs", round+1, rounds, cmp.Or(strings.Join(faults, ", "), "nothing"), load.acknowledged())
	}
	load.awaitMore(10)
	load.stop()
	o := s.awaitQuiet(load)
	load.requireNoRefusals()
	s.say("%d jobs acknowledged, answers %v, jobs in the tables %v", load.acknowledged(), load.byStatus(), o.byState)
	s.requireSound(o)
}

// A storm is a rig with two processes of each role but the API; one of the two,
// and the API, reach the servers by proxies.
type storm struct {
	*faultRig
	nats      *testenv.NATSProcess
	postgres  *testenv.Postgres
	proxies   map[string]*testenv.Proxy
	processes []*process // the first is the API
	// repairs undo what is broken now.
	repairs []func()
}

func newStorm(t *testing.T) *storm {
	t.Helper()
	s := &storm{nats: testenv.StartNATS(t, natsserver.Options{SyncAlways: true}), postgres: testenv.StartPostgres(t, pgserver.Options{})}
	s.faultRig = newFaultRig(t, faultSettings{
		nats: s.nats.URL(), database: s.postgres.Database(t),
		attemptTimeout: 3 * time.Second, concurrency: 4, callTime: 20 * time.Millisecond,
	})
	natsProxy, databaseProxy := testenv.NewProxy(t, s.nats.URL()), testenv.NewProxy(t, s.database)
	s.proxies = map[string]*testenv.Proxy{"NATS": natsProxy, "database": databaseProxy}
	via := []serveOption{viaNATS(natsProxy.URL(s.nats.URL())), viaDatabase(databaseProxy.URL(s.database))}
	projector := s.serve("projector") // the API is ready only with one
	s.processes = []*process{s.serve("api", via...), projector, s.serve("worker"), s.serve("projector", via...), s.serve("worker", via...)}
	s.apply()
	return s
}

// breakSome breaks about a third of what can be broken, and says what.
func (s *storm) breakSome() (faults []string) {
	s.t.Helper()
	happens := func(oneIn int) bool { return rand.N(oneIn) == 0 }
	broke := func(repair func(), format string, args ...any) {
		faults = append(faults, fmt.Sprintf(format, args...))
		s.repairs = append(s.repairs, repair)
	}
	for name, proxy := range s.proxies {
		if happens(3) {
			s.breakProxy(name, proxy, broke)
		}
	}
	if happens(4) {
		if happens(2) {
			s.nats.Kill()
			broke(s.nats.Restart, "NATS is killed")
		} else {
			s.nats.Freeze()
			broke(s.nats.Thaw, "NATS is frozen")
		}
	}
	if happens(6) {
		s.postgres.Kill()
		broke(s.postgres.Restart, "PostgreSQL is killed")
	}
	for i, p := range s.processes {
		switch {
		case !happens(3):
		case happens(2):
			p.kill()
			broke(p.launch, "%s %d is killed", p.roles, i)
		default:
			p.freeze()
			broke(p.thaw, "%s %d is frozen", p.roles, i)
		}
	}
	return faults
}

func (s *storm) breakProxy(name string, proxy *testenv.Proxy, broke func(repair func(), format string, args ...any)) {
	s.t.Helper()
	restore := func() {
		if rand.N(2) == 0 {
			proxy.Drop() // what is held back is lost
		}
		proxy.Restore()
	}
	switch rand.N(3) {
	case 0:
		proxy.Cut()
		broke(restore, "%s is cut off", name)
	case 1:
		proxy.Hold()
		broke(restore, "%s is held", name)
	default:
		proxy.HoldAnswers()
		broke(restore, "answers of %s are held", name)
	}
}

// repair undoes everything: the servers first, since a process that starts needs
// them.
func (s *storm) repair() {
	s.t.Helper()
	for _, repair := range s.repairs {
		repair()
	}
	s.repairs = nil
	for _, p := range s.processes {
		require.False(s.t, p.frozen, p.roles)
	}
}
