package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"jobledger/ledger"
)

// LeftOutHeader names the members that an answer lacks because it would have
// been larger than the door takes: input, result, or both.
const LeftOutHeader = "Ledger-Left-Out"

// A Response answers a Call as HTTP would have answered the same request.
type Response struct {
	Status  int
	Headers [][2]string // names and values
	Body    []byte      // JSON: a problem's if Status is 400 or more
	Detail  string      // the problem's, "" if there is none
}

// Unavailable is the response to a request of which nothing was done, for now.
// name is the last part of the problem's type.
func Unavailable(name, format string, args ...any) Response {
	return problem(http.StatusServiceUnavailable, name, format, args...).response(ledger.MaxRequestBytes)
}

// response makes the answer of a result; its body has at most limit bytes.
func (r *result) response(limit int) (Response, error) {
	body, err := jsonOf(r.body)
	if err != nil {
		return Response{}, err
	}
	answer := Response{Status: r.status, Headers: r.headers(), Body: body}
	if len(body) > limit {
		return r.fit(answer, limit)
	}
	return answer, nil
}

// fit makes an answer small enough by leaving out the job's input, which
// whoever asks can have, and then its result. They are then not there at all:
// null would say that the job has none.
func (r *result) fit(answer Response, limit int) (Response, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(answer.Body, &members); err != nil {
		return Response{}, fmt.Errorf("take an answer apart: %w", err)
	}
	var left []string
	for _, name := range []string{"input", "result"} {
		if _, ok := members[name]; !ok {
			continue
		}
		delete(members, name)
		left = append(left, name)
		body, err := jsonOf(members)
		if err != nil {
			return Response{}, err
		}
		if len(body) <= limit {
			answer.Body = body
			answer.Headers = append(answer.Headers, [2]string{LeftOutHeader, strings.Join(left, ", ")})
			return answer, nil
		}
	}
	return Response{}, problem(http.StatusInternalServerError, "answer-too-large",
		"the request was served, but its answer has %d bytes and at most %d can be sent; read it with GET /v1/jobs/%s", len(answer.Body), limit, r.job).job(r.job)
}

// response makes the answer of a problem; its body has at most limit bytes,
// which are enough for one without the places of faults: a member's name may
// be as long as the request.
func (p *Problem) response(limit int) Response {
	if body, err := jsonOf(p); err == nil && len(body) <= limit {
		return Response{Status: p.Status, Headers: p.allHeaders(), Body: body, Detail: p.Detail}
	}
	short := *p
	short.Errors, short.Detail = nil, ledger.ValidText(p.Detail)
	body, err := jsonOf(&short)
	if err != nil {
		panic("httpapi: a problem has no JSON: " + err.Error())
	}
	return Response{Status: p.Status, Headers: p.allHeaders(), Body: body, Detail: short.Detail}
}

func jsonOf(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := encodeJSON(&b, v); err != nil {
		return nil, fmt.Errorf("encode an answer: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
