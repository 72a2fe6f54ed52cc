package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/stream"
	"jobledger/internal/testenv"
	"jobledger/internal/testenv/ledgerenv"
	"jobledger/ledger"
	"jobledger/projector"
	"jobledger/schema"
	"jobledger/workers"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const testTimeout = time.Minute

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// fakeTables are tables that say what the test wants.
type fakeTables struct {
	points    []uint64
	unknown   []projector.UnknownGroup
	kinds     []*ledger.KindRow
	providers []*ledger.ProviderRow
	err       error
}

func (f *fakeTables) Checkpoints(context.Context) ([]uint64, error) { return f.points, f.err }
func (f *fakeTables) Unknown(context.Context) ([]projector.UnknownGroup, error) {
	return f.unknown, f.err
}
func (f *fakeTables) Kinds(context.Context) ([]*ledger.KindRow, error) { return f.kinds, f.err }
func (f *fakeTables) Providers(context.Context) ([]*ledger.ProviderRow, error) {
	return f.providers, f.err
}

func someKind(name string, providers ...string) *ledger.KindRow {
	k := ledger.DefaultKind()
	k.Name, k.Providers = name, providers
	return &ledger.KindRow{Kind: k}
}

// A clinic has a healthy ledger on a NATS server of its own, whose settings tests
// spoil.
type clinic struct {
	t      *testing.T
	js     jetstream.JetStream
	tables *fakeTables
	p      Patient
}

func newClinic(t *testing.T, o natsserver.Options) *clinic {
	t.Helper()
	o.MonitorPort = testenv.FreePort(t)
	nc := testenv.Connect(t, testenv.StartNATS(t, o).URL())
	js, name, prefix := testenv.StreamOn(t, nc)
	c := &clinic{t: t, js: js, tables: &fakeTables{points: []uint64{0, 0}}}
	c.p = Patient{
		Stream: name, Prefix: prefix, Conn: nc, Monitor: fmt.Sprintf("http://127.0.0.1:%d", o.MonitorPort),
		DatabaseURL: ledgerenv.Database(t), Tables: c.tables, CatchUp: 200 * time.Millisecond,
	}
	return c
}

// find runs the checks and returns what the named one found.
func (c *clinic) find(check string) Finding {
	c.t.Helper()
	for _, f := range Examine(testContext(c.t), c.p) {
		if f.Check == check {
			return f
		}
	}
	c.t.Fatalf("there is no check %q", check)
	return Finding{}
}

func (c *clinic) requireProblem(check, text string) {
	c.t.Helper()
	f := c.find(check)
	require.Equal(c.t, Problem, f.Status, "%+v", f)
	require.Contains(c.t, f.Detail, text)
}

func TestAHealthyLedger(t *testing.T) {
	t.Parallel()
	c := newClinic(t, natsserver.Options{SyncAlways: true})
	c.tables.kinds = []*ledger.KindRow{someKind("echo", "main")}
	c.tables.providers = []*ledger.ProviderRow{{Name: "main", Type: "http", Definition: []byte(`{"url":"http://a"}`)}}
	c.p.Kinds = map[string]json.RawMessage{"echo": c.tables.kinds[0].Kind.AppendJSON(nil)}
	c.p.Providers = map[string]json.RawMessage{"main": ProviderJSON("http", []byte(`{"url": "http://a"}`))}
	c.worker("main")
	findings := Examine(testContext(t), c.p)
	require.Len(t, findings, len(checks))
	for _, f := range findings {
		require.Equal(t, OK, f.Status, "%+v", f)
		require.NotEmpty(t, f.Detail)
	}
	require.True(t, Healthy(findings))
}

// worker makes the consumer of a provider's workers, and waits for starts on it.
func (c *clinic) worker(provider string) {
	c.t.Helper()
	cons, err := c.js.CreateConsumer(testContext(c.t), c.p.Stream, jetstream.ConsumerConfig{
		Durable: workers.ConsumerName(provider), AckPolicy: jetstream.AckExplicitPolicy,
		FilterSubject: c.p.Prefix + ".attempt.start." + provider,
	})
	require.NoError(c.t, err)
	in, err := cons.Consume(func(jetstream.Msg) {})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { in.Stop(); <-in.Closed() })
	testenv.Eventually(c.t, testTimeout, func() (bool, string) {
		info, err := cons.Info(testContext(c.t))
		return err == nil && info.NumWaiting > 0, "nobody pulls"
	})
}

// Each check is shown to find what it is for.
func TestProblems(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, c *clinic){
		"no connection": func(_ *testing.T, c *clinic) {
			c.p.Conn, c.p.ConnErr = nil, context.DeadlineExceeded
			c.requireProblem("nats", "deadline")
			for _, check := range []string{"nats version", "stream settings", "stream fill", "clock of nats", "projector", "workers"} {
				require.Equal(c.t, Unchecked, c.find(check).Status, check)
			}
		},
		"no JetStream level": func(t *testing.T, _ *clinic) {
			status, detail := judgeVersion("2.10.0", 1)
			require.Equal(t, Problem, status, detail)
		},
		"syncs now and then": func(_ *testing.T, c *clinic) {
			c.requireProblem("nats sync", "sync_interval to always")
			c.p.Monitor = "http://127.0.0.1:1"
			c.requireProblem("nats sync", "refused")
			c.p.Monitor = ""
			require.Equal(c.t, Unchecked, c.find("nats sync").Status)
		},
		"a stream of other settings": func(t *testing.T, c *clinic) {
			config := stream.Config(c.p.Stream, c.p.Prefix, 1, 0)
			config.MaxAge = time.Hour
			_, err := c.js.UpdateStream(testContext(t), config)
			require.NoError(t, err)
			c.requireProblem("stream settings", "max_age: found 1h0m0s")
			c.p.Stream = "ABSENT"
			c.requireProblem("stream settings", "jobledger init")
		},
		"a full stream": func(t *testing.T, c *clinic) {
			c.fill(64<<10, 60<<10)
			c.requireProblem("stream fill", "raise max_bytes")
		},
		"clocks": func(t *testing.T, c *clinic) {
			c.p.MaxSkew = -time.Hour // nobody's clock is that good
			c.requireProblem("clock of nats", "synchronise")
			c.requireProblem("clock of the database", "synchronise")
			for _, skew := range []time.Duration{3 * time.Second, -3 * time.Second} {
				p := Patient{MaxSkew: DefaultMaxSkew}
				status, _ := p.judgeClock("it", skew, time.Second)
				require.Equal(t, Problem, status)
				status, _ = p.judgeClock("it", skew, 4*time.Second)
				require.Equal(t, OK, status, "the question took too long to be sure")
			}
		},
		"no database": func(t *testing.T, c *clinic) {
			c.p.DatabaseURL, c.p.Tables, c.p.TablesErr = "postgres://127.0.0.1:1/x", nil, context.DeadlineExceeded
			c.requireProblem("database", "connect")
			c.requireProblem("tables", "deadline")
			for _, check := range []string{"schema", "database order", "clock of the database", "kinds", "providers", "workers", "projector", "unknown attempts"} {
				require.Equal(t, Unchecked, c.find(check).Status, check)
			}
			c.p.DatabaseURL = ""
			require.Equal(t, Unchecked, c.find("database").Status)
		},
		"an old database": func(t *testing.T, _ *clinic) {
			for _, s := range []schema.Server{{Number: 140000, Encoding: "UTF8"}, {Number: 160000, Encoding: "LATIN1"}} {
				status, detail := judgeDatabase(s)
				require.Equal(t, Problem, status, detail)
			}
			status, _ := judgeDatabase(schema.Server{Cockroach: true, Number: 130000, Encoding: "UTF8"})
			require.Equal(t, OK, status)
		},
		"no schema": func(t *testing.T, c *clinic) {
			c.p.DatabaseURL = testenv.Database(t)
			c.requireProblem("schema", "jobledger migrate")
		},
		"a projector that stands still": func(t *testing.T, c *clinic) {
			_, err := c.js.Publish(testContext(t), c.p.Prefix+".job.request", []byte("{}"))
			require.NoError(t, err)
			c.requireProblem("projector", "stand still at entry 0")
			c.tables.err = context.DeadlineExceeded
			c.requireProblem("projector", "cannot be read")
		},
		"nobody works": func(t *testing.T, c *clinic) {
			c.tables.kinds = []*ledger.KindRow{someKind("echo", "main", "spare"), someKind("other", "spare")}
			c.worker("main")
			c.requireProblem("workers", "spare (of echo, other)")
			require.NotContains(t, c.find("workers").Detail, "main")
		},
		"unknown for long": func(_ *testing.T, c *clinic) {
			now := time.Now()
			c.tables.unknown = []projector.UnknownGroup{
				{Provider: "a", Kind: "k", Attempts: 600, Since: now.Add(-time.Minute)}, {Provider: "b", Kind: "k", Attempts: 1, Since: now.Add(-time.Hour)},
			}
			c.requireProblem("unknown attempts", "601: 1 of kind k on provider b, the oldest for 1h0m")
			require.Contains(c.t, c.find("unknown attempts").Detail, "; 600 of kind k on provider a, the oldest for 1m")
			c.p.UnknownAge = 2 * time.Hour
			require.Equal(c.t, OK, c.find("unknown attempts").Status)
			for i := range 10 {
				c.tables.unknown = append(c.tables.unknown, projector.UnknownGroup{Provider: fmt.Sprint("p", i), Kind: "k", Attempts: 1, Since: now})
			}
			require.Contains(c.t, c.find("unknown attempts").Detail, "; and 7 more of kinds and providers")
			c.tables.err = context.DeadlineExceeded
			c.requireProblem("unknown attempts", "cannot be read")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spoil(t, newClinic(t, natsserver.Options{}))
		})
	}
}

// fill gives the stream a limit and fills it to about so many bytes.
func (c *clinic) fill(limit, bytes int) {
	c.t.Helper()
	_, err := c.js.UpdateStream(testContext(c.t), stream.Config(c.p.Stream, c.p.Prefix, 1, int64(limit)))
	require.NoError(c.t, err)
	_, err = c.js.Publish(testContext(c.t), c.p.Prefix+".job.request", make([]byte, bytes))
	require.NoError(c.t, err)
}

func TestLimitsOfTheServer(t *testing.T) {
	t.Parallel()
	c := newClinic(t, natsserver.Options{MaxStoreBytes: 1 << 20, MaxPayload: 512 << 10})
	c.requireProblem("nats", "max_payload 1048576")
	require.Equal(t, OK, c.find("nats storage").Status)
	for range 2 {
		_, err := c.js.Publish(testContext(t), c.p.Prefix+".job.request", make([]byte, 450<<10))
		require.NoError(t, err)
	}
	c.requireProblem("nats storage", "max_file_store")
	require.Equal(t, OK, c.find("stream fill").Status, "it has no limit of its own")
}

func TestDefinitionsThatDiffer(t *testing.T) {
	t.Parallel()
	object := func(text string) json.RawMessage { return json.RawMessage(text) }
	ledgers := map[string]json.RawMessage{"a": object(`{"x":1,"y":{"z":[1,2]}}`), "b": object(`{"x":1}`), "elsewhere": object(`{}`)}
	for text, configured := range map[string]map[string]json.RawMessage{
		"c is not in the ledger":                          {"c": object(`{}`)},
		"x is 1 in the ledger and 2 in the configuration": {"b": object(`{"x":2}`)},
		"w is nothing in the ledger and 3":                {"b": object(`{"x":1,"w":3}`)},
		"x is 1 in the ledger and nothing":                {"b": object(`{}`)},
		"y.z is [1,2] in the ledger and [2,1]":            {"a": object(`{"x":1, "y":{"z":[2,1]}}`)},
	} {
		status, detail := judgeDefinitions(configured, ledgers)
		require.Equal(t, Problem, status)
		require.Contains(t, detail, text)
		require.Contains(t, detail, "jobledger kind apply")
	}
	status, detail := judgeDefinitions(map[string]json.RawMessage{"a": object(`{"y": {"z": [1, 2]}, "x": 1}`), "b": ledgers["b"]}, ledgers)
	require.Equal(t, OK, status)
	require.Equal(t, "2 as configured; only in the ledger: elsewhere", detail)
	status, _ = judgeDefinitions(nil, ledgers)
	require.Equal(t, Unchecked, status)
}

// A database of another collation sorts otherwise than the ledger.
func TestDatabaseOfAnotherCollation(t *testing.T) {
	t.Parallel()
	base, err := url.Parse(testenv.Database(t))
	require.NoError(t, err)
	db, err := pgx.Connect(testContext(t), base.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	name := base.Path[1:] + "_icu"
	_, err = db.Exec(testContext(t), "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US'")
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = db.Exec(context.Background(), "DROP DATABASE "+name) })
	base.Path = "/" + name
	c := newClinic(t, natsserver.Options{})
	require.Equal(t, OK, c.find("database order").Status)
	c.p.DatabaseURL = base.String()
	c.requireProblem("database order", "C collation")
}

// The real tables are read like the tests' own.
func TestRealTables(t *testing.T) {
	t.Parallel()
	c := newClinic(t, natsserver.Options{})
	pool, err := projector.NewPool(testContext(t), c.p.DatabaseURL, 1)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, projector.Initialize(testContext(t), pool, projector.Meta{Stream: c.p.Stream, Prefix: c.p.Prefix, Shards: 2}))
	c.p.Tables = projector.NewQueries(pool)
	for _, check := range []string{"tables", "projector", "unknown attempts", "schema"} {
		f := c.find(check)
		require.Equal(t, OK, f.Status, "%+v", f)
	}
}
