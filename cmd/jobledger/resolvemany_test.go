package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type resolveOutput struct {
	Attempts []resolved `json:"attempts"`
	Found    int        `json:"found"`
	Done     bool       `json:"done"`
	Complete bool       `json:"complete"`
}

// resolveAll runs attempt resolve on an API with two pages of two attempts each.
// answer answers to each resolution, by the number of the attempt.
func resolveAll(t *testing.T, answer func(attempt string, w http.ResponseWriter), args ...string) (out resolveOutput, f *fakeAPI, stderr string, code int) {
	t.Helper()
	f = newFakeAPI(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			answer(r.URL.Path[len("/v1/jobs/j/attempts/"):len("/v1/jobs/j/attempts/")+1], w)
		case r.URL.Query().Get("cursor") == "":
			fmt.Fprint(w, `{"attempts":[{"job_id":"j","number":1},{"job_id":"j","number":2}],"next_cursor":"more"}`)
		default:
			fmt.Fprint(w, `{"attempts":[{"job_id":"j","number":3},{"job_id":"j","number":4}],"next_cursor":null}`)
		}
	})
	var stdout, errOut bytes.Buffer
	c := newCLI(nil, &stdout, &errOut)
	code = c.execute(t.Context(), append([]string{"attempt", "resolve", "--provider", "p", "--started-before", "1h", "--as", "failed", "--reason", "x",
		"--api", f.URL, "-o", "json"}, args...))
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &out), "%s", &stdout)
	return out, f, errOut.String(), code
}

func (o resolveOutput) outcomes() (list []string) {
	for _, at := range o.Attempts {
		list = append(list, fmt.Sprint(at.Attempt, at.Outcome))
	}
	return list
}

func TestResolveManyListsOnly(t *testing.T) {
	t.Parallel()
	out, f, _, code := resolveAll(t, nil)
	require.Zero(t, code)
	require.Equal(t, []string{"1", "2", "3", "4"}, out.outcomes())
	require.Len(t, f.seen(), 2, "two pages were read and nothing else was asked for")
	require.False(t, out.Done)
	require.True(t, out.Complete)
}

// One that was refused, because its truth came meanwhile, keeps no other from
// being resolved.
func TestResolveManyReports(t *testing.T) {
	t.Parallel()
	out, _, stderr, code := resolveAll(t, func(attempt string, w http.ResponseWriter) {
		switch attempt {
		case "2":
			problemAnswer(w, http.StatusConflict, "attempt-ended")
		case "3":
			w.Header().Set("Idempotent-Replayed", "true")
			fmt.Fprint(w, `{}`)
		default:
			fmt.Fprint(w, `{}`)
		}
	}, "--yes")
	require.Equal(t, exitRefused, code, stderr)
	require.Equal(t, []string{"1resolved", "2refused", "3existing", "4resolved"}, out.outcomes())
	require.Contains(t, out.Attempts[1].Reason, "attempt-ended")
	require.True(t, out.Done)
	require.True(t, out.Complete)
	require.Equal(t, 4, out.Found)
}

// What would meet every other one as well stops the run; the report says which
// attempts may have been resolved.
func TestResolveManyStops(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status, code int
	}{
		"unavailable":    {http.StatusServiceUnavailable, exitUnreachable},
		"forbidden":      {http.StatusForbidden, exitRefused},
		"unauthorized":   {http.StatusUnauthorized, exitRefused},
		"not-decided":    {http.StatusAccepted, exitTimedOut},
		"bad-request":    {http.StatusBadRequest, exitUsage},
		"internal-error": {http.StatusInternalServerError, exitFailed},
	} {
		out, f, stderr, code := resolveAll(t, func(attempt string, w http.ResponseWriter) {
			if attempt == "1" {
				fmt.Fprint(w, `{}`)
				return
			}
			problemAnswer(w, tc.status, name)
		}, "--yes", "--concurrency", "1")
		require.Equal(t, tc.code, code, "%s: %s", name, stderr)
		require.Contains(t, stderr, "the same command again")
		require.Equal(t, []string{"1resolved", "2unfinished"}, out.outcomes(), name)
		require.Len(t, f.seen(), 3, name)
		require.False(t, out.Complete)
	}
}

func TestInstantOf(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h": now.Add(-2 * time.Hour), "0s": now, "2026-01-01T00:00:00+01:00": time.Date(2025, 12, 31, 23, 0, 0, 0, time.UTC),
	} {
		at, err := instantOf("--x", text, now)
		require.NoError(t, err, text)
		require.True(t, want.Equal(at), text)
	}
	for _, text := range []string{"", "yesterday", "-2h", "2026-01-01"} {
		_, err := instantOf("--x", text, now)
		require.Equal(t, exitUsage, exitCode(err), text)
	}
}
