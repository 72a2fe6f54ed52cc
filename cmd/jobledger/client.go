package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strings"
	"time"

	"jobledger/projector"
	"jobledger/publisher"
	"jobledger/publisher/httpapi"
)

const (
	// callTimeout bounds one call, its wait excluded.
	callTimeout = 30 * time.Second
	// maxAnswerBytes bounds an answer: a page of jobs with big inputs.
	maxAnswerBytes = 1 << 30
)

// An apiClient calls the HTTP API. Without --api that is one inside this
// process, on connections of its own to NATS and the database, so that commands
// mean the same and print the same either way.
type apiClient struct {
	base  string // URL without a slash at its end
	token string
	owner string // the Ledger-Owner header; "": none
	http  *http.Client
	close func()
}

// openAPI makes a client that acts for owner ("": nobody in particular).
func (c *cli) openAPI(ctx context.Context, owner string) (*apiClient, error) {
	token := os.Getenv(envPrefix + "TOKEN")
	if c.api == "" {
		handler, closeAll, err := c.ownAPI(ctx)
		if err != nil {
			return nil, err
		}
		return &apiClient{
			base: "http://in-process", owner: someOwner(owner), http: &http.Client{Transport: inProcess{handler}}, close: closeAll,
		}, nil
	}
	u, err := url.Parse(c.api)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, exitWith(exitUsage, "--api is %q; expected a URL such as http://127.0.0.1:8080", c.api)
	}
	if token == "" {
		owner = someOwner(owner)
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: callTimeout, MaxIdleConnsPerHost: maxConcurrency,
	}
	// Redirects would carry the token elsewhere.
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &apiClient{
		base: strings.TrimRight(c.api, "/"), token: token, owner: owner,
		http: &http.Client{CheckRedirect: noRedirect, Transport: transport}, close: transport.CloseIdleConnections,
	}, nil
}

// someOwner is the user where no owner is named: an API without tokens wants to
// know for whom it is asked, and gives operators what they ask for anyway.
func someOwner(owner string) string {
	if owner != "" {
		return owner
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid-%d", os.Getuid())
}

// ownAPI makes an API inside this process.
func (c *cli) ownAPI(ctx context.Context) (http.Handler, func(), error) {
	d, err := c.direct(ctx)
	if err != nil {
		return nil, nil, err
	}
	s, err := d.js.Stream(ctx, d.meta.Stream)
	if err != nil {
		d.closeLogged(c.log)
		return nil, nil, exitWith(exitUnreachable, "look for the stream %s: %w", d.meta.Stream, err)
	}
	says := actor()
	api, err := httpapi.New(httpapi.Options{
		Decider: d.client, Reader: d.queries, StreamEnd: streamEnd(s),
		Ready:    func(context.Context) error { return nil },
		Inputs:   c.checkInputs(d),
		Outcomes: publisher.NewOutcomes(d.nc, d.meta.Prefix),
		History:  projector.NewHistories(d.pool, s, d.meta.Prefix),
		Auth: func(r *http.Request) (httpapi.Principal, error) {
			return httpapi.Principal{Owner: r.Header.Get(httpapi.OwnerHeader), Operator: true, Actor: says}, nil
		},
		Log: c.log, Version: version(),
	})
	if err != nil {
		d.closeLogged(c.log)
		return nil, nil, err
	}
	return api, func() { api.Close(); d.closeLogged(c.log) }, nil
}

// An answer is a successful one.
type answer struct {
	status   int
	replayed bool // the same was asked before
	body     []byte
}

// decode reads the body.
func (a answer) decode(into any) error {
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("the API's answer cannot be read: %w", err)
	}
	return nil
}

// A request to the API. Body is marshalled unless it is nil.
type request struct {
	method, path string
	query        url.Values
	owner        string // for whom; "": the client's
	key          string // Idempotency-Key, "" for none
	body         any
	wait         time.Duration // what the API is asked to wait
}

// call makes a request. An answer that is a problem, or 202, is an error with
// the exit status that belongs to it.
func (a *apiClient) call(ctx context.Context, r request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.wait+callTimeout)
	defer cancel()
	req, err := a.newRequest(ctx, r)
	if err != nil {
		return answer{}, err
	}
	res, err := a.http.Do(req)
	if errors.Is(err, context.Canceled) {
		return answer{}, err // somebody has pressed Ctrl-C
	}
	if err != nil {
		var urlErr *url.Error
		if errors.As(err, &urlErr) {
			err = urlErr.Err // the URL is told by ourselves, without its query
		}
		return answer{}, exitWith(exitUnreachable, "%s %s%s: %w", r.method, a.base, r.path, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	if err != nil {
		return answer{}, exitWith(exitUnreachable, "read the answer to %s %s: %w", r.method, r.path, err)
	}
	if res.StatusCode == http.StatusAccepted {
		return answer{}, pendingError(body)
	}
	if res.StatusCode >= 300 {
		return answer{}, problemError(res, body)
	}
	return answer{res.StatusCode, res.Header.Get(httpapi.ReplayedHeader) == "true", body}, nil
}

func (a *apiClient) newRequest(ctx context.Context, r request) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	target := a.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set(httpapi.KeyHeader, r.key)
	}
	if owner := cmp.Or(r.owner, a.owner); owner != "" {
		req.Header.Set(httpapi.OwnerHeader, owner)
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	return req, nil
}

// pendingError says that an entry is stored and not decided yet.
func pendingError(body []byte) error {
	var pending struct {
		ID  string `json:"id"`
		Seq uint64 `json:"seq"`
	}
	if err := json.Unmarshal(body, &pending); err != nil {
		return fmt.Errorf("the API's answer cannot be read: %w", err)
	}
	about := ""
	if pending.ID != "" {
		about = "job " + pending.ID + ": "
	}
	return exitWith(exitTimedOut, "%sstored as entry %d, but not decided yet; say it again to learn the decision", about, pending.Seq)
}

// problemError makes an error of an RFC 9457 answer.
func problemError(res *http.Response, body []byte) error {
	var p httpapi.Problem
	if err := json.Unmarshal(body, &p); err != nil || p.Type == "" {
		return exitWith(problemStatus(res.StatusCode, ""), "the API answered %s", res.Status)
	}
	name := p.Type[strings.LastIndex(p.Type, ":")+1:]
	text := name + ": " + p.Detail
	for _, d := range p.Errors {
		if !strings.Contains(p.Detail, d.Detail) {
			text += fmt.Sprintf("\n  %s: %s", d.Pointer, d.Detail)
		}
	}
	if p.State != "" {
		text += fmt.Sprintf(" (attempt %d is %s", p.Attempt, p.State)
		if p.Deadline != nil {
			text += ", its deadline is " + p.Deadline.Format(time.RFC3339)
		}
		text += ")"
	}
	switch name {
	case "unauthorized":
		return exitWith(exitRefused, "%w: %s", errUnauthorized, p.Detail)
	case "forbidden":
		return exitWith(exitRefused, "%w: %s", errForbidden, p.Detail)
	}
	return exitWith(problemStatus(res.StatusCode, name), "%s", text)
}

// The API does not know who asks, or will not have them do it.
var (
	errUnauthorized = errors.New("unauthorized")
	errForbidden    = errors.New("forbidden")
)

// problemStatus is the exit status for a problem.
func problemStatus(status int, name string) int {
	switch {
	case name == "idempotency-conflict":
		return exitConflict
	case name == "unknown-kind", name == "unknown-provider":
		return exitRefused
	case status == http.StatusBadRequest:
		return exitUsage
	case status == http.StatusNotFound:
		return exitNotFound
	case status >= 400 && status < 500:
		return exitRefused
	case status == http.StatusServiceUnavailable, status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return exitUnreachable
	}
	return exitFailed
}

// inProcess is a transport that calls a handler.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	t.handler.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: w.status, Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(b []byte) (int, error) { return w.body.Write(b) }
