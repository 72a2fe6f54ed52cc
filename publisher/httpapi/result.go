package httpapi

import (
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// The members of the bodies of requests.
var (
	submitMembers  = []string{"kind", "input", "provider", "run_at", "delay"}
	startMembers   = []string{"provider", "force"}
	cancelMembers  = []string{"reason"}
	resolveMembers = []string{"as", "result", "if", "reason"}
)

// A result is what a request is answered with, whatever door it came through.
type result struct {
	status   int
	job      uuid.UUID
	location string // the path of what was made; "": nothing was
	replayed bool   // the same had been done before
	body     any    // to be written as JSON
}

// created is the result of a request that has made what is at location, now or
// when it was first sent.
func created(decision ledger.Decision, job uuid.UUID, location string, body any) *result {
	r := &result{status: http.StatusCreated, job: job, location: location, body: body}
	if decision == ledger.Duplicate {
		r.status, r.replayed = http.StatusOK, true
	}
	return r
}

// result is the answer to a request whose decision is not known yet.
func (u *undecided) result() *result {
	return &result{status: http.StatusAccepted, job: u.job, body: pendingView{ID: u.job.String(), Seq: u.seq}}
}

// headers are those of the answer that say something of the job.
func (r *result) headers() [][2]string {
	list := [][2]string{{JobHeader, r.job.String()}}
	if r.location != "" {
		list = append(list, [2]string{"Location", r.location})
	}
	if r.replayed {
		list = append(list, [2]string{ReplayedHeader, "true"})
	}
	if r.status == http.StatusAccepted {
		list = append(list, [2]string{"Retry-After", strconv.Itoa(retryAfter)})
	}
	return list
}

// reply answers with a result, unless there is an error, which it returns.
func (a *API) reply(w http.ResponseWriter, r *result, err error) error {
	if err == nil {
		a.sendResult(w, r)
	}
	return err
}

func (a *API) sendResult(w http.ResponseWriter, r *result) {
	for _, h := range r.headers() {
		w.Header().Set(h[0], h[1])
	}
	a.sendJSON(w, r.status, r.body)
}
