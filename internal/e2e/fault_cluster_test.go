package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/testenv"
)

// leaveWithin is how long processes may stay with a server that hangs: their
// pings give it up after some 15 s; the rest is for a busy machine.
const leaveWithin = 45 * time.Second

// TestAClusterLosesServers keeps the stream on three NATS servers. Under load the
// one to which all processes are connected freezes, and then the one that leads
// the stream is killed, twice. Each time everything goes on with the two that are
// left, and the lost one comes back; nothing is lost.
func TestAClusterLosesServers(t *testing.T) {
	t.Parallel()
	const servers = 3
	cluster := testenv.StartNATSCluster(t, servers, natsserver.Options{SyncAlways: true})
	r := newFaultRig(t, faultSettings{
		nats: cluster.URL(), replicas: servers, attemptTimeout: time.Minute, concurrency: 4, callTime: 10 * time.Millisecond,
	})
	first := cluster.Servers[0] // it tells those who connect of the others
	projector, worker := r.serve("projector", viaNATS(first.URL())), r.serve("worker", viaNATS(first.URL()))
	api := r.serve("api", viaNATS(first.URL()))
	r.apply()
	load := r.startLoad(api, 25*time.Millisecond)
	load.awaitMore(50)

	r.awaitReplicas(servers)
	r.say("the server %s freezes, after %d acknowledged jobs", first.Name(), load.acknowledged())
	first.Freeze()
	r.requireLeft(first, load)
	first.Thaw()
	r.say("it was left; %d acknowledged jobs, answers %v", load.acknowledged(), load.byStatus())

	for range 2 {
		name := r.awaitReplicas(servers)
		r.say("the leader %s is killed, after %d acknowledged jobs", name, load.acknowledged())
		leader := cluster.Server(name)
		require.NotNil(t, leader, name)
		leader.Kill()
		load.awaitMore(50)
		took := r.awaitProgress(faultPatience, "the leader is killed")
		r.say("%d servers go on; %d acknowledged jobs, answers %v; the tables follow in %.1f s", servers-1, load.acknowledged(), load.byStatus(), took.Seconds())
		r.requireRunning(projector, worker, api)
		leader.Restart()
		load.awaitMore(50)
	}
	r.awaitReplicas(servers)
	load.stop()
	o := r.awaitQuiet(load)
	load.requireNoRefusals()
	r.requireSound(o)
	r.requireAllSucceeded(o)
	r.say("%d jobs acknowledged, answers %v", load.acknowledged(), load.byStatus())
}

// requireLeft checks that jobs come through again although a server hangs, from
// the request to the provider.
func (r *faultRig) requireLeft(frozen *testenv.NATSProcess, load *faultLoad) {
	r.t.Helper()
	began, acked, called := time.Now(), load.acknowledged(), len(r.stub.counts())
	const some = 20
	testenv.Eventually(r.t, leaveWithin, func() (bool, string) {
		acked, called := load.acknowledged()-acked, len(r.stub.counts())-called
		return acked >= some && called >= some, fmt.Sprintf(
			"%s since the server %s froze, %d jobs were acknowledged and %d calls made; expected %d", time.Since(began), frozen.Name(), acked, called, some)
	})
}

// awaitReplicas waits until each server has all of the stream, and returns the
// name of the leader.
func (r *faultRig) awaitReplicas(servers int) (leader string) {
	r.t.Helper()
	testenv.Eventually(r.t, faultPatience, func() (bool, string) {
		info, err := r.info()
		if err != nil || info.Cluster == nil || info.Cluster.Leader == "" {
			return false, fmt.Sprint("the stream has no leader: ", err)
		}
		current := 1
		for _, peer := range info.Cluster.Replicas {
			if peer.Current && !peer.Offline {
				current++
			}
		}
		leader = info.Cluster.Leader
		return current == servers, fmt.Sprintf("%d of %d servers have the stream", current, servers)
	})
	return leader
}
