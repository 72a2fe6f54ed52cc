package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

const (
	// lookupDialTimeout bounds connecting; the look-up's own timeout may be
	// shorter.
	lookupDialTimeout = 5 * time.Second
	lookupHeaderBytes = 64 << 10
	// maxAnswerBytes is a result with what stands around it.
	maxAnswerBytes = ledger.MaxResultBytes + 4<<10
	// maxMessageBytes is how much of an answer's message is taken.
	maxMessageBytes = 1 << 10
)

// LookupOptions configure an [HTTPLookup]. URL and Timeout are required.
type LookupOptions struct {
	// URL is asked with GET: http or https, with the placeholders {job_id} and,
	// optionally, {attempt} in its path or query.
	URL string
	// Timeout bounds one look-up, from connecting to the end of the answer.
	Timeout time.Duration
	// Headers are added to every request; values may be secret and are never
	// logged.
	Headers map[string]string
}

// An HTTPLookup asks an HTTP endpoint what became of an attempt. Each look-up is
// one GET on a connection of its own: no redirect is followed, no proxy of the
// environment is used, nothing is sent twice.
type HTTPLookup struct {
	o         LookupOptions
	transport *http.Transport
}

// NewHTTPLookup returns a look-up. The error says which option is wrong.
func NewHTTPLookup(o LookupOptions) (*HTTPLookup, error) {
	filled, err := url.Parse(fill(o.URL, uuid.UUID{}, 1))
	switch {
	case err != nil || filled.Scheme != "http" && filled.Scheme != "https" || filled.Host == "":
		return nil, errors.New("reconcile: LookupOptions.URL is not an http or https URL with a host")
	case !strings.Contains(o.URL, "{job_id}"):
		return nil, errors.New("reconcile: LookupOptions.URL has no {job_id}")
	case o.Timeout <= 0:
		return nil, fmt.Errorf("reconcile: LookupOptions.Timeout is %s; expected more than 0", o.Timeout)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &HTTPLookup{o: o, transport: &http.Transport{
		Proxy:                  nil,
		DialContext:            (&net.Dialer{Timeout: lookupDialTimeout}).DialContext,
		TLSHandshakeTimeout:    lookupDialTimeout,
		DisableCompression:     true,
		DisableKeepAlives:      true,
		Protocols:              protocols,
		MaxResponseHeaderBytes: lookupHeaderBytes,
	}}, nil
}

// fill puts the attempt into the URL. Neither value has characters that a URL
// would escape.
func fill(template string, job uuid.UUID, attempt int) string {
	return strings.NewReplacer("{job_id}", job.String(), "{attempt}", strconv.Itoa(attempt)).Replace(template)
}

// Status is what a look-up says of an attempt.
type Status string

// The statuses of the contract.
const (
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Running   Status = "running"
	NotFound  Status = "not_found"
)

// A Finding is a look-up's answer.
type Finding struct {
	Attempt int // that the answer is about, from 1
	Status  Status
	Result  []byte // one accepted JSON value; with Succeeded only
	// Executed says of a failure whether the provider did the work. What does
	// not say so counts as executed.
	Executed bool
	Message  string // for people, "" if none was given
}

// A MalformedError says why an answer was not understood.
type MalformedError struct{ Problem string }

func (e *MalformedError) Error() string {
	return "the answer to the look-up is not understood: " + e.Problem
}

func malformed(format string, args ...any) error {
	return &MalformedError{fmt.Sprintf(format, args...)}
}

// Ask looks an attempt up. What it returns is about the attempt that
// Finding.Attempt names, which the caller compares. Errors are *MalformedError,
// or say that there was no answer.
func (l *HTTPLookup) Ask(ctx context.Context, job uuid.UUID, attempt int) (Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, l.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fill(l.o.URL, job, attempt), nil)
	if err != nil {
		return Finding{}, fmt.Errorf("make the look-up's request: %w", err)
	}
	for name, value := range l.o.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Ledger-Job-Id", job.String())
	req.Header.Set("Ledger-Attempt", strconv.Itoa(attempt))
	resp, err := l.transport.RoundTrip(req) // and not a Client, which would follow redirects
	if err != nil {
		return Finding{}, fmt.Errorf("no answer to the look-up: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // the connection ends with it
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return Finding{}, fmt.Errorf("the answer to the look-up (HTTP %s) broke off after %d bytes: %w", resp.Status, len(body), err)
	case len(body) > maxAnswerBytes:
		return Finding{}, malformed("HTTP %s with more than %d bytes", resp.Status, maxAnswerBytes)
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNotFound:
		return Finding{}, malformed("HTTP %s; expected 200, or 404 with the status not_found", resp.Status)
	}
	f, err := parseFinding(body)
	if err == nil && resp.StatusCode == http.StatusNotFound && f.Status != NotFound {
		return Finding{}, malformed("HTTP %s with the status %s", resp.Status, f.Status)
	}
	return f, err
}

// parseFinding reads {"attempt","status","result"?,"executed"?,"message"?}.
// Other members are passed over. An answer without the attempt's number is not
// taken: any gateway may say "not_found" to a wrong URL.
func parseFinding(body []byte) (Finding, error) {
	if err := ledger.CheckJSON(body); err != nil {
		return Finding{}, malformed("%v", err)
	}
	var members map[string]json.RawMessage // by their exact names, unlike a struct
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return Finding{}, malformed("it is not an object")
	}
	f := Finding{Executed: true}
	for name, into := range map[string]any{"attempt": &f.Attempt, "status": &f.Status, "executed": &f.Executed, "message": &f.Message} {
		raw, ok := members[name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return Finding{}, malformed("the member %s is of another type than it should be", name)
		}
	}
	f.Message = strings.ToValidUTF8(f.Message[:min(len(f.Message), maxMessageBytes)], "")
	switch f.Status {
	case Succeeded, Failed, Running, NotFound:
	default:
		return Finding{}, malformed("the status is %s; expected succeeded, failed, running or not_found", ledger.Quote(string(f.Status)))
	}
	result, ok := members["result"]
	switch {
	case f.Attempt < 1:
		return Finding{}, malformed("it names no attempt; expected the member attempt, a number from 1")
	case f.Status == Succeeded && !ok:
		return Finding{}, malformed("it says succeeded without a result")
	case f.Status == Succeeded && len(result) > ledger.MaxResultBytes:
		return Finding{}, malformed("the result has %d bytes; at most %d are taken", len(result), ledger.MaxResultBytes)
	case f.Status == Succeeded:
		f.Result = result
	}
	return f, nil
}
