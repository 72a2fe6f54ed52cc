package reconcile

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

// ample bounds what usually happens at once.
const ample = 30 * time.Second

var testJob = ledger.JobID("acme", "order")

// asked answers one look-up of attempt 2 and returns what was understood.
func asked(t *testing.T, answer http.HandlerFunc) (Finding, error) {
	t.Helper()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		answer(w, r)
	}))
	defer server.Close()
	l, err := NewHTTPLookup(LookupOptions{URL: server.URL + "/runs/{job_id}/{attempt}?a={attempt}", Timeout: ample, Headers: map[string]string{"Authorization": "hunter2"}})
	require.NoError(t, err)
	f, err := l.Ask(t.Context(), testJob, 2)
	require.EqualValues(t, 1, requests.Load(), "requests")
	return f, err
}

// text answers with a body.
func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestLookupAsksAboutTheAttempt(t *testing.T) {
	t.Parallel()
	f, err := asked(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/runs/"+testJob.String()+"/2" || r.URL.RawQuery != "a=2" ||
			r.Header.Get("Ledger-Job-Id") != testJob.String() || r.Header.Get("Ledger-Attempt") != "2" || r.Header.Get("Authorization") != "hunter2" {
			t.Errorf("the request is %s %s %v", r.Method, r.URL, r.Header)
		}
		_, _ = io.WriteString(w, ` {"attempt":2,"status":"succeeded","result":{"n": 1.0},"more":[]} `)
	})
	require.NoError(t, err)
	require.Equal(t, Finding{Attempt: 2, Status: Succeeded, Result: []byte(`{"n": 1.0}`), Executed: true}, f)
}

func TestLookupAnswers(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]Finding{
		`{"attempt":2,"status":"running"}`:                                      {Attempt: 2, Status: Running, Executed: true},
		`{"attempt":1,"status":"succeeded","result":null}`:                      {Attempt: 1, Status: Succeeded, Result: []byte("null"), Executed: true},
		`{"attempt":2,"status":"failed","message":"no money","executed":false}`: {Attempt: 2, Status: Failed, Message: "no money"},
		`{"attempt":2,"status":"failed","result":{"ignored":true}}`:             {Attempt: 2, Status: Failed, Executed: true},
		`{"attempt":2,"status":"not_found"}`:                                    {Attempt: 2, Status: NotFound, Executed: true},
		`{"attempt":2,"status":"running","Status":"succeeded","ATTEMPT":1}`:     {Attempt: 2, Status: Running, Executed: true},
	} {
		f, err := asked(t, text(200, body))
		require.NoError(t, err, body)
		require.Equal(t, want, f, body)
	}
	f, err := asked(t, text(404, `{"attempt":2,"status":"not_found"}`))
	require.NoError(t, err)
	require.Equal(t, NotFound, f.Status)
	f, err = asked(t, text(200, `{"attempt":2,"status":"failed","message":"`+strings.Repeat("é", 2000)+`"}`))
	require.NoError(t, err)
	require.Len(t, f.Message, maxMessageBytes)
}

func TestLookupAnswersThatAreNotTaken(t *testing.T) {
	t.Parallel()
	big := `{"attempt":2,"status":"succeeded","result":"` + strings.Repeat("x", ledger.MaxResultBytes) + `"}`
	for name, answer := range map[string]http.HandlerFunc{
		"nothing":             text(200, ""),
		"prose":               text(200, "not found"),
		"a gateway's words":   text(404, `{"status":"not_found"}`),
		"null":                text(200, "null"),
		"a list":              text(200, "[]"),
		"no attempt":          text(200, `{"status":"not_found"}`),
		"attempt null":        text(200, `{"attempt":null,"status":"not_found"}`),
		"attempt 0":           text(200, `{"attempt":0,"status":"not_found"}`),
		"attempt as text":     text(200, `{"attempt":"2","status":"not_found"}`),
		"half an attempt":     text(200, `{"attempt":2.5,"status":"not_found"}`),
		"no status":           text(200, `{"attempt":2}`),
		"another status":      text(200, `{"attempt":2,"status":"done"}`),
		"executed as text":    text(200, `{"attempt":2,"status":"failed","executed":"no"}`),
		"no result":           text(200, `{"attempt":2,"status":"succeeded"}`),
		"a member twice":      text(200, `{"attempt":2,"status":"succeeded","result":{"a":1,"a":2}}`),
		"twice another":       text(200, `{"attempt":1,"attempt":2,"status":"running"}`),
		"a lone surrogate":    text(200, `{"attempt":2,"status":"succeeded","result":"\ud800"}`),
		"an endless exponent": text(200, `{"attempt":2,"status":"succeeded","result":1e9999}`),
		"two values":          text(200, `{"attempt":2,"status":"running"}{}`),
		"too large a result":  text(200, big),
		"too large":           text(200, big+strings.Repeat(" ", maxAnswerBytes)),
		"201":                 text(201, `{"attempt":2,"status":"running"}`),
		"500":                 text(500, `{"attempt":2,"status":"succeeded","result":1}`),
		"404 with a result":   text(404, `{"attempt":2,"status":"succeeded","result":1}`),
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
	} {
		_, err := asked(t, answer)
		var bad *MalformedError
		require.ErrorAs(t, err, &bad, name)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestLookupsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"closed": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"attempt":2,"status":"running"}`)
		},
	} {
		_, err := asked(t, answer)
		var bad *MalformedError
		require.Error(t, err, name)
		require.NotErrorAs(t, err, &bad, name)
	}

	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer server.Close()
	defer close(stop)
	l, err := NewHTTPLookup(LookupOptions{URL: server.URL + "/{job_id}", Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	_, err = l.Ask(t.Context(), testJob, 2)
	require.ErrorContains(t, err, "deadline")
}

func TestLookupOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []LookupOptions{
		{URL: "http://h/{job_id}"},
		{URL: "http://h/", Timeout: 1},
		{URL: "ftp://h/{job_id}", Timeout: 1},
		{URL: "/{job_id}", Timeout: 1},
		{Timeout: 1},
	} {
		_, err := NewHTTPLookup(o)
		require.Error(t, err, fmt.Sprint(o))
	}
}
