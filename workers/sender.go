package workers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
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

// A Sender puts HTTP requests on the wire, each once: redirects are not followed,
// proxies of the environment are not used, and nothing is sent again, not even
// where Go's transport would consider that safe. It is safe for concurrent use.
type Sender struct{ transport *http.Transport }

// NewSender returns a sender. Its config is for certificates beyond the system's;
// nil: the defaults.
func NewSender(config *tls.Config) *Sender {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // HTTP/2 retries streams that the server did not process
	return &Sender{&http.Transport{
		Proxy:                  nil,
		DialContext:            dialSealable(&net.Dialer{Timeout: httpDialTimeout}),
		TLSClientConfig:        config.Clone(),
		TLSHandshakeTimeout:    httpDialTimeout,
		DisableCompression:     true, // see AnswerReader
		Protocols:              protocols,
		MaxIdleConnsPerHost:    httpIdleConns,
		MaxIdleConns:           httpIdleConns,
		IdleConnTimeout:        httpIdleTimeout,
		MaxResponseHeaderBytes: httpHeaderBytes,
	}}
}

// Close closes the idle connections. Requests may still be sent.
func (s *Sender) Close() { s.transport.CloseIdleConnections() }

// Send sends a request and returns the head of the answer, whatever its status.
// The error is a *CallError: NotSent if provably nothing of the request left,
// else Ambiguous.
func (s *Sender) Send(req *http.Request) (*http.Response, error) {
	var w wire
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), w.trace()))
	// With GetBody the transport would send the request a second time when a
	// reused connection dies: to it, Idempotency-Key makes a POST repeatable.
	req.GetBody = nil
	// RoundTrip and not a Client, which would follow redirects.
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return nil, sendFailure(&w, err)
	}
	return resp, nil
}

// SetHeaders sets what every provider is told of a call by headers, and asks for
// an answer that is not compressed.
func (c Call) SetHeaders(header http.Header) {
	header.Set("Accept-Encoding", "identity")
	header.Set("Idempotency-Key", c.IdempotencyKey)
	header.Set("Ledger-Job-Id", c.JobID.String())
	header.Set("Ledger-Attempt", strconv.Itoa(c.Attempt))
	if c.Traceparent != "" && validHeaderValue(c.Traceparent) {
		header.Set("Traceparent", c.Traceparent)
	}
}

// sendFailure says what is known when there is no answer.
func sendFailure(w *wire, err error) error {
	if !w.proveUnsent() {
		return &CallError{Known: Ambiguous, Class: LostClass(err), Err: fmt.Errorf("no answer: %w", err)}
	}
	return &CallError{Known: NotSent, Class: unsentClass(err), Err: fmt.Errorf("not sent: %w", err)}
}

// LostClass names the end of a request that may have arrived.
func LostClass(err error) string {
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
