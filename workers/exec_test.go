package workers

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

func shell(t *testing.T, script string, pass ...string) *Exec {
	t.Helper()
	e, err := NewExec(ExecOptions{Command: []string{"/bin/sh", "-c", script}, EnvPass: pass})
	require.NoError(t, err)
	return e
}

func TestExecGetsTheAttemptAndGivesTheResult(t *testing.T) {
	t.Parallel()
	result, err := shell(t, "cat").Call(callContext(t, ample), testCall())
	require.NoError(t, err)
	require.JSONEq(t, `{"job_id":"932e6392-de75-5f3a-ac8f-94870d967406","attempt":2,"kind":"echo","input":{"a":1}}`, string(result.Body))
}

func TestExecEnvironmentIsRestricted(t *testing.T) {
	t.Setenv("JOBLEDGER_TOKEN", "secret")
	t.Setenv("WANTED", "yes")
	t.Setenv("LANG", "C")
	e := shell(t, `env | cut -d= -f1 | sort | tr '\n' ' '; pwd`, "WANTED", "NOT_SET_ANYWHERE")
	e.options.Dir = t.TempDir()
	result, err := e.Call(callContext(t, ample), testCall())
	require.NoError(t, err)
	names := strings.Fields(string(result.Body))
	require.Subset(t, []string{"HOME", "JOBLEDGER_ATTEMPT", "JOBLEDGER_JOB_ID", "LANG", "PATH", "PWD", "OLDPWD", "SHLVL", "_", "WANTED", e.options.Dir}, names)
	require.Subset(t, names, []string{"JOBLEDGER_ATTEMPT", "JOBLEDGER_JOB_ID", "LANG", "PATH", "WANTED", e.options.Dir})
}

func TestExecEndings(t *testing.T) {
	t.Parallel()
	for script, expected := range map[string]ending{
		"exit 3":                            executed("exit_status"),
		"exit 75":                           {ledger.OutcomeFailed, ledger.Failure{Class: "tempfail", Reach: ledger.ReachTransient}},
		"kill -9 $$":                        unknown("signal"),
		"kill -TERM $$":                     unknown("signal"),
		"head -c 1048576 /dev/zero; true":   executed("result_too_large"),
		"head -c 1048576 /dev/zero; exit 3": executed("exit_status"),
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			_, err := shell(t, script).Call(callContext(t, ample), testCall())
			requireEnding(t, expected, err)
		})
	}
}

func TestExecKeepsTheEndOfStandardError(t *testing.T) {
	t.Parallel()
	_, err := shell(t, `head -c 100000 /dev/zero | tr '\0' x >&2; printf 'the \377 end' >&2; exit 1`).Call(callContext(t, ample), testCall())
	_, failure := Classify(err)
	require.True(t, strings.HasPrefix(failure.Message, "exit status 1; standard error ends: xxx"), failure.Message)
	require.True(t, strings.HasSuffix(failure.Message, "xthe \ufffd end"), failure.Message)
	require.LessOrEqual(t, len(failure.Message), ledger.MaxTextBytes)
}

func TestExecThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]ExecOptions{
		"no program":      {Command: []string{"/nowhere/to/be/found"}},
		"not in the path": {Command: []string{"nowhere-to-be-found"}},
		"a folder":        {Command: []string{t.TempDir()}},
		"no folder":       {Command: []string{"/bin/true"}, Dir: "/nowhere/to/be/found"},
	} {
		e, err := NewExec(o)
		require.NoError(t, err)
		_, err = e.Call(callContext(t, ample), testCall())
		requireEnding(t, ending{ledger.OutcomeUnsent, ledger.Failure{Class: "not_started", Reach: ledger.ReachProvider}}, err)
		t.Log(name, err)
	}
	ended := callContext(t, time.Nanosecond)
	<-ended.Done()
	_, err := shell(t, "true").Call(ended, testCall())
	requireEnding(t, unsent("timeout"), err)
}

// The deadline ends the program and its children, whether they hold its output
// or not.
func TestExecDeadlineEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	script := fmt.Sprintf(`sleep 600 & echo $! >>%[1]s; (sleep 600 & echo $! >>%[1]s; wait) & echo $$ >>%[1]s; trap '' TERM; wait`, pids)
	start := time.Now()
	_, err := shell(t, script).Call(callContext(t, 500*time.Millisecond), testCall())
	requireEnding(t, unknown("timeout"), err)
	require.Less(t, time.Since(start), 20*second)
	requireEnded(t, pids, 3)
}

// A child that stays behind with the program's output neither delays the
// answer nor lives on.
func TestExecEndsWhatTheProgramLeavesBehind(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	start := time.Now()
	result, err := shell(t, fmt.Sprintf(`sleep 600 & echo $! >%s; echo '{}'`, pids)).Call(callContext(t, ample), testCall())
	require.NoError(t, err)
	require.Equal(t, "{}\n", string(result.Body))
	require.Less(t, time.Since(start), 20*second)
	requireEnded(t, pids, 1)
}

// A process that has left the group and holds the pipes cannot hang the call.
func TestExecIsNotHungByAnEscapedProcess(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	start := time.Now()
	result, err := shell(t, fmt.Sprintf(`setsid sh -c 'echo $$ >%[1]s.new; mv %[1]s.new %[1]s; exec sleep 60' & while ! [ -e %[1]s ]; do sleep 0.01; done; echo 1`, pids)).
		Call(callContext(t, ample), testCall())
	require.NoError(t, err)
	require.Equal(t, "1\n", string(result.Body))
	require.Less(t, time.Since(start), 20*second)
	for _, pid := range readPids(t, pids) { // it is the test's to end
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

func readPids(t *testing.T, file string) []int {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var pids []int
	for _, field := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func requireEnded(t *testing.T, file string, n int) {
	t.Helper()
	pids := readPids(t, file)
	require.Len(t, pids, n)
	for _, pid := range pids {
		testenv.Eventually(t, ample, func() (bool, string) {
			return !alive(pid), fmt.Sprintf("process %d lives", pid)
		})
	}
}

// alive takes a zombie, which init has yet to reap, for dead.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestExecOptions(t *testing.T) {
	t.Parallel()
	for expected, o := range map[string]ExecOptions{
		"Command is empty":       {},
		"EnvPass has \"a=b\"":    {Command: []string{"x"}, EnvPass: []string{"a=b"}},
		"EnvPass has JOBLEDGER_": {Command: []string{"x"}, EnvPass: []string{"JOBLEDGER_JOB_ID"}},
	} {
		_, err := NewExec(o)
		require.ErrorContains(t, err, expected)
	}
}
