package workers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// HTTPOptions configure an [HTTP] provider. URL is the only required member.
type HTTPOptions struct {
	// URL is where attempts are posted: http or https.
	URL string
	// Headers are added to every request; values may be secret and are never
	// logged. Those that the provider sets itself are refused.
	Headers map[string]string
	// KnownFailures are statuses, from 300 to 599, that this endpoint gives
	// only when nothing was done.
	KnownFailures []int
	// TLS is for certificates beyond the system's; nil: the defaults.
	TLS *tls.Config
}

// HTTP is a provider that posts an attempt as JSON to an endpoint and takes the
// answer's body as the result.
//
// Each call is one request on the wire: redirects are not followed, proxies of
// the environment are not used, and nothing is sent again, not even where Go's
// transport would consider that safe.
type HTTP struct {
	options HTTPOptions
	sender  *Sender
}

// NewHTTP returns a provider for an endpoint. The error says which option is
// wrong.
func NewHTTP(o HTTPOptions) (*HTTP, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, errors.New("workers: HTTPOptions.URL cannot be parsed; expected an http or https URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("workers: HTTPOptions.URL is %q; expected an http or https URL with a host", u.Redacted())
	}
	for name, value := range o.Headers {
		if err := checkHeader(name, value); err != nil {
			return nil, err
		}
	}
	for _, status := range o.KnownFailures {
		if status < 300 || status > 599 {
			return nil, fmt.Errorf("workers: HTTPOptions.KnownFailures has %d; expected statuses from 300 to 599", status)
		}
	}
	return &HTTP{options: o, sender: NewSender(o.TLS)}, nil
}

// ownHeaders are set by the provider or the transport, or would change how many
// messages a request is.
var ownHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Expect", "Host", "Idempotency-Key",
	"Ledger-Attempt", "Ledger-Job-Id", "Te", "Traceparent", "Trailer", "Transfer-Encoding", "Upgrade",
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// validHeaderValue refuses what would end the header's line or be dropped.
func validHeaderValue(v string) bool {
	return !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

func checkHeader(name, value string) error {
	switch {
	case !headerName.MatchString(name):
		return fmt.Errorf("workers: HTTPOptions.Headers has %q, which is no header's name", name)
	case slices.Contains(ownHeaders, http.CanonicalHeaderKey(name)):
		return fmt.Errorf("workers: HTTPOptions.Headers has %s, which the provider sets itself", name)
	case !validHeaderValue(value):
		return fmt.Errorf("workers: HTTPOptions.Headers: the value of %s has characters that no header may hold", name)
	}
	return nil
}

// Close closes the idle connections. Calls may still be made.
func (h *HTTP) Close() { h.sender.Close() }

// Call implements [Provider].
//
// 200 and 201 give the result. 202 is ambiguous: the work is accepted and its
// end not known. 400, 404, 405, 413, 415, 422 (reach request), 401, 403 (reach
// provider), 429, 503 with a Retry-After that can be read and the known
// failures (reach transient) are refusals. What failed before the first byte of
// the request was written was not sent. All else is ambiguous.
//
// ProviderRef is the answer's X-Request-Id or Request-Id. With 202 it is the
// Location, else the string in the body's member "id", else one of these.
func (h *HTTP) Call(ctx context.Context, c Call) (Result, error) {
	req, err := h.request(ctx, c)
	if err != nil {
		return Result{}, &CallError{Known: NotSent, Class: "request", Err: err}
	}
	resp, err := h.sender.Send(req)
	if err != nil {
		return Result{}, err
	}
	defer resp.Body.Close()
	return h.answer(resp)
}

func (h *HTTP) request(ctx context.Context, c Call) (*http.Request, error) {
	body := requestBody(c)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.options.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, value := range h.options.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	c.SetHeaders(req.Header)
	return req, nil
}

// requestBody is the JSON that http and exec providers get. Kind is a valid
// name, so it needs no escapes.
func requestBody(c Call) []byte {
	b := make([]byte, 0, len(c.Input)+160)
	b = append(b, `{"job_id":"`...)
	b = append(b, c.JobID.String()...)
	b = append(b, `","attempt":`...)
	b = strconv.AppendInt(b, int64(c.Attempt), 10)
	b = append(b, `,"kind":"`...)
	b = append(b, c.Kind...)
	b = append(b, `","input":`...)
	b = append(b, c.Input...)
	return append(b, '}')
}
