package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoadFull(t *testing.T) {
	t.Parallel()
	c, err := Load("testdata/full.yaml", true)
	require.NoError(t, err)
	want := &Config{
		NATS: NATS{
			URL: "nats://a:4222,tls://b:4222", Stream: "JOBS", SubjectPrefix: "jobs",
			Creds: "testdata/secrets/ledger.creds", Monitor: "http://127.0.0.1:8222",
		},
		Database: Database{URL: "postgres://ledger@db1:26257,db2:26257/ledger?sslmode=verify-full"},
		API:      API{Listen: "0.0.0.0:80", TokensFile: "/etc/jobledger/tokens.yaml"},
		Workers:  Workers{Spool: "testdata/var/spool"},
		Kinds: map[string]Kind{
			"summarize": {
				Name: "summarize", Providers: []string{"fallback", "primary"},
				Effects: EffectsNone, Mode: ModeRace, HedgeAfter: 2 * time.Second,
				StartTimeout: time.Hour, AttemptTimeout: 90 * time.Second, HeartbeatTimeout: 15 * time.Second,
				MaxAttempts: 7, Failover: FailoverNever, Contract: "testdata/contracts/summarize.yaml",
				Backoff: Backoff{Initial: 250 * time.Millisecond, Max: 10 * time.Second, FactorMilli: 1250},
			},
			"charge": func() Kind { k := defaultKind("charge"); k.Providers = []string{"primary"}; return k }(),
		},
		Providers: map[string]Provider{
			"primary": {Name: "primary", Concurrency: 4, Spec: HTTP{
				URL: "http://127.0.0.1:9001/run?v=1", HeadersEnv: map[string]string{"Authorization": "PRIMARY_AUTH"},
				KnownFailures: []int{500, 503}, IdempotencyKey: KeyPerAttempt,
				Reconcile: Reconcile{Lookup: "http://127.0.0.1:9001/runs/{job_id}/{attempt}", Replay: true, NotFound: NotFoundFailed,
					LookupTimeout: 3 * time.Second, Backoff: ReconcileBackoff{Initial: 5 * time.Second, Max: 10 * time.Minute}},
			}},
			"fallback": {Name: "fallback", Concurrency: 16, Spec: HTTP{
				URL: "https://h/run", IdempotencyKey: KeyPerJob,
				Reconcile: Reconcile{Lookup: "https://h/{job_id}", NotFound: NotFoundUnknown,
					LookupTimeout: 10 * time.Second, Backoff: ReconcileBackoff{Initial: time.Second, Max: 5 * time.Minute}},
			}},
			"tool": {Name: "tool", Concurrency: 16, Spec: Exec{
				Command: []string{"sh", "-c", "tr a-z A-Z\ntrue\n", "", ""}, Dir: "testdata/tools", EnvPass: []string{"PATH", "HOME"},
			}},
			"own": {Name: "own", Concurrency: 16, Spec: Own{Version: "3"}},
			"gpt": {Name: "gpt", Concurrency: 3, Spec: Model{
				API: APIOpenAI, BaseURL: "http://127.0.0.1:8000/v1", Model: "qwen/qwen3:8b", APIKeyEnv: "GPT_KEY", Stream: true,
				IdempotencyKey: KeyPerAttempt, KnownFailures: []int{500, 529},
			}},
			"claude": {Name: "claude", Concurrency: 16, Spec: Model{
				API: APIAnthropic, BaseURL: "https://api.anthropic.com", Model: "claude-x", IdempotencyKey: KeyPerJob,
			}},
		},
	}
	require.Equal(t, want, c)
	require.Equal(t, "http", c.Providers["primary"].Type())
	require.Equal(t, "exec", c.Providers["tool"].Type())
	require.Equal(t, "worker", c.Providers["own"].Type())
	require.Equal(t, "openai", c.Providers["gpt"].Type())
	require.Equal(t, "anthropic", c.Providers["claude"].Type())
}

// TestDefaults pins the defaults that the documentation promises.
func TestDefaults(t *testing.T) {
	t.Parallel()
	want := &Config{
		NATS:      NATS{URL: "nats://127.0.0.1:4222", Stream: "LEDGER", SubjectPrefix: "ledger"},
		API:       API{Listen: "127.0.0.1:8080", Metrics: "127.0.0.1:9090"},
		Kinds:     map[string]Kind{},
		Providers: map[string]Provider{},
	}
	require.Equal(t, want, Default())
	for name, text := range map[string]string{
		"empty": "", "comment": "# nothing yet\n", "marker": "---\n", "byte order mark": "\uFEFF",
		"empty sections": "nats:\ndatabase:\napi: {}\nkinds:\nproviders:\n",
		"null":           "null\n",
	} {
		c, err := decode("jobledger.yaml", []byte(text))
		require.NoError(t, err, name)
		require.Equal(t, want, c, name)
	}

	c, err := decode("jobledger.yaml", []byte("providers: {p: {type: exec, command: [cat]}}\nkinds: {k: {providers: [p]}}\n"))
	require.NoError(t, err)
	require.Equal(t, Kind{
		Name: "k", Providers: []string{"p"}, Effects: EffectsExternal, Mode: ModeExclusive,
		AttemptTimeout: time.Minute, MaxAttempts: 4, Failover: FailoverVerified,
		Backoff: Backoff{Initial: time.Second, Max: time.Minute, FactorMilli: 2000},
	}, c.Kinds["k"])
}

// TestFactor shows that the factor is exact, however it is written.
func TestFactor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"1": 1000, "1.0": 1000, "1.1": 1100, "1.05": 1050, "1.005": 1005, "2.500": 2500, "10": 10000, "99.999": 99999, "100": 100000, "100.000": 100000,
	} {
		c, err := decode("jobledger.yaml", []byte(
			"providers: {p: {type: exec, command: [cat]}}\nkinds: {k: {providers: [p], backoff: {factor: "+text+"}}}\n"))
		require.NoError(t, err, text)
		require.Equal(t, want, c.Kinds["k"].Backoff.FactorMilli, text)
	}
}

func TestLoadMissing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none.yaml")
	c, err := Load(path, false)
	require.NoError(t, err)
	require.Equal(t, Default(), c)

	_, err = Load(path, true)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "--config")
}

func TestLoadUnreadable(t *testing.T) {
	t.Parallel()
	_, err := Load(t.TempDir(), false)
	require.ErrorContains(t, err, "reading the configuration: read ")

	path := filepath.Join(t.TempDir(), "big.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("#", maxFileBytes+1)), 0o600))
	_, err = Load(path, false)
	require.ErrorContains(t, err, "found more than 262144 bytes, expected a smaller file")
}

func TestLoadManyLines(t *testing.T) {
	t.Parallel()
	_, err := decode("f.yaml", []byte(strings.Repeat("\r\n", maxFileLines-1)))
	require.NoError(t, err)
	_, err = decode("f.yaml", []byte(strings.Repeat("\r\n", maxFileLines)))
	require.EqualError(t, err, "f.yaml: found 5001 lines, expected at most 5000")
}

func TestLoadNotUTF8(t *testing.T) {
	t.Parallel()
	_, err := decode("f.yaml", []byte("# é\nnats: {}\n# \xff\n"))
	require.EqualError(t, err, "f.yaml:3:1: found bytes that are not UTF-8, expected UTF-8 text")
}

func TestLoadWindowsLines(t *testing.T) {
	t.Parallel()
	c, err := decode("f.yaml", []byte("\uFEFFnats:\r\n  stream: JOBS\r\napi:\r\n  listen: ':0'\r\n  metrics: ':0'\r\n"))
	require.NoError(t, err)
	require.Equal(t, "JOBS", c.NATS.Stream)
	require.Equal(t, ":0", c.API.Listen)

	_, err = decode("f.yaml", []byte("nats:\r\n  strem: JOBS\r\n"))
	require.ErrorContains(t, err, "f.yaml:2:3: nats.strem: ")
}

func TestFaultsAreValues(t *testing.T) {
	t.Parallel()
	_, err := decode("f.yaml", []byte("nats: {stream: 1}\napi: {listen: x}\n"))
	var fault *Fault
	require.ErrorAs(t, err, &fault)
	require.Equal(t, "nats.stream", fault.Path)
	require.Equal(t, 1, fault.Line)
	require.Equal(t, 16, fault.Column)
	require.Len(t, strings.Split(err.Error(), "\n"), 2)
}

func TestFaultsAreBounded(t *testing.T) {
	t.Parallel()
	_, err := decode("f.yaml", []byte(strings.Repeat("- x\n", 10)+"\n"))
	require.Error(t, err)
	var text strings.Builder
	for i := range 80 {
		text.WriteString(strings.Repeat("x", i+1) + ": 1\n")
	}
	_, err = decode("f.yaml", []byte(text.String()))
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, maxFaultsReported+1)
	require.Equal(t, "f.yaml: and 30 more faults", lines[maxFaultsReported])
}

func TestDatabaseURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://h/db", "postgresql://u@h:5432/db", "postgres:///db?host=/run/postgresql",
		"postgres://u@a:1,b:2/db", "postgres://u@[::1]:5432/db", "postgres://u%40x@h/db",
	} {
		_, err := decode("f.yaml", []byte("database: {url: '"+url+"'}\n"))
		require.NoError(t, err, url)
	}
}

func TestDev(t *testing.T) {
	t.Parallel()
	command := []string{"/bin/jobledger", "internal-echo"}
	c := Dev(command)
	require.Equal(t, Exec{Command: command}, c.Providers["echo"].Spec)
	require.Equal(t, 16, c.Providers["echo"].Concurrency)
	require.Equal(t, []string{"echo"}, c.Kinds["echo"].Providers)
	require.Equal(t, EffectsNone, c.Kinds["echo"].Effects)
	require.Equal(t, ModeExclusive, c.Kinds["echo"].Mode)

	command[0] = "changed"
	require.Equal(t, "/bin/jobledger", c.Providers["echo"].Spec.(Exec).Command[0])
	require.Panics(t, func() { Dev(nil) })
}
