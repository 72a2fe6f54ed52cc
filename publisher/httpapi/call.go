package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"sync"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// An Operation is what can be asked for through a door that has neither paths
// nor headers: the body says all, as HTTP's does, and besides whose job it is
// about and which.
type Operation string

// The operations; the names are the ends of the services' subjects.
const (
	JobSubmit      Operation = "job.submit"
	JobGet         Operation = "job.get"
	JobCancel      Operation = "job.cancel"
	AttemptStart   Operation = "attempt.start"
	AttemptResolve Operation = "attempt.resolve"
)

// Operations returns all operations.
func Operations() []Operation {
	return []Operation{JobSubmit, JobGet, JobCancel, AttemptStart, AttemptResolve}
}

// Call does what the body asks for. The caller has made sure that whoever asks
// may act for the owner whom the body names, and for AttemptResolve that it is
// an operator. For all else it has a producer's rights: it sees and touches the
// owner's jobs only, and cannot force. A body of an answer has at most limit
// bytes: see fit. Before it waits for a job, it calls waits, if that is not nil:
// it has one of the places for those who wait then, which are bounded for all
// doors together, and the body is not needed any more.
func (a *API) Call(ctx context.Context, op Operation, body []byte, limit int, waits func()) (answer Response) {
	id := rand.Text()
	defer func() {
		if reason := recover(); reason != nil {
			a.log.Error("a request handler panicked", "request_id", id, "operation", op,
				"panic", fmt.Sprint(reason), "stack", string(debug.Stack()))
			answer = internalProblem(id).response(limit)
		}
	}()
	done, err := a.call(ctx, op, body, waits)
	var later *undecided
	if errors.As(err, &later) {
		done, err = later.result(), nil
	}
	if err == nil {
		answer, err = done.response(limit)
	}
	if err != nil {
		return a.problemOf(ctx, err, id, "operation", op).response(limit)
	}
	return answer
}

func (a *API) call(ctx context.Context, op Operation, body []byte, waits func()) (*result, error) {
	if len(body) > ledger.MaxRequestBytes {
		return nil, tooLarge("the body has %d bytes; at most %d are allowed", len(body), ledger.MaxRequestBytes)
	}
	release, err := a.admit(ctx, int64(len(body)))
	if err != nil {
		return nil, err
	}
	release = sync.OnceFunc(release)
	defer release()
	serve, ok := calls[op]
	if !ok {
		return nil, problem(http.StatusNotFound, "not-found", "there is no operation %s", ledger.Quote(string(op)))
	}
	c, err := readCall(body, serve.members)
	if err != nil {
		return nil, err
	}
	c.waits = func() {
		release()
		if waits != nil {
			waits()
		}
	}
	return serve.do(a, ctx, c)
}

// calls says for each operation which members its body may have besides the
// owner, and who answers.
var calls = map[Operation]struct {
	members []string
	do      func(*API, context.Context, *called) (*result, error)
}{
	JobSubmit:      {append([]string{"key", "actor"}, submitMembers...), (*API).callSubmit},
	JobGet:         {[]string{"job", "key", "wait", "until"}, (*API).callGet},
	JobCancel:      {append([]string{"job", "key", "actor"}, cancelMembers...), (*API).callCancel},
	AttemptStart:   {append([]string{"job", "key", "actor"}, startMembers...), (*API).callStart},
	AttemptResolve: {append([]string{"job", "key", "attempt", "actor"}, resolveMembers...), (*API).callResolve},
}

// called is the body of a call: what HTTP has elsewhere, and the rest.
type called struct {
	who     Principal
	key     string // "": none
	job     uuid.UUID
	attempt int // 0: none
	texts   url.Values
	rest    []field
	waits   func() // to be called before a wait
}

// readCall takes the body of a call apart.
func readCall(body []byte, members []string) (*called, error) {
	list, err := bodyFields(body, append([]string{"owner"}, members...)...)
	if err != nil {
		return nil, err
	}
	c := &called{texts: url.Values{}}
	for _, f := range list {
		switch f.name {
		case "owner", "key", "job", "actor", "wait", "until":
			var text string
			if json.Unmarshal(f.raw, &text) != nil || f.raw[0] != '"' {
				return nil, badMember(f.name, "it is no text")
			}
			c.texts.Set(f.name, text)
		case "attempt":
			n, err := strconv.Atoi(string(f.raw))
			if err != nil || n < 1 || n > ledger.MaxAttemptsPerJob {
				return nil, badMember(f.name, "%s; expected a number from 1 to %d", ledger.Quote(string(f.raw)), ledger.MaxAttemptsPerJob)
			}
			c.attempt = n
		default:
			c.rest = append(c.rest, f)
		}
	}
	return c, c.check()
}

// check looks at what the members say of whose job it is, and which.
func (c *called) check() error {
	owner, actor := c.texts.Get("owner"), c.texts.Get("actor")
	if owner == "" {
		return problem(http.StatusUnauthorized, "unauthorized", "the member owner is missing; it says whose job this is").at("/owner", "it is missing")
	}
	if err := ledger.CheckIdent("the owner", owner); err != nil {
		return badRequest("bad-owner", "%v", err).at("/owner", err.Error())
	}
	if actor == "" {
		actor = owner
	}
	c.who = Principal{Owner: owner, Actor: "nats:" + actor}
	if c.texts.Has("key") {
		c.key = c.texts.Get("key")
		if err := ledger.CheckIdent("the idempotency key", c.key); err != nil {
			return badKey(err.Error())
		}
	}
	if c.texts.Has("job") {
		var err error
		if c.job, err = parseJobID(c.texts.Get("job")); err != nil {
			return badMember("job", "%v", err)
		}
	}
	return nil
}

func badMember(name, format string, args ...any) *Problem {
	detail := fmt.Sprintf(format, args...)
	return badRequest("bad-request", "/%s: %s", name, detail).at("/"+name, detail)
}

func badKey(detail string) *Problem {
	return badRequest("bad-idempotency-key", "%s", detail).at("/key", detail)
}

// needKey insists on an idempotency key.
func (c *called) needKey() error {
	if c.key == "" {
		return badKey("the member key is missing; give every intent a key of its own")
	}
	return nil
}

// named returns the job that the body names, by its id or by its key.
func (c *called) named() (uuid.UUID, error) {
	switch byID, byKey := c.texts.Has("job"), c.key != ""; {
	case byID && byKey:
		return uuid.UUID{}, badMember("job", "the job is named by its key as well; leave one of the two out")
	case byID:
		return c.job, nil
	case byKey:
		return ledger.JobID(c.who.Owner, c.key), nil
	}
	return uuid.UUID{}, badMember("job", "it is missing; name the job by its id, or by the member key")
}

func (a *API) callSubmit(ctx context.Context, c *called) (*result, error) {
	if err := c.needKey(); err != nil {
		return nil, err
	}
	return a.submitJob(ctx, c.who, c.key, c.rest)
}

func (a *API) callGet(ctx context.Context, c *called) (*result, error) {
	id, err := c.named()
	if err != nil {
		return nil, err
	}
	wait, err := waitOf(c.texts)
	if err != nil {
		return nil, err
	}
	enough, err := untilOf(c.texts)
	if err != nil {
		return nil, err
	}
	j, err := a.find(ctx, c.who, id)
	if err == nil && wait > 0 && !enough(j) {
		j, err = a.waitFor(ctx, j, wait, enough, c.waits)
	}
	if err != nil {
		return nil, err
	}
	return &result{status: http.StatusOK, job: id, body: a.viewWhole(ctx, j)}, nil
}

func (a *API) callCancel(ctx context.Context, c *called) (*result, error) {
	id, err := c.named()
	if err != nil {
		return nil, err
	}
	return a.cancelJob(ctx, c.who, id, c.rest)
}

// callStart needs the job's id: the key is that of the wish.
func (a *API) callStart(ctx context.Context, c *called) (*result, error) {
	if !c.texts.Has("job") {
		return nil, badMember("job", "it is missing; expected the job's id (the member key is the wish's own)")
	}
	if err := c.needKey(); err != nil {
		return nil, err
	}
	return a.startAnother(ctx, c.who, c.job, c.key, c.rest)
}

func (a *API) callResolve(ctx context.Context, c *called) (*result, error) {
	id, err := c.named()
	if err != nil {
		return nil, err
	}
	if c.attempt == 0 {
		return nil, badMember("attempt", "it is missing; expected the attempt's number")
	}
	// An operator may touch every job, but here it has said whose it means.
	if _, err := a.find(ctx, c.who, id); err != nil {
		return nil, err
	}
	return a.resolveAttempt(ctx, c.who, id, c.attempt, c.rest)
}
