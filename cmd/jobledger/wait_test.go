package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// waited runs `job wait` against an API that gives the answers one after the
// other; it breaks the connection for 0, and an answer of one word is a state.
func waited(t *testing.T, answers []any, args ...string) (code, asked int, stdout, stderr string) {
	t.Helper()
	const id = "932e6392-de75-5f3a-ac8f-94870d967406"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next := answers[min(asked, len(answers)-1)]
		asked++
		switch next := next.(type) {
		case string:
			_, _ = w.Write([]byte(`{"id":"` + id + `","state":"` + next + `","attempts":[]}`))
		case int:
			if next == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(next)
		}
	}))
	var out, err bytes.Buffer
	code = newCLI(strings.NewReader(""), &out, &err).execute(t.Context(), append([]string{"job", "wait", id, "--api", server.URL}, args...))
	server.Close()
	return code, asked, out.String(), err.String()
}

func TestJobWaitEndsAsTheJob(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]int{"succeeded": 0, "failed": 1, "unknown": 8, "cancelled": 9} {
		code, asked, out, _ := waited(t, []any{state})
		require.Equal(t, want, code, state)
		require.Equal(t, 1, asked)
		require.Contains(t, out, state)
	}
	code, _, out, errors := waited(t, []any{"running"}, "--timeout", "10ms")
	require.Equal(t, exitTimedOut, code)
	require.Contains(t, out, "running")
	require.Contains(t, errors, "after 10ms the job is still running")
	code, _, _, _ = waited(t, []any{"unknown"}, "--timeout", "10ms", "--until", "terminal")
	require.Equal(t, exitTimedOut, code)
}

// TestJobWaitOutlivesTheAPI takes the API away once the job has been seen.
func TestJobWaitOutlivesTheAPI(t *testing.T) {
	t.Parallel()
	code, asked, out, errors := waited(t, []any{"running", http.StatusServiceUnavailable, 0, "running", "succeeded"})
	require.Equal(t, exitOK, code, errors)
	require.GreaterOrEqual(t, asked, 5) // the client itself may repeat a GET
	require.Contains(t, out, "succeeded")
	require.Contains(t, errors, "waiting on")
}

func TestJobWaitDoesNotWaitForWhatItHasNotSeen(t *testing.T) {
	t.Parallel()
	code, asked, _, _ := waited(t, []any{http.StatusServiceUnavailable})
	require.Equal(t, exitUnreachable, code)
	require.Equal(t, 1, asked)
	code, _, _, _ = waited(t, []any{"running", http.StatusNotFound})
	require.Equal(t, exitNotFound, code)
	code, _, _, _ = waited(t, []any{"running", http.StatusServiceUnavailable}, "--timeout", "700ms")
	require.Equal(t, exitUnreachable, code)
}
