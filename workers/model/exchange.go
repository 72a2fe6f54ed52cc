package model

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"jobledger/workers"
)

const (
	// errorBytes is how much of an answer without result is read.
	errorBytes = 64 << 10
	// excerptBytes is how much of a text stands in a message.
	excerptBytes = 2 << 10
)

// An exchange is the one request of a call. The SDK uses it as its HTTP client.
type exchange struct {
	p    *Provider
	call workers.Call

	tried bool
	ref   string             // the request's name on the provider's side
	err   *workers.CallError // why the SDK got no answer
	body  io.Closer          // of the answer that it got; nil: none
}

// close gives the connection of an answer up.
func (x *exchange) close() {
	if x.body != nil {
		x.body.Close()
	}
}

// errAgain is for an SDK that wants to send once more.
var errAgain = errors.New("a call is one request; the SDK tried to send another")

// Do sends the request as the SDK made it, once. Answers that are no success end
// here, so that no SDK reads their bodies.
func (x *exchange) Do(req *http.Request) (*http.Response, error) {
	if x.tried {
		return nil, errAgain
	}
	x.tried = true
	x.call.SetHeaders(req.Header)
	for name := range req.Header {
		if strings.HasPrefix(name, "X-Stainless-") { // what runs the SDK is nobody's business
			req.Header.Del(name)
		}
	}
	answer, err := x.p.sender.Send(req)
	if err != nil {
		x.err = sendFailure(err)
		return nil, x.err
	}
	x.ref = workers.RequestRef(answer.Header)
	if answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusCreated {
		x.body = answer.Body
		return answer, nil
	}
	defer answer.Body.Close()
	x.err = x.statusFailure(answer)
	return nil, x.err
}

func sendFailure(err error) *workers.CallError {
	var e *workers.CallError
	if !errors.As(err, &e) {
		return fail(noAnswer, workers.LostClass(err), err)
	}
	if e.Known == workers.NotSent {
		return fail(notSent, e.Class, e.Err)
	}
	return fail(noAnswer, e.Class, e.Err)
}

// failure is why there is no answer, given what the SDK says; nil if there is one.
func (x *exchange) failure(err error) *workers.CallError {
	switch {
	case x.err != nil:
		return x.err
	case err != nil && !x.tried:
		return fail(notSent, "request", fmt.Errorf("the request could not be made: %w", err))
	case err != nil:
		return fail(noAnswer, workers.LostClass(err), err)
	}
	return nil
}

// statusFailure says what a status means that is no success.
func (x *exchange) statusFailure(answer *http.Response) *workers.CallError {
	var body []byte
	if reader, err := workers.AnswerReader(answer); err == nil {
		// What the status says holds even if the body cannot be read to its end.
		body, _ = io.ReadAll(io.LimitReader(reader, errorBytes))
	}
	said, hasError := readAPIError(body)
	if x.ref == "" {
		x.ref = said.requestID
	}
	text := "HTTP " + answer.Status
	if where := answer.Header.Get("Location"); where != "" {
		text += " (Location: " + where + ")"
	}
	detail := string(body)
	if len(body) == errorBytes {
		detail = x.p.withoutEnd(detail)
	}
	if detail = strings.TrimSpace(detail); detail != "" {
		text += ": " + x.p.excerpt(detail)
	}
	s := x.p.statusSign(answer, said, hasError)
	class := table[s].class
	if class == "http_N" {
		class = "http_" + strconv.Itoa(answer.StatusCode)
	}
	e := fail(s, class, errors.New(text))
	if e.Known == workers.Refused {
		e.RetryAfter, _ = workers.RetryAfter(answer.Header, time.Now())
	}
	return e
}

func (p *Provider) statusSign(answer *http.Response, said apiError, hasError bool) sign {
	status := answer.StatusCode
	switch {
	case slices.Contains([]int{400, 403, 429}, status) && said.is(creditErrors), status == 402 && hasError:
		return noCredit
	case (status == 400 || status == 403) && said.is(filterErrors):
		return blocked
	}
	switch status {
	case 400, 404, 405, 413, 415, 422:
		return turnedDown
	case 401, 403:
		return locked
	case 429:
		return busy
	case 503: // without the header it may come from anything on the way
		if _, ok := workers.RetryAfter(answer.Header, time.Now()); ok {
			return busy
		}
	case 529:
		if said.is(overloadErrors) {
			return busy
		}
	}
	if slices.Contains(p.options.KnownFailures, status) {
		return busy
	}
	return otherStatus
}

// isDocument reports whether an answer says that it is one document, as servers
// send it where an error comes in a stream's place.
func isDocument(answer *http.Response) bool {
	media, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json") || media == "text/html")
}

// excerpt shortens a text for a message. The key goes first, or half of it would
// stay where the text is cut.
func (p *Provider) excerpt(text string) string {
	text = p.clean(text)
	if len(text) <= excerptBytes {
		return text
	}
	return strings.ToValidUTF8(text[:excerptBytes], "") + "…"
}

// spelledBytes is how long a byte of a key can become: \u0041.
const spelledBytes = 6

// withoutEnd returns a text that was cut off without what may be the beginning of
// the key. Whole keys go first, or half of one would stay.
func (p *Provider) withoutEnd(text string) string {
	text = p.clean(text)
	return strings.ToValidUTF8(text[:max(0, len(text)-spelledBytes*len(p.options.APIKey))], "")
}
