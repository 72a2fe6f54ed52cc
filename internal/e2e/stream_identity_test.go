package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/stream"
	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// An identityRig is a ledger whose stream a test exchanges or damages, on a NATS
// server of the test's own. Unless a test starts workers its jobs stay as they
// are.
type identityRig struct {
	*world
	t      *testing.T
	server *testenv.NATSProcess
	store  string // the server's directory
	backup string // a copy of it
	serve  *process
}

// identityJobs is how many jobs there are at the time of the backup, and how
// many more when the stream is spoilt.
const identityJobs = 10

func newIdentityRig(t *testing.T) *identityRig {
	t.Helper()
	return newIdentityRigWith(t, &stub{name: "main", url: "http://127.0.0.1:9/run"})
}

func newIdentityRigWith(t *testing.T, provider *stub) *identityRig {
	t.Helper()
	r := &identityRig{t: t, store: filepath.Join(t.TempDir(), "store"), backup: filepath.Join(t.TempDir(), "backup")}
	r.server = testenv.StartNATS(t, natsserver.Options{Dir: r.store, SyncAlways: true})
	r.world = newWorld(t, setup{yaml: oneKind("", provider), nats: r.server.URL()})
	r.serve = r.world.serve("api,projector")
	r.apply()
	r.request("early", identityJobs)
	r.caughtUp()
	r.serve.stop()
	r.offline(func() { require.NoError(t, os.CopyFS(r.backup, os.DirFS(r.store))) })
	r.serve.start()
	r.request("late", identityJobs)
	r.eventually(2*identityJobs, "SELECT count(*) FROM ledger.jobs")
	r.caughtUp()
	testenv.Eventually(t, patience, func() (bool, string) { // the starts move the end, too
		done, end := r.number("SELECT min(effects_seq) FROM ledger.checkpoints"), int(r.streamEnd())
		return done == end, fmt.Sprintf("effects are done up to %d of %d", done, end)
	})
	return r
}

// request appends requests by plain publishing, as producers do who do not know
// what has happened.
func (r *identityRig) request(key string, n int) {
	r.t.Helper()
	for i := range n {
		req := ledger.Request{Owner: "acme", Key: fmt.Sprint(key, " ", i), Kind: "pay", Input: fmt.Appendf(nil, `{"for":"%s-%d"}`, key, i)}
		_, err := r.js.Publish(r.ctx(), r.prefix+".job.request", req.Message().Data)
		require.NoError(r.t, err)
	}
}

// recreate replaces the stream by a new one of its name with the entries that
// change returns, for each of before and its sequence.
func (r *identityRig) recreate(change func(seq uint64, data []byte) []byte) {
	r.t.Helper()
	s, err := r.js.Stream(r.ctx(), r.stream)
	require.NoError(r.t, err)
	var list []*nats.Msg
	for seq := uint64(1); seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(r.ctx(), seq)
		require.NoError(r.t, err)
		list = append(list, &nats.Msg{Subject: m.Subject, Data: change(seq, m.Data)})
	}
	require.NoError(r.t, r.js.DeleteStream(r.ctx(), r.stream))
	_, err = r.js.CreateStream(r.ctx(), stream.Config(r.stream, r.prefix, 1, 0))
	require.NoError(r.t, err)
	for _, m := range list {
		_, err := r.js.PublishMsg(r.ctx(), m, jetstream.WithRetryAttempts(1))
		require.NoError(r.t, err)
	}
}

// offline stops the NATS server while do changes its files.
func (r *identityRig) offline(do func()) {
	r.t.Helper()
	r.server.Stop()
	do()
	r.server.Restart()
	testenv.Eventually(r.t, patience, func() (bool, string) {
		return r.js.Conn().IsConnected(), "the test is not connected again"
	})
}

// restore puts the backup in the place of the server's files.
func (r *identityRig) restore() {
	r.t.Helper()
	r.offline(func() {
		require.NoError(r.t, os.RemoveAll(r.store))
		require.NoError(r.t, os.CopyFS(r.store, os.DirFS(r.backup)))
	})
}

// damage changes a byte of an entry on the server's disk.
func (r *identityRig) damage(text string) {
	r.t.Helper()
	r.offline(func() {
		blocks, err := filepath.Glob(filepath.Join(r.store, "jetstream", "*", "streams", r.stream, "msgs", "*.blk"))
		require.NoError(r.t, err)
		require.NotEmpty(r.t, blocks)
		changed := 0
		for _, path := range blocks {
			data, err := os.ReadFile(path)
			require.NoError(r.t, err)
			if at := bytes.Index(data, []byte(text)); at >= 0 {
				data[at] ^= 1
				changed++
				require.NoError(r.t, os.WriteFile(path, data, 0o600))
			}
		}
		require.Equal(r.t, 1, changed, "blocks of the stream that hold %q", text)
	})
}

// readyz asks whether the process is ready.
func (p *process) readyz() (status int, body string) {
	resp, err := probe.Get(p.url + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// whole is all that the tables hold, as text.
func (r *identityRig) whole() string {
	r.t.Helper()
	return r.text(`SELECT concat_ws(E'\n', (SELECT string_agg(j::text, E'\n' ORDER BY j.id) FROM ledger.jobs AS j),
		(SELECT string_agg(a::text, E'\n' ORDER BY a.job_id, a.number) FROM ledger.attempts AS a),
		(SELECT string_agg(concat_ws(' ', c.shard, c.seq, c.effects_seq), E'\n' ORDER BY c.shard) FROM ledger.checkpoints AS c))`)
}

// TestTheWrongStreamStopsEverything: the process stays, says that it is not
// ready, what was found and what to do, and writes nothing; verify and rebuild
// say so too. Where the stream is whole a rebuild takes it when it is told to.
func TestTheWrongStreamStopsEverything(t *testing.T) {
	t.Parallel()
	const accept = "jobledger rebuild --accept-stream"
	same := func(_ uint64, data []byte) []byte { return data }
	for name, c := range map[string]struct {
		spoil  func(r *identityRig)
		atWork bool // the processes run while that happens
		says   string
		advice string
		jobs   int // once the stream was accepted
	}{
		"another stream under the same name": {func(r *identityRig) {
			r.recreate(same)
			r.request("more", 1)
		}, false, "replaced or changed", accept, 2*identityJobs + 1},
		"another stream, under the projector at work": {func(r *identityRig) { r.recreate(same) }, true,
			"replaced or changed", accept, 2 * identityJobs},
		"a checkpoint beyond the end": {func(r *identityRig) { r.restore() }, false,
			"restored from an older backup, or created again", accept, identityJobs},
		"a checkpoint beyond the end, under the projector at work": {func(r *identityRig) { r.restore() }, true,
			"restored from an older backup, or created again", accept, identityJobs},
		"an older backup onto which producers appended": {func(r *identityRig) {
			r.restore()
			r.request("later", 3*identityJobs)
		}, false, "restored from an older backup and appended to since", accept, 4 * identityJobs},
		"a changed entry": {func(r *identityRig) {
			end := r.streamEnd()
			r.recreate(func(seq uint64, data []byte) []byte {
				if seq == end-2 {
					return bytes.Replace(data, []byte("late"), []byte("lAte"), 1)
				}
				return data
			})
		}, false, "replaced or changed", accept, 2 * identityJobs},
		"a hole": {func(r *identityRig) {
			r.request("behind", 3)
			r.damage("behind-1")
		}, false, "are gone", "restore the stream from a backup that has what is missing", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newIdentityRig(t)
			before := r.whole()
			if !c.atWork {
				r.serve.stop()
			}
			c.spoil(r)
			if !c.atWork {
				r.serve.launch()
			}
			testenv.Eventually(t, patience, func() (bool, string) {
				status, text := r.serve.readyz()
				ok := status == http.StatusServiceUnavailable && bytes.Contains([]byte(text), []byte(c.says)) &&
					bytes.Contains([]byte(text), []byte(c.advice)) && bytes.Contains([]byte(text), []byte("docs/runbook.md"))
				return ok, fmt.Sprintf("/readyz says %d %s", status, text)
			})
			testenv.Eventually(t, patience, func() (bool, string) { // /readyz may be first to know
				return strings.Contains(r.serve.log.String(), "the projector has stopped for good"), "the log does not say so"
			})
			if c.jobs > 0 {
				require.Equal(t, before, r.whole(), "the tables are as they were")
			}
			require.Contains(t, r.run("rebuild").is(t, 4).stderr, c.advice)
			verify := r.run("verify")
			r.serve.kill() // asked to stop, it would end with status 1: it has not done what it is for
			if c.jobs == 0 {
				verify.is(t, 0) // what is in the tables comes before the hole
				require.Contains(t, r.run("rebuild", "--accept-stream").is(t, 4).stderr, "are gone")
				return
			}
			require.NotZero(t, verify.code)
			require.Contains(t, verify.stderr, "the stream does not fit the tables")
			r.run("rebuild", "--accept-stream").is(t, 0)
			r.serve.start()
			require.Equal(t, c.jobs, r.number("SELECT count(*) FROM ledger.jobs"))
			r.verify()
		})
	}
}

// TestALostStreamIsNotMadeAnew: a process that finds no stream does not start,
// init does not help out, and one at work is not ready.
func TestALostStreamIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	r := newIdentityRig(t)
	require.NoError(t, r.js.DeleteStream(r.ctx(), r.stream))
	testenv.Eventually(t, patience, func() (bool, string) {
		status, text := r.serve.readyz()
		return status == http.StatusServiceUnavailable && bytes.Contains([]byte(text), []byte("restore it from a backup")), text
	})
	r.serve.kill()
	require.Contains(t, r.run("serve", "--roles", "projector").is(t, 1).stderr, "restore it from a backup")
	require.Contains(t, r.run("init").is(t, 4).stderr, "holds the tables of the ledger "+r.stream)
	require.Contains(t, r.run("rebuild").is(t, 1).stderr, "restore it from a backup")
	_, err := r.js.Stream(r.ctx(), r.stream)
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
	r.restore()
	r.run("rebuild", "--accept-stream").is(t, 0)
	r.serve.start()
	r.verify()
}

// TestALostDatabase makes tables anew from the stream. The old ones were another
// database's.
func TestALostDatabase(t *testing.T) {
	t.Parallel()
	for name, rebuild := range map[string]bool{"by a rebuild": true, "by the projector alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newIdentityRig(t)
			r.serve.stop()
			starts := r.streamEnd()
			_, err := r.pool.Exec(r.ctx(), "DROP SCHEMA ledger, ledger_a, ledger_b CASCADE")
			require.NoError(t, err)
			require.Contains(t, r.run("init").is(t, 4).stderr, "use --tables-only")
			require.Contains(t, r.run("init", "--tables-only", "--shards", "3").is(t, 0).stdout, "run jobledger rebuild")
			if rebuild {
				r.run("rebuild").is(t, 0)
			}
			r.serve.start()
			r.verify()
			require.Equal(t, 2*identityJobs, r.number("SELECT count(*) FROM ledger.jobs"))
			require.Equal(t, starts, r.streamEnd(), "no start was sent again")
		})
	}
}

// callsOfBefore lists what providers were called for after a backup of the stream
// was made; it is the query of docs/runbook.md.
const callsOfBefore = `SELECT o.job_id, o.number, o.provider, o.state AS was, n.state AS is
        FROM ledger_a.attempts AS o LEFT JOIN ledger_b.attempts AS n ON n.job_id = o.job_id AND n.number = o.number
        WHERE o.started_at IS NOT NULL AND (n.started_at IS NULL OR n.state <> o.state)`

// TestARestoredStreamRunsNothingTwice goes by the runbook: the jobs ran after the
// backup was made, which knows only of their requests.
func TestARestoredStreamRunsNothingTwice(t *testing.T) {
	t.Parallel()
	main := newStub(t, "main")
	r := newIdentityRigWith(t, main)
	r.attach(main)
	worker := r.world.serve("worker")
	r.eventually(2*identityJobs, "SELECT count(*) FROM ledger.jobs WHERE state = 'succeeded'")
	worker.stop()
	r.serve.stop()
	r.restore()
	require.Equal(t, 4, r.run("rebuild").code)
	r.run("rebuild", "--accept-stream").is(t, 0)
	r.serve.start()

	text, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	require.Contains(t, string(text), callsOfBefore, "docs/runbook.md")
	rows, err := r.pool.Query(r.ctx(), callsOfBefore)
	require.NoError(t, err)
	var job, provider, was string
	var number int
	var is *string
	lost := 0
	_, err = pgx.ForEachRow(rows, []any{&job, &number, &provider, &was, &is}, func() error {
		require.Equal(t, "succeeded", was)
		if is == nil {
			lost++
			return nil
		}
		require.Equal(t, "starting", *is)
		r.run("attempt", "resolve", job, fmt.Sprint(number), "--as", "cancelled", "--reason", "called before the stream was restored").is(t, 0)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, identityJobs, lost, "jobs whose requests are lost")
	r.world.serve("worker")
	r.world.publish("job.request", body{"owner": "acme", "key": "new", "kind": "pay", "input": body{"act": "answer"}})
	r.eventually(1, "SELECT count(*) FROM ledger.jobs WHERE state = 'succeeded'")
	require.Equal(t, identityJobs, r.number("SELECT count(*) FROM ledger.jobs WHERE state = 'waiting' AND state_reason = 'held'"))
	require.Equal(t, 2*identityJobs+1, main.count(""), "calls")
	r.verify()
}
