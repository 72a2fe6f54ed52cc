package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/testenv"
)

// TestAClusterLosesItsLeader keeps the stream on three NATS servers and kills,
// under load, the one that leads it, twice: nothing is lost, everything goes on
// with the two that are left, and the killed one comes back.
func TestAClusterLosesItsLeader(t *testing.T) {
	t.Parallel()
	const servers = 3
	cluster := testenv.StartNATSCluster(t, servers, natsserver.Options{SyncAlways: true})
	r := newFaultRig(t, faultSettings{
		nats: cluster.URL(), replicas: servers, attemptTimeout: time.Minute, concurrency: 4, callTime: 10 * time.Millisecond,
	})
	projector, worker, api := r.serve("projector"), r.serve("worker"), r.serve("api")
	r.apply()
	load := r.startLoad(api, 25*time.Millisecond)
	load.awaitMore(50)

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
