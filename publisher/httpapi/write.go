package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// KeyHeader carries the idempotency key, verbatim.
const KeyHeader = "Idempotency-Key"

// idempotencyKey reads the key, which is taken as it is, quotes included.
func idempotencyKey(r *http.Request) (string, error) {
	const name = "bad-idempotency-key"
	values := r.Header.Values(KeyHeader)
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", badRequest(name, "the header %s is missing; give every intent a key of its own", KeyHeader)
	case len(values) > 1:
		return "", badRequest(name, "the header %s stands there %d times; expected once", KeyHeader, len(values))
	}
	key := values[0]
	if len(key) > ledger.MaxIdentBytes {
		return "", badRequest(name, "the idempotency key has %d bytes; at most %d are allowed", len(key), ledger.MaxIdentBytes)
	}
	for i, c := range []byte(key) {
		if c < ' ' || c > '~' {
			return "", badRequest(name, "the idempotency key has the byte 0x%02x at %d; expected visible ASCII and inner spaces", c, i)
		}
	}
	if err := ledger.CheckIdent("the idempotency key", key); err != nil {
		return "", badRequest(name, "%v", err)
	}
	return key, nil
}

// submit is POST /v1/jobs.
func (a *API) submit(w http.ResponseWriter, r *http.Request, who Principal) error {
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	list, err := readFields(w, r, submitMembers...)
	if err != nil {
		return err
	}
	done, err := a.submitJob(r.Context(), who, key, list)
	return a.reply(w, done, err)
}

// submitJob appends the request that the members of a body make, and answers
// with the job.
func (a *API) submitJob(ctx context.Context, who Principal, key string, list []field) (*result, error) {
	text := newEntryText().text("owner", who.Owner).text("key", key).text("actor", who.Actor)
	entry, err := text.decode(ledger.JobRequest, list)
	if err != nil {
		return nil, err
	}
	request := entry.Body.(*ledger.Request)
	id := ledger.JobID(request.Owner, request.Key)
	if faults := a.inputFaults(ctx, request); len(faults) > 0 && !a.exists(ctx, id) {
		p := problem(http.StatusUnprocessableEntity, "invalid-input", "the input does not fit the schema of kind %s", request.Kind).job(id)
		p.Errors = faults
		return nil, p
	}
	answer, err := a.decide(ctx, id, request.Message(), func(ctx context.Context, seq uint64) (ledger.Answer, bool, error) {
		return a.recallRequest(ctx, id, request, seq)
	})
	if err != nil {
		return nil, err
	}
	if answer.Reason == ledger.IdempotencyConflict {
		return nil, problem(http.StatusConflict, "idempotency-conflict",
			"the key names the job %s already, with another intent; a new intent needs a new key, and another provider is tried with POST /v1/jobs/%s/attempts", id, id).job(id)
	}
	if p := rejected(id, answer); p != nil {
		return nil, p
	}
	j, err := a.jobAfter(ctx, answer, id)
	if err != nil {
		return nil, err
	}
	return created(answer.Decision, j.ID, "/v1/jobs/"+j.ID.String(), viewJob(j)), nil
}

func (a *API) inputFaults(ctx context.Context, request *ledger.Request) []Detail {
	if a.opts.Inputs == nil {
		return nil
	}
	return a.opts.Inputs.CheckInput(ctx, request.Kind, request.Input)
}

// exists reports whether there is a job: what it was accepted with may break a
// schema that came later, and the same request again must find it.
func (a *API) exists(ctx context.Context, id uuid.UUID) bool {
	j, err := a.opts.Reader.Job(ctx, id)
	if err != nil {
		a.log.Warn("a job could not be looked for", "job", id, "error", err)
	}
	return j != nil
}

// recallRequest finds out what became of the same request, appended before. If
// it was refused, there is no job.
func (a *API) recallRequest(ctx context.Context, id uuid.UUID, request *ledger.Request, seq uint64) (ledger.Answer, bool, error) {
	if err := a.applied.await(ctx, id, seq); err != nil {
		return ledger.Answer{}, false, &undecided{id, seq}
	}
	j, err := a.opts.Reader.Job(ctx, id)
	if err != nil {
		a.log.Warn("a job could not be read", "job", id, "seq", seq, "error", err)
		return ledger.Answer{}, false, &undecided{id, seq}
	}
	if j == nil {
		return ledger.Answer{}, false, nil
	}
	answer := ledger.Answer{Seq: seq, Decision: ledger.Duplicate, Job: id, State: j.State, Version: j.Version}
	if j.Fingerprint != request.Fingerprint {
		answer.Decision, answer.Reason = ledger.Conflict, ledger.IdempotencyConflict
	}
	return answer, true, nil
}

// startAttempt is POST /v1/jobs/{id}/attempts, the fallback button.
func (a *API) startAttempt(w http.ResponseWriter, r *http.Request, who Principal) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	list, err := readFields(w, r, startMembers...)
	if err != nil {
		return err
	}
	done, err := a.startAnother(r.Context(), who, id, key, list)
	return a.reply(w, done, err)
}

// startAnother asks for another attempt of a job, and answers with the attempt.
func (a *API) startAnother(ctx context.Context, who Principal, id uuid.UUID, key string, list []field) (*result, error) {
	text := newEntryText().text("job", id.String()).text("owner", who.limit()).text("key", key).text("actor", who.Actor)
	entry, err := text.decode(ledger.AttemptRequest, list)
	if err != nil {
		return nil, err
	}
	ask := entry.Body.(*ledger.AttemptAsk)
	if ask.Force && !who.Operator {
		return nil, problem(http.StatusForbidden, "forbidden", "only an operator may force a start on an unverified provider, with jobledger attempt start --force or over HTTP").job(id)
	}
	answer, err := a.decide(ctx, id, ask.Message(), nil)
	if err != nil {
		return nil, err
	}
	if p := rejected(id, answer); p != nil {
		return nil, a.describeAttempt(ctx, p, id, answer)
	}
	j, err := a.jobAfter(ctx, answer, id)
	if err != nil {
		return nil, err
	}
	at := j.Attempt(answer.Attempt)
	if at == nil {
		return nil, fmt.Errorf("the decision on entry %d names no attempt of job %s", answer.Seq, id)
	}
	return created(answer.Decision, id, fmt.Sprintf("/v1/jobs/%s/attempts/%d", id, at.Number), viewAttempt(at)), nil
}

// limit returns the owner to whose jobs the principal is limited, "" for none.
// It goes into entries, so that the fold checks it again.
func (p Principal) limit() string {
	if p.Operator {
		return ""
	}
	return p.Owner
}

// describeAttempt adds to a refusal what the attempt that it names is doing.
func (a *API) describeAttempt(ctx context.Context, p *Problem, id uuid.UUID, answer ledger.Answer) *Problem {
	if answer.Reason != ledger.AttemptInFlight {
		return p
	}
	j, err := a.jobAfter(ctx, answer, id)
	if err != nil || j.Attempt(answer.Attempt) == nil {
		return p // the refusal stands without it
	}
	at := j.Attempt(answer.Attempt)
	p.State, p.Since, p.Deadline = string(at.State), optionalTime(at.RequestedAt), optionalTime(at.StartBy)
	switch at.State {
	case ledger.AttemptStarting:
	case ledger.AttemptUnknown:
		p.Since, p.Deadline = optionalTime(at.UnknownSince), optionalTime(at.Deadline)
	default:
		p.Since, p.Deadline = optionalTime(at.StartedAt), optionalTime(at.Deadline)
	}
	return p
}

// cancel is POST /v1/jobs/{id}/cancel.
func (a *API) cancel(w http.ResponseWriter, r *http.Request, who Principal) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	list, err := readFields(w, r, cancelMembers...)
	if err != nil {
		return err
	}
	done, err := a.cancelJob(r.Context(), who, id, list)
	return a.reply(w, done, err)
}

func (a *API) cancelJob(ctx context.Context, who Principal, id uuid.UUID, list []field) (*result, error) {
	text := newEntryText().text("job", id.String()).text("owner", who.limit()).text("actor", who.Actor)
	return a.change(ctx, id, text, ledger.JobCancel, list)
}

// resolve is POST /v1/jobs/{id}/attempts/{n}/resolve.
func (a *API) resolve(w http.ResponseWriter, r *http.Request, who Principal) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	n, err := attemptNumber(r, id)
	if err != nil {
		return err
	}
	if !who.Operator { // nobody else's body is read
		return problem(http.StatusForbidden, "forbidden", "only an operator may resolve an attempt").job(id)
	}
	list, err := readFields(w, r, resolveMembers...)
	if err != nil {
		return err
	}
	done, err := a.resolveAttempt(r.Context(), who, id, n, list)
	return a.reply(w, done, err)
}

// resolveAttempt is for operators: its callers have made sure of that.
func (a *API) resolveAttempt(ctx context.Context, who Principal, id uuid.UUID, n int, list []field) (*result, error) {
	text := newEntryText().text("job", id.String()).text("actor", who.Actor)
	text.raw("attempt", []byte(strconv.Itoa(n)))
	return a.change(ctx, id, text, ledger.AttemptResolve, list)
}

// change appends an entry about a job and answers with the job.
func (a *API) change(ctx context.Context, id uuid.UUID, text *entryText, kind ledger.EntryKind, list []field) (*result, error) {
	entry, err := text.decode(kind, list)
	if err != nil {
		return nil, err
	}
	answer, err := a.decide(ctx, id, entry.Body.Message(), nil)
	if err != nil {
		return nil, err
	}
	if p := rejected(id, answer); p != nil {
		return nil, p
	}
	j, err := a.jobAfter(ctx, answer, id)
	if err != nil {
		return nil, err
	}
	return &result{status: http.StatusOK, job: id, replayed: answer.Decision == ledger.Duplicate, body: viewJob(j)}, nil
}

// readFields reads the members of the body; an empty body has none.
func readFields(w http.ResponseWriter, r *http.Request, allowed ...string) ([]field, error) {
	body, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	return bodyFields(body, allowed...)
}

func bodyFields(body []byte, allowed ...string) ([]field, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil
	}
	return fields(body, allowed...)
}

func jobID(r *http.Request) (uuid.UUID, error) {
	id, err := parseJobID(r.PathValue("id"))
	if err != nil {
		return uuid.UUID{}, badRequest("bad-request", "%v", err)
	}
	return id, nil
}

func parseJobID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(id.String()) {
		return uuid.UUID{}, fmt.Errorf("%s is not a job's id; expected a UUID of 36 characters", ledger.Quote(text))
	}
	return id, nil
}

func attemptNumber(r *http.Request, id uuid.UUID) (int, error) {
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil || n < 1 || n > ledger.MaxAttemptsPerJob {
		return 0, noAttempt(id, r.PathValue("n"))
	}
	return n, nil
}

func noAttempt(id uuid.UUID, n string) *Problem {
	return problem(http.StatusNotFound, "not-found", "the job %s has no attempt %s", id, ledger.Quote(n)).job(id)
}
