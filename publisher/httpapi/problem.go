package httpapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// problemType is what every problem's type starts with.
const problemType = "urn:jobledger:problem:"

// A Problem is an RFC 9457 answer, and an error.
type Problem struct {
	Type   string `json:"type" doc:"urn:jobledger:problem:<name>"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty" doc:"what was found, what was expected, what to do"`
	JobID  string `json:"job_id,omitempty"`
	// Attempt is the number of the attempt concerned; 0: none.
	Attempt   int         `json:"attempt,omitempty"`
	State     string      `json:"state,omitempty" doc:"of the attempt, or of the job where no attempt is named"`
	Since     *time.Time  `json:"since,omitempty" doc:"since when the attempt is in that state"`
	Deadline  *time.Time  `json:"deadline,omitempty" doc:"of the attempt"`
	Errors    []Detail    `json:"errors,omitempty"`
	RequestID string      `json:"request_id,omitempty"`
	headers   [][2]string // more headers of the answer
}

// A Detail is one fault in a request.
type Detail struct {
	Detail  string `json:"detail"`
	Pointer string `json:"pointer" doc:"JSON Pointer into the body, or into the input for schema faults"`
}

func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Type, p.Detail) }

// problem makes a Problem; name is the last part of its type.
func problem(status int, name, format string, args ...any) *Problem {
	return &Problem{Type: problemType + name, Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// at names the place in the body that is at fault.
func (p *Problem) at(pointer, detail string) *Problem {
	p.Errors = append(p.Errors, Detail{Detail: detail, Pointer: pointer})
	return p
}

// job names the job that the problem is about.
func (p *Problem) job(id uuid.UUID) *Problem {
	if id != (uuid.UUID{}) {
		p.JobID = id.String()
	}
	return p
}

func (p *Problem) header(name, value string) *Problem {
	p.headers = append(p.headers, [2]string{name, value})
	return p
}

func badRequest(name, format string, args ...any) *Problem {
	return problem(http.StatusBadRequest, name, format, args...)
}

func internalProblem(requestID string) *Problem {
	p := problem(http.StatusInternalServerError, "internal", "the request ran into a fault of the ledger; it is %s in its logs", requestID)
	p.RequestID = requestID
	return p
}

func noJob(id uuid.UUID) *Problem {
	return problem(http.StatusNotFound, "not-found", "there is no job %s", id).job(id)
}

// Headers of answers.
const (
	JobHeader      = "Ledger-Job-Id"
	ReplayedHeader = "Idempotent-Replayed"
)

// retryAfter is what callers are asked to wait, in seconds.
const retryAfter = 1

// write answers with the problem.
func (a *API) write(w http.ResponseWriter, p *Problem) {
	for _, h := range p.headers {
		w.Header().Set(h[0], h[1])
	}
	if p.JobID != "" {
		w.Header().Set(JobHeader, p.JobID)
	}
	if p.Status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	a.send(w, p.Status, "application/problem+json", p)
}

// allHeaders returns the headers of the answer, besides its type.
func (p *Problem) allHeaders() [][2]string {
	list := slices.Clone(p.headers)
	if p.JobID != "" {
		list = append(list, [2]string{JobHeader, p.JobID})
	}
	if p.Status == http.StatusServiceUnavailable {
		list = append(list, [2]string{"Retry-After", strconv.Itoa(retryAfter)})
	}
	return list
}

// send writes a JSON answer. A client that is gone is its own business.
func (a *API) send(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	if err := encodeJSON(w, v); err != nil {
		a.log.Debug("an answer could not be written", "request_id", w.Header().Get(RequestIDHeader), "error", err)
	}
}

// encodeJSON leaves <, > and & as they are: nobody reads it as HTML.
func encodeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func (a *API) sendJSON(w http.ResponseWriter, status int, v any) {
	a.send(w, status, "application/json", v)
}
