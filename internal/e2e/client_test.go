package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

// requestTimeout is above every wait that the API allows.
const requestTimeout = 90 * time.Second

// A client speaks to one API process for one owner. Its connections are used
// once: Go would send a POST with an Idempotency-Key again by itself where a
// reused one dies.
type client struct {
	t     testing.TB
	base  string
	owner string
	token string
	http  *http.Client
}

// client returns a client of the process's API.
func (p *process) client(owner string) *client {
	return &client{t: p.w.t, base: p.url, owner: owner, http: &http.Client{
		Timeout:   requestTimeout,
		Transport: &http.Transport{DisableKeepAlives: true},
	}}
}

// as returns the client for another owner.
func (c *client) as(owner string) *client {
	other := *c
	other.owner = owner
	return &other
}

// at returns the client with another base URL.
func (c *client) at(base string) *client {
	other := *c
	other.base = base
	return &other
}

// An answer is what came back.
type answer struct {
	t      testing.TB
	what   string
	status int
	header http.Header
	raw    []byte
	body   map[string]any // nil if it is no JSON object
	// repeated: the request was made again, since the API could not tell yet.
	repeated bool
}

// try makes a request; it may be called from any goroutine. headers are names
// and values in turn; an empty value removes the header.
func (c *client) try(method, path, body string, headers ...string) (answer, error) {
	a := answer{t: c.t, what: method + " " + path}
	req, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	if c.owner != "" {
		req.Header.Set("Ledger-Owner", c.owner)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a.status, a.header = resp.StatusCode, resp.Header
	if a.raw, err = io.ReadAll(resp.Body); err != nil {
		return a, fmt.Errorf("read the answer to %s: %w", a.what, err)
	}
	_ = json.Unmarshal(a.raw, &a.body) // whoever needs the body notices
	return a, nil
}

// do is try for the test's own goroutine.
func (c *client) do(method, path, body string, headers ...string) answer {
	c.t.Helper()
	a, err := c.try(method, path, body, headers...)
	require.NoError(c.t, err)
	return a
}

// repeats bounds how often a request is repeated that has no verdict yet.
const repeats = 10

// verdict is try, repeated while the API answers that it does not know yet: on a
// busy machine that is as right as any other answer.
func (c *client) verdict(method, path, body string, headers ...string) (answer, error) {
	for i := 0; ; i++ {
		a, err := c.try(method, path, body, headers...)
		a.repeated = i > 0
		undecided := a.status == http.StatusAccepted || a.status == http.StatusServiceUnavailable
		if err != nil || !undecided || i == repeats {
			return a, err
		}
	}
}

// mustVerdict is verdict for the test's own goroutine.
func (c *client) mustVerdict(method, path, body string, headers ...string) answer {
	c.t.Helper()
	a, err := c.verdict(method, path, body, headers...)
	require.NoError(c.t, err)
	return a
}

// created insists on 201; where the request was repeated, the first may have
// done it.
func (a answer) created() answer {
	a.t.Helper()
	if a.repeated && a.status == http.StatusOK {
		return a.replayed()
	}
	return a.is(http.StatusCreated)
}

// is insists on the status and, if one is named, on the problem.
func (a answer) is(status int, problem ...string) answer {
	a.t.Helper()
	require.Equal(a.t, status, a.status, "%s: %s", a.what, a.raw)
	if len(problem) > 0 {
		require.Equal(a.t, "urn:jobledger:problem:"+problem[0], a.body["type"], "%s: %s", a.what, a.raw)
	}
	return a
}

// replayed insists on 200 and the header that says that nothing was done.
func (a answer) replayed() answer {
	a.t.Helper()
	a.is(http.StatusOK)
	require.Equal(a.t, "true", a.header.Get("Idempotent-Replayed"), a.what)
	return a
}

// text returns a member of the body; dots lead into objects and lists, as in
// attempts.0.state. What is not a text is rendered as JSON; null and what is not
// there are "".
func (a answer) text(path string) string {
	a.t.Helper()
	var v any = a.body
	for name := range strings.SplitSeq(path, ".") {
		switch inner := v.(type) {
		case map[string]any:
			v = inner[name]
		case []any:
			i, err := strconv.Atoi(name)
			require.NoError(a.t, err)
			if v = nil; i < len(inner) {
				v = inner[i]
			}
		default:
			v = nil
		}
	}
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		text, err := json.Marshal(v)
		require.NoError(a.t, err)
		return string(text)
	}
}

func jobPath(id string) string { return "/v1/jobs/" + id }

// jobID is the id that everybody computes for the client's owner and a key.
func (c *client) jobID(key string) string { return ledger.JobID(c.owner, key).String() }

// submit posts a job request with a body as it stands.
func (c *client) submit(key, body string) answer {
	c.t.Helper()
	return c.mustVerdict("POST", "/v1/jobs", body, "Idempotency-Key", key)
}

// create submits a new job and returns its id.
func (c *client) create(key, body string) string {
	c.t.Helper()
	a := c.submit(key, body).created()
	id := a.text("id")
	require.Equal(c.t, c.jobID(key), id)
	require.Equal(c.t, id, a.header.Get("Ledger-Job-Id"))
	require.Equal(c.t, jobPath(id), a.header.Get("Location"))
	return id
}

// job reads a job.
func (c *client) job(id string) answer {
	c.t.Helper()
	return c.do("GET", jobPath(id), "").is(http.StatusOK)
}

// settled waits until the job is settled or unknown, and insists on its state.
func (c *client) settled(id, state string) answer {
	c.t.Helper()
	a := c.do("GET", jobPath(id)+"?wait=30s", "").is(http.StatusOK)
	require.Equal(c.t, state, a.text("state"), "%s", a.raw)
	return a
}

// finished waits until the job is settled, and insists on its state.
func (c *client) finished(id, state string) answer {
	c.t.Helper()
	a := c.do("GET", jobPath(id)+"?wait=30s&until=terminal", "").is(http.StatusOK)
	require.Equal(c.t, state, a.text("state"), "%s", a.raw)
	return a
}

// press presses the fallback button.
func (c *client) press(id, key, body string) answer {
	c.t.Helper()
	return c.mustVerdict("POST", jobPath(id)+"/attempts", body, "Idempotency-Key", key)
}

func (c *client) cancel(id string) answer {
	c.t.Helper()
	return c.mustVerdict("POST", jobPath(id)+"/cancel", `{"reason":"a test"}`)
}

func (c *client) resolve(id string, attempt int, body string) answer {
	c.t.Helper()
	return c.mustVerdict("POST", fmt.Sprintf("%s/attempts/%d/resolve", jobPath(id), attempt), body)
}
