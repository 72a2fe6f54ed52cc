package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"jobledger/internal/natsserver"
	"jobledger/internal/testenv"
	"jobledger/ledger"
)

func openSpool(t testing.TB, o SpoolOptions) *Spool {
	t.Helper()
	s, err := OpenSpool(o)
	require.NoError(t, err)
	return s
}

// spoolFor returns the options of a spool for the rig's ledger.
func (r *rig) spoolFor() SpoolOptions {
	return SpoolOptions{Dir: filepath.Join(r.t.TempDir(), "spool"), Stream: r.stream, SubjectPrefix: r.prefix}
}

func someCompletion(key string) *ledger.Completion {
	return &ledger.Completion{
		Job: ledger.JobID("acme", key), Attempt: 1, JobVersion: 1, Provider: testProvider,
		Claim: strings.Repeat("c", 32), Outcome: ledger.OutcomeSucceeded, Result: []byte(`{"text":"a\nb"}`),
	}
}

// files returns the names in a spool's folder that end so.
func files(t testing.TB, dir, suffix string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	require.NoError(t, err)
	return list
}

func TestSpoolKeepsWhatItWasGiven(t *testing.T) {
	t.Parallel()
	o := SpoolOptions{Dir: filepath.Join(t.TempDir(), "a", "spool"), Stream: "S", SubjectPrefix: "p"}
	s := openSpool(t, o)
	var kept []ledger.Message
	for i := range 10 {
		m := someCompletion(fmt.Sprint(i)).Message()
		kept = append(kept, m)
		_, err := s.keep(m)
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "x"+spoolSuffix+spoolTemp), []byte("half"), 0o600))

	s = openSpool(t, o)
	require.Empty(t, files(t, o.Dir, spoolTemp))
	require.Equal(t, 10, s.Len())
	names := s.takeLeft()
	require.Empty(t, s.takeLeft())
	for i, name := range names {
		m, err := s.read(name)
		require.NoError(t, err)
		require.Equal(t, kept[i], m, "in the order of their coming")
		info, err := os.Stat(filepath.Join(o.Dir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		require.NoError(t, s.drop(name))
		require.NoError(t, s.drop(name), "it may be gone")
	}
	require.Zero(t, s.Len())
	require.Empty(t, files(t, o.Dir, ""))
}

func TestSpoolIsBounded(t *testing.T) {
	t.Parallel()
	m := someCompletion("k").Message()
	for name, o := range map[string]SpoolOptions{
		"files": {MaxFiles: 2}, "bytes": {MaxBytes: int64(3*len(m.Data) + 400)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Dir, o.Stream, o.SubjectPrefix = t.TempDir(), "S", "p"
			s := openSpool(t, o)
			var first string
			for i := range 2 {
				kept, err := s.keep(m)
				require.NoError(t, err)
				if i == 0 {
					first = kept
				}
			}
			_, err := s.keep(m)
			require.ErrorIs(t, err, ErrSpoolFull)
			s = openSpool(t, o) // what is there counts again
			_, err = s.keep(m)
			require.ErrorIs(t, err, ErrSpoolFull)
			require.Len(t, files(t, o.Dir, ""), 2)
			require.NoError(t, s.drop(first))
			_, err = s.keep(m)
			require.NoError(t, err)
		})
	}
}

func TestSpoolNoticesWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(content []byte) []byte
		bad   bool
	}{
		"empty":         {func([]byte) []byte { return nil }, true},
		"cut":           {func(b []byte) []byte { return b[:len(b)-1] }, true},
		"longer":        {func(b []byte) []byte { return append(b, ' ') }, true},
		"a bit":         {func(b []byte) []byte { b[len(b)-3] ^= 1; return b }, true},
		"zeros":         {func(b []byte) []byte { return make([]byte, len(b)) }, true},
		"other stream":  {func(b []byte) []byte { return bytes.Replace(b, []byte(`"S"`), []byte(`"T"`), 1) }, false},
		"other prefix":  {func(b []byte) []byte { return bytes.Replace(b, []byte(`"p"`), []byte(`"q"`), 1) }, false},
		"newer version": {func(b []byte) []byte { return bytes.Replace(b, []byte(`"v":1`), []byte(`"v":2`), 1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openSpool(t, SpoolOptions{Dir: t.TempDir(), Stream: "S", SubjectPrefix: "p"})
			kept, err := s.keep(someCompletion("k").Message())
			require.NoError(t, err)
			path := filepath.Join(s.o.Dir, kept)
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, c.spoil(content), 0o600))
			_, err = s.read(kept)
			var fault *spoolFault
			require.ErrorAs(t, err, &fault)
			require.Equal(t, c.bad, fault.bad, fault.why)
		})
	}
}

func TestSpoolOptions(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, o := range []SpoolOptions{
		{}, {Dir: t.TempDir(), Stream: "S"}, {Dir: file, Stream: "S", SubjectPrefix: "p"},
		{Dir: t.TempDir(), Stream: "S", SubjectPrefix: "p", MaxFiles: -1},
	} {
		_, err := OpenSpool(o)
		require.Error(t, err, "%+v", o)
	}
}

// exitWithout runs a worker whose completion cannot be appended, until it must
// exit, and returns Run's error.
func (r *rig) exitWithout(called <-chan Call, grace time.Duration) error {
	r.t.Helper()
	r.w.timing.recordWait, r.w.o.Grace = 50*time.Millisecond, grace
	r.onAppend = func(int, *ledger.Completion) error { return errors.New("there is no broker") }
	r.start()
	r.publish("k")
	receive(r.t, called)
	testenv.Eventually(r.t, ample, func() (bool, string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.appends > 0, "nothing was to be appended"
	})
	r.cancel()
	return r.stopped()
}

func succeedAndTell(called chan<- Call) Provider {
	return providerFunc(func(_ context.Context, c Call) (Result, error) {
		called <- c
		return Result{Body: c.Input, ProviderRef: "ref-1", Usage: []byte(`{"tokens":3}`)}, nil
	})
}

// The completion survives the process, and the next worker appends it before it
// begins anything new.
func TestCompletionsAreSpooled(t *testing.T) {
	t.Parallel()
	called := make(chan Call, 10)
	r := newRig(t, 1, succeedAndTell(called))
	o := r.spoolFor()
	r.w.o.Spool, r.w.timing.ackWait = openSpool(t, o), time.Second
	// It is safe on disk, so that nobody waits for it as long as for a call.
	require.NoError(t, r.exitWithout(called, time.Hour), "nothing is lost")
	require.Empty(t, r.completions)
	require.Len(t, files(t, o.Dir, spoolSuffix), 1)

	r.onAppend = nil
	r.onDecide = func(context.Context, int, *ledger.Claim) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.completions) == 0 {
			return errors.New("a claim came before what was spooled")
		}
		return nil
	}
	r.publish("new")
	r.w, r.done = r.worker(1, succeedAndTell(called)), make(chan error, 1)
	r.w.o.Spool, r.w.timing.ackWait = openSpool(t, o), time.Second
	r.start()
	c := r.completed(2)
	require.Equal(t, ledger.JobID("acme", "k"), c[0].Job)
	require.Equal(t, ledger.OutcomeSucceeded, c[0].Outcome)
	require.Equal(t, `{"n":1}`, string(c[0].Result))
	require.Equal(t, "ref-1", c[0].ProviderRef)
	require.Equal(t, `{"tokens":3}`, string(c[0].Usage))
	require.Equal(t, r.claims[0].Claim, c[0].Claim)
	require.Equal(t, ledger.JobID("acme", "new"), receive(t, called).JobID)
	r.settled()
	require.Empty(t, called, "the provider was called once for each")
	require.Empty(t, files(t, o.Dir, ""))
}

// Without a spool the loss is an error; so it is if the spool has no room.
func TestWithoutRoomACompletionIsLost(t *testing.T) {
	t.Parallel()
	for name, maxBytes := range map[string]int64{"no spool": 0, "no room": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			called := make(chan Call, 1)
			r := newRig(t, 1, succeedAndTell(called))
			if maxBytes > 0 {
				o := r.spoolFor()
				o.MaxBytes = maxBytes
				r.w.o.Spool = openSpool(t, o)
			}
			require.ErrorContains(t, r.exitWithout(called, time.Millisecond), "could not be recorded")
		})
	}
}

// A process that is killed while it tries has left its completion on disk, and
// one that succeeds in the end has not.
func TestCompletionsAreSpooledFromTheFirstFailureOn(t *testing.T) {
	t.Parallel()
	called := make(chan Call, 1)
	r := newRig(t, 1, succeedAndTell(called))
	o := r.spoolFor()
	r.w.o.Spool = openSpool(t, o)
	var away atomic.Bool
	away.Store(true)
	r.onAppend = func(int, *ledger.Completion) error {
		if away.Load() {
			return errors.New("there is no broker")
		}
		return nil
	}
	r.start()
	r.publish("k")
	testenv.Eventually(t, ample, func() (bool, string) { return len(files(t, o.Dir, spoolSuffix)) == 1, "nothing is spooled" })
	left := openSpool(t, o).takeLeft() // what the next process would find
	require.Len(t, left, 1)
	c, err := r.w.readSpooled(left[0])
	require.NoError(t, err)
	away.Store(false)
	require.Equal(t, c.Message(), r.completed(1)[0].Message(), "should it be appended again, the fold recognises it")
	testenv.Eventually(t, ample, func() (bool, string) { return r.w.o.Spool.Len() == 0, "it is still spooled" })
	require.Empty(t, files(t, o.Dir, ""))
}

func TestSpoiledFilesAreSetAside(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, counted(&calls))
	o := r.spoolFor()
	foreign := o
	foreign.Stream = "OTHER"
	_, err := openSpool(t, foreign).keep(someCompletion("foreign").Message())
	require.NoError(t, err)
	s := openSpool(t, o)
	for _, m := range []ledger.Message{
		someCompletion("good").Message(),
		{Subject: "attempt.complete." + testProvider, Data: []byte(`{"v":1}`)}, // whole, and no completion
	} {
		_, err := s.keep(m)
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(filepath.Join(o.Dir, "0"+spoolSuffix), []byte("?"), 0o600))
	other := someCompletion("of another provider")
	other.Provider = "another"
	_, err = s.keep(other.Message())
	require.NoError(t, err)

	r.w.o.Spool = openSpool(t, o)
	r.start()
	require.Equal(t, ledger.JobID("acme", "good"), r.completed(1)[0].Job)
	r.publish("new")
	r.completed(2)
	require.Len(t, files(t, o.Dir, spoolBad), 2)
	require.Len(t, files(t, o.Dir, spoolSuffix), 2, "what is another's stays")
}

// What is in the spool and cannot be appended does not keep new work waiting for
// ever.
func TestAStuckSpoolDoesNotStopTheWorker(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	r := newRig(t, 1, counted(&calls))
	o := r.spoolFor()
	_, err := openSpool(t, o).keep(someCompletion("stuck").Message())
	require.NoError(t, err)
	r.onAppend = func(_ int, c *ledger.Completion) error {
		if c.Job == ledger.JobID("acme", "stuck") {
			return errors.New("the server will not have it")
		}
		return nil
	}
	r.w.o.Spool, r.w.timing.drainPatience = openSpool(t, o), 20*time.Millisecond
	r.start()
	r.publish("new")
	require.Equal(t, ledger.JobID("acme", "new"), r.completed(1)[0].Job)
	r.cancel()
	require.NoError(t, r.stopped())
	require.Len(t, files(t, o.Dir, spoolSuffix), 1)
}

func TestFit(t *testing.T) {
	t.Parallel()
	long, usage := strings.Repeat("é", 2000), []byte(`{"pad":"`+strings.Repeat("u", 3000)+`"}`)
	result := func(n int) []byte { return []byte(`"` + strings.Repeat("r", n-2) + `"`) }
	frame := len(someCompletion("k").Message().Data) - len(someCompletion("k").Result)
	for name, c := range map[string]struct {
		limit          int
		result         []byte
		outcome, class string
		usage, ref     bool // kept whole
	}{
		"all fits":                {20_000, result(5000), "succeeded", "", true, true},
		"the result goes last":    {frame + 5000 + 2*shortTextBytes, result(5000), "succeeded", "", false, false},
		"the result does not fit": {20_000, result(30_000), "failed", "result_too_large", true, true},
		"hardly anything fits":    {1200, result(30_000), "failed", "result_too_large", false, false},
		"a failure":               {2000, nil, "unknown", "timeout", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			completion := someCompletion("k")
			completion.Result, completion.Usage, completion.ProviderRef = c.result, usage, long
			if c.result == nil {
				completion.Outcome = ledger.OutcomeUnknown
				completion.Failure = ledger.Failure{Class: "timeout", Message: long, Executed: true}
			}
			m := fit(completion, c.limit)
			require.LessOrEqual(t, len(m.Data), c.limit)
			require.Equal(t, completion.Message(), m)
			require.Equal(t, c.outcome, string(completion.Outcome))
			require.Equal(t, c.class, completion.Failure.Class)
			require.Equal(t, c.class != "", completion.Failure.Executed)
			require.Equal(t, c.usage, completion.Usage != nil)
			require.Equal(t, c.ref, completion.ProviderRef == long)
			require.True(t, strings.HasPrefix(long, completion.ProviderRef) && completion.ProviderRef != "")
			e := ledger.Decode(1, time.Now(), m.Subject, m.Data)
			require.Nil(t, e.Fault)
		})
	}
}

// A server that takes less than the ledger assumes does not leave an attempt that
// cannot end.
func TestResultsFitTheServer(t *testing.T) {
	t.Parallel()
	const maxPayload = 64 << 10
	nc := testenv.Connect(t, testenv.StartNATS(t, natsserver.Options{MaxPayload: maxPayload}).URL())
	r := newRig(t, 1, providerFunc(func(_ context.Context, c Call) (Result, error) {
		size := 50_000
		if c.JobID == ledger.JobID("acme", "large") {
			size = 70_000
		}
		return Result{Body: []byte(`"` + strings.Repeat("r", size) + `"`), Usage: []byte(`{"tokens":3}`), ProviderRef: "ref"}, nil
	}))
	r.js, r.stream, r.prefix = testenv.StreamOn(t, nc)
	r.w = r.worker(1, r.w.o.Impl)
	r.start()
	r.publish("large")
	c := r.completed(1)[0]
	require.Equal(t, ledger.OutcomeFailed, c.Outcome)
	require.Equal(t, "result_too_large", c.Failure.Class)
	require.Contains(t, c.Failure.Message, "70002 bytes")
	require.True(t, c.Failure.Executed)
	require.Equal(t, "ref", c.ProviderRef)
	require.Equal(t, `{"tokens":3}`, string(c.Usage))
	r.publish("fits")
	require.Equal(t, ledger.OutcomeSucceeded, r.completed(2)[1].Outcome)
	require.LessOrEqual(t, len(c.Message().Data), maxPayload)
	r.settled()
}

// The server that the worker is connected to later takes less than the one
// before.
func TestACompletionGetsSmallerUntilTheServerTakesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, providerFunc(func(context.Context, Call) (Result, error) {
		return Result{ProviderRef: strings.Repeat("r", 3000), Usage: []byte(`"` + strings.Repeat("u", 3000) + `"`)},
			fmt.Errorf("it is not known: %s", strings.Repeat("m", 4000))
	}))
	r.onAppend = func(_ int, c *ledger.Completion) error {
		if len(c.Message().Data) > 2000 {
			return fmt.Errorf("publish: %w", nats.ErrMaxPayload)
		}
		return nil
	}
	r.start()
	r.publish("k")
	require.Equal(t, ledger.OutcomeUnknown, r.completed(1)[0].Outcome)
}

// A worker that is told to stop before it has begun has nothing to complain of.
func TestAStoppedWorkerDoesNotBegin(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, counted(new(atomic.Int64)))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, r.w.Run(ctx))
}
