package workers

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"jobledger/ledger"
)

// answerExcerptBytes is how much of an answer without result is read, for its
// message and its reference.
const answerExcerptBytes = 2 << 10

// answer says what an answer means.
func (h *HTTP) answer(resp *http.Response) (Result, error) {
	result := Result{ProviderRef: RequestRef(resp.Header)}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated:
		var err error
		result.Body, err = ReadAnswer(resp, ledger.MaxResultBytes)
		return result, err
	case http.StatusAccepted:
		excerpt := readExcerpt(resp.Body)
		if ref := acceptedRef(resp.Header, excerpt); ref != "" {
			result.ProviderRef = ref
		}
		return result, statusError(resp, Ambiguous, "", excerpt)
	}
	known, reach := h.refusal(resp)
	return result, statusError(resp, known, reach, readExcerpt(resp.Body))
}

// refusal looks a status up among those that mean that nothing was done.
func (h *HTTP) refusal(resp *http.Response) (Known, ledger.Reach) {
	switch status := resp.StatusCode; status {
	case 400, 404, 405, 413, 415, 422:
		return Refused, ledger.ReachRequest
	case 401, 403:
		return Refused, ledger.ReachProvider
	case 429:
		return Refused, ledger.ReachTransient
	case 503: // without the header it may come from anything on the way
		if _, ok := RetryAfter(resp.Header, time.Now()); ok {
			return Refused, ledger.ReachTransient
		}
	}
	if slices.Contains(h.options.KnownFailures, resp.StatusCode) {
		return Refused, ledger.ReachTransient
	}
	return Ambiguous, ""
}

func statusError(resp *http.Response, known Known, reach ledger.Reach, excerpt []byte) error {
	text := "HTTP " + resp.Status
	if where := resp.Header.Get("Location"); where != "" {
		text += " (Location: " + where + ")"
	}
	if len(excerpt) > 0 {
		text += ": " + string(excerpt)
	}
	e := &CallError{Known: known, Class: "http_" + strconv.Itoa(resp.StatusCode), Reach: reach, Err: errors.New(text)}
	if known == Refused {
		e.RetryAfter, _ = RetryAfter(resp.Header, time.Now())
	}
	return e
}

// readExcerpt reads the beginning of a body. What the status says holds even if
// the body cannot be read, so an error only ends the excerpt.
func readExcerpt(body io.Reader) []byte {
	excerpt, _ := io.ReadAll(io.LimitReader(body, answerExcerptBytes))
	return bytes.TrimSpace(excerpt)
}

// RetryAfter reads the header of that name: seconds, or a date. Its ok is false
// if it is missing or neither. The wait is from 0 to ledger.MaxDelay.
func RetryAfter(header http.Header, now time.Time) (wait time.Duration, ok bool) {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(ledger.MaxDelay/time.Second) {
			return ledger.MaxDelay, true // only an overflow can fail here
		}
		return time.Duration(seconds) * time.Second, true
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(date.Sub(now), 0), ledger.MaxDelay), true
}

// RequestRef is the name that the provider's side gave the request.
func RequestRef(header http.Header) string {
	for _, name := range []string{"X-Request-Id", "Request-Id"} {
		if ref := header.Get(name); ref != "" {
			return ref
		}
	}
	return ""
}

// acceptedRef is the name of the work that a 202 promises.
func acceptedRef(header http.Header, body []byte) string {
	if location := header.Get("Location"); location != "" {
		return location
	}
	var accepted struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(body, &accepted) != nil { // a longer body, or no JSON: no reference in it
		return ""
	}
	return accepted.ID
}

// ReadAnswer reads an answer's body of at most the given bytes. The error is a
// *CallError. A body that ends before its end is ambiguous: part of it was on the
// way when something broke, and nobody knows what the provider thinks of the call.
// So is one that is too long: it was not read to its end, so nobody knows what it
// says, and a person has to look at the provider.
func ReadAnswer(resp *http.Response, most int) ([]byte, error) {
	body, err := AnswerReader(resp)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(body, int64(most)+1))
	switch {
	case len(data) > most:
		return nil, &CallError{Known: Ambiguous, Class: "result_too_large",
			Err: fmt.Errorf("HTTP %s, and the body goes on beyond the %d bytes that are read", resp.Status, most)}
	case err != nil:
		return nil, &CallError{Known: Ambiguous, Class: BodyClass(err),
			Err: fmt.Errorf("HTTP %s, and the body broke off after %d bytes: %w", resp.Status, len(data), err)}
	case endsAtClose(resp) && !complete(data):
		return nil, &CallError{Known: Ambiguous, Class: "truncated",
			Err: fmt.Errorf("HTTP %s, and a body of %d bytes that is not whole and has no length", resp.Status, len(data))}
	}
	return data, nil
}

// AnswerReader undoes gzip, which some servers send though they are asked not to.
// The error is a *CallError.
func AnswerReader(resp *http.Response) (io.Reader, error) {
	encoding := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding")))
	switch encoding {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		unzipped, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, &CallError{Known: Ambiguous, Class: BodyClass(err),
				Err: fmt.Errorf("HTTP %s, and the gzip body cannot be read: %w", resp.Status, err)}
		}
		return unzipped, nil
	}
	return nil, &CallError{Known: Executed, Class: "invalid_result",
		Err: fmt.Errorf("HTTP %s with the content encoding %s; identity was asked for", resp.Status, ledger.Quote(encoding))}
}

// BodyClass names the end of a body that could not be read to its end.
func BodyClass(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "truncated"
	}
	return LostClass(err)
}

// endsAtClose reports whether only the end of the connection ends the body, so
// that an end too early looks like any other.
func endsAtClose(resp *http.Response) bool {
	return resp.ContentLength < 0 && len(resp.TransferEncoding) == 0
}

// complete reports whether data is JSON that shows its own end; a number does
// not.
func complete(data []byte) bool {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || data[0] == '-' || data[0] >= '0' && data[0] <= '9' {
		return false
	}
	return json.Valid(data)
}

// tooLarge is the error for a result beyond the limit.
func tooLarge() error {
	return &CallError{Known: Executed, Class: "result_too_large",
		Err: fmt.Errorf("the result has more than %d bytes", ledger.MaxResultBytes)}
}
