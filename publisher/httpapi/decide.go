package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
	"jobledger/publisher"
)

// undecided says that an entry is appended and that its decision is not known
// yet: the answer is 202.
type undecided struct {
	job uuid.UUID
	seq uint64
}

func (u *undecided) Error() string {
	return "entry " + strconv.FormatUint(u.seq, 10) + " is not decided yet"
}

// decide appends an entry about a job and returns the fold's answer. recall, if
// not nil, looks in the tables for what became of the same entry, appended
// before with the sequence seq; false says that it left nothing. Without it the
// entry is appended once more: the fold recognises what was done already.
func (a *API) decide(ctx context.Context, job uuid.UUID, m ledger.Message, recall func(ctx context.Context, seq uint64) (ledger.Answer, bool, error)) (ledger.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, a.opts.DecisionWait)
	defer cancel()
	answer, err := a.opts.Decider.Decide(ctx, m)
	var before *publisher.DuplicateAppendError
	if errors.Is(err, publisher.ErrFull) && recall != nil {
		// What the tables know already needs no room in the stream.
		if answer, known, recallErr := recall(ctx, 0); known && recallErr == nil {
			return answer, nil
		}
	}
	if errors.As(err, &before) {
		if recall != nil {
			answer, known, err := recall(ctx, before.Seq)
			if known || err != nil {
				return answer, err
			}
		}
		answer, err = a.opts.Decider.DecideFresh(ctx, m)
		if errors.As(err, &before) { // its answer was lost; it is stored
			return ledger.Answer{}, &undecided{job, before.Seq}
		}
	}
	return answer, appendFault(job, err)
}

// appendFault makes the answer of what went wrong on the way into the stream.
func appendFault(job uuid.UUID, err error) error {
	var none *publisher.NoDecisionError
	var size *publisher.TooLargeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &none):
		return &undecided{job, none.Seq}
	case errors.As(err, &size):
		return tooLarge("%v", size).job(job)
	case errors.Is(err, publisher.ErrFull) && errors.Is(err, publisher.ErrNotAppended):
		return streamFull(err).job(job)
	case errors.Is(err, publisher.ErrUnconfirmed):
		return problem(http.StatusServiceUnavailable, "append-unconfirmed",
			"the request may be stored, and no answer came; repeat it as it is, with the same key, to know").job(job)
	case errors.Is(err, publisher.ErrNotAppended):
		return problem(http.StatusServiceUnavailable, "not-appended",
			"the request is not stored, because the ledger's stream did not take it; repeat it later").job(job)
	}
	return err
}

// fullRetryAfter is what callers are asked to wait when the stream is full, in
// seconds: a person has to make room.
const fullRetryAfter = 30

// streamFull says that nothing was stored because there is no room for it.
func streamFull(err error) *Problem {
	detail := "its server has no room left, and an operator must give it more"
	var full *publisher.FullError
	if errors.As(err, &full) {
		detail = full.Error()
	}
	return problem(http.StatusServiceUnavailable, "stream-full", "the request is not stored: %s; repeat it later", detail).
		header("Retry-After", strconv.Itoa(fullRetryAfter))
}

// rejected makes the problem of an answer that is not accepted or duplicate,
// nil of one that is.
func rejected(id uuid.UUID, answer ledger.Answer) *Problem {
	if !answer.Decision.Rejects() {
		return nil
	}
	status, name := rejectionStatus(answer), strings.ReplaceAll(string(answer.Reason), "_", "-")
	switch {
	case status == http.StatusNotFound:
		name = "not-found"
	case name == "":
		name = string(answer.Decision)
	}
	p := problem(status, name, "%s", answer.Detail).job(id)
	p.Attempt = answer.Attempt
	return p
}

func rejectionStatus(answer ledger.Answer) int {
	switch answer.Reason {
	case ledger.UnknownJob, ledger.UnknownAttempt:
		return http.StatusNotFound
	case ledger.UnknownKind, ledger.UnknownProvider, ledger.BadEntry, ledger.UnknownEntry, ledger.UnsupportedVersion:
		return http.StatusBadRequest
	case ledger.TooLarge:
		return http.StatusRequestEntityTooLarge
	case ledger.Forbidden:
		return http.StatusForbidden
	}
	return http.StatusConflict
}

const (
	// rereadWait bounds the wait for a row that the decision says is there: a
	// replica of the database may lag.
	rereadWait  = time.Second
	rereadPause = 20 * time.Millisecond
)

// jobAfter reads a job after the decision on an entry about it.
func (a *API) jobAfter(ctx context.Context, answer ledger.Answer, id uuid.UUID) (*ledger.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, rereadWait)
	defer cancel()
	for {
		j, err := a.opts.Reader.Job(ctx, id)
		switch {
		case err == nil && j != nil && j.Version >= answer.Version && len(j.Attempts) >= answer.Attempt:
			return j, nil
		case err != nil && ctx.Err() == nil:
			a.log.Warn("a job could not be read after a decision on it", "job", id, "seq", answer.Seq, "error", err)
			return nil, &undecided{id, answer.Seq}
		}
		if !a.pause(ctx, rereadPause) {
			return nil, &undecided{id, answer.Seq}
		}
	}
}

// pause waits for d; false: ctx ended, or waits are to end.
func (a *API) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-a.closing:
	}
	return false
}
