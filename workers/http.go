package workers

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// httpDialTimeout bounds connecting, so that a worker learns early that a
	// call was not sent. The attempt's own deadline may be earlier.
	httpDialTimeout = 15 * time.Second
	// httpIdleTimeout is short on purpose. A request on a connection that the
	// server is just closing ends as unknown, because nobody can tell whether
	// it was read; servers keep idle connections for two seconds and more.
	httpIdleTimeout = time.Second
	// httpIdleConns bounds the idle connections to the endpoint.
	httpIdleConns = 256
	// httpHeaderBytes bounds an answer's headers.
	httpHeaderBytes = 64 << 10
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
	options   HTTPOptions
	transport *http.Transport
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
	return &HTTP{options: o, transport: newTransport(o.TLS)}, nil
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

func newTransport(config *tls.Config) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // HTTP/2 retries streams that the server did not process
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            dialSealable(&net.Dialer{Timeout: httpDialTimeout}),
		TLSClientConfig:        config.Clone(),
		TLSHandshakeTimeout:    httpDialTimeout,
		DisableCompression:     true, // see answerBody
		Protocols:              protocols,
		MaxIdleConnsPerHost:    httpIdleConns,
		MaxIdleConns:           httpIdleConns,
		IdleConnTimeout:        httpIdleTimeout,
		MaxResponseHeaderBytes: httpHeaderBytes,
	}
}

// Close closes the idle connections. Calls may still be made.
func (h *HTTP) Close() { h.transport.CloseIdleConnections() }

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
	var w wire
	req, err := h.request(httptrace.WithClientTrace(ctx, w.trace()), c)
	if err != nil {
		return Result{}, &CallError{Known: NotSent, Class: "request", Err: err}
	}
	// RoundTrip and not a Client, which would follow redirects.
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		return Result{}, sendFailure(&w, err)
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
	// With GetBody the transport would send the request a second time when a
	// reused connection dies: to it, Idempotency-Key makes a POST repeatable.
	req.GetBody = nil
	for name, value := range h.options.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	req.Header.Set("Idempotency-Key", c.IdempotencyKey)
	req.Header.Set("Ledger-Job-Id", c.JobID.String())
	req.Header.Set("Ledger-Attempt", strconv.Itoa(c.Attempt))
	if c.Traceparent != "" && validHeaderValue(c.Traceparent) {
		req.Header.Set("Traceparent", c.Traceparent)
	}
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

// sendFailure says what is known when there is no answer.
func sendFailure(w *wire, err error) error {
	if !w.proveUnsent() {
		return &CallError{Known: Ambiguous, Class: lostClass(err), Err: fmt.Errorf("no answer: %w", err)}
	}
	return &CallError{Known: NotSent, Class: unsentClass(err), Err: fmt.Errorf("not sent: %w", err)}
}

// lostClass names the end of a request that may have arrived.
func lostClass(err error) string {
	var op *net.OpError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) && !op.Timeout() {
		return "connection_lost"
	}
	return endClass(err, "no_answer")
}

// unsentClass names the reason why a request was not sent.
func unsentClass(err error) string {
	var (
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		record      tls.RecordHeaderError
		alert       tls.AlertError
	)
	switch {
	case errors.As(err, &dns):
		return "name_not_found"
	case errors.As(err, &certificate), errors.As(err, &authority), errors.As(err, &record), errors.As(err, &alert):
		return "tls"
	}
	return endClass(err, "not_connected")
}
