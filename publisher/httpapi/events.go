package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"jobledger/ledger"
)

const (
	// LastEventHeader names the last event that a reader has seen.
	LastEventHeader = "Last-Event-ID"
	eventStream     = "text/event-stream"

	// maxStream is how long a stream lives; its reader goes on with a new one.
	maxStream = 30 * time.Minute
	// streamBuffer is what the system may keep for a reader that does not read,
	// in bytes; Linux takes twice as much.
	streamBuffer = 8 << 10
	// readersReturn is how long readers are asked to wait before they come
	// back, with a jitter of as much on top, so that they come one by one.
	readersReturn = time.Second
)

var paramLastEvent = &huma.Param{Name: LastEventHeader, In: "header",
	Description: "the id of the last event that the reader has seen: what is no news to it is left out", Schema: &huma.Schema{Type: "string"}}

// eventView is what an event says: the job as it is, without input and result,
// which may be big.
type eventView struct {
	ID          string         `json:"id" format:"uuid"`
	Owner       string         `json:"owner"`
	Kind        string         `json:"kind"`
	State       string         `json:"state" enum:"waiting,running,unknown,succeeded,failed,cancelled"`
	StateReason *string        `json:"state_reason"`
	Version     int64          `json:"version"`
	Failure     *failureView   `json:"failure"`
	CompletedBy *int           `json:"completed_by"`
	UpdatedAt   time.Time      `json:"updated_at"`
	Attempts    []eventAttempt `json:"attempts" doc:"the latest, at most 20"`
}

type eventAttempt struct {
	Number   int     `json:"number"`
	Provider string  `json:"provider"`
	State    string  `json:"state"`
	Reason   string  `json:"reason"`
	Failure  *string `json:"failure" doc:"its class"`
}

// maxEventAttempts bounds the attempts that an event shows, and so its size: a
// job may have a thousand.
const maxEventAttempts = 20

func viewEvent(j *ledger.Job) eventView {
	latest := j.Attempts[max(len(j.Attempts)-maxEventAttempts, 0):]
	v := eventView{
		ID: j.ID.String(), Owner: j.Owner, Kind: j.Kind, State: string(j.State), StateReason: optional(string(j.StateReason)),
		Version: j.Version, Failure: viewFailure(j.Failure), CompletedBy: optional(j.CompletedBy),
		UpdatedAt: j.UpdatedAt.UTC(), Attempts: make([]eventAttempt, len(latest)),
	}
	for i, at := range latest {
		v.Attempts[i] = eventAttempt{at.Number, at.Provider, string(at.State), string(at.Reason), optional(at.Failure.Class)}
	}
	return v
}

// streamJob is GET /v1/jobs/{id}/events.
func (a *API) streamJob(w http.ResponseWriter, r *http.Request, who Principal) error {
	id, err := jobID(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	seen, err := lastEvent(r)
	if err != nil {
		return err
	}
	if !a.streams.take() {
		return a.streams.full("streams of events").job(id)
	}
	defer a.streams.give()
	j, err := a.find(r.Context(), who, id)
	if err != nil {
		return err
	}
	w.Header().Set(JobHeader, id.String())
	found := j.News().Seq
	if j.State.Settled() && found <= seen {
		w.WriteHeader(http.StatusNoContent) // tells a browser not to come back
		return nil
	}
	s := &stream{a: a, w: w, conn: http.NewResponseController(w), watch: a.hub.watch(id), found: found, seen: seen}
	defer s.watch.leave()
	limitBuffer(r.Context())
	if err := s.begin(); err != nil {
		return fmt.Errorf("begin a stream of events: %w", err)
	}
	if r.Method == http.MethodHead {
		return nil
	}
	if err := s.follow(r.Context()); err != nil {
		a.log.Debug("a reader of events is gone or was too slow", "job", id, "request_id", w.Header().Get(RequestIDHeader), "error", err)
		panic(http.ErrAbortHandler) // nothing more can be said on this connection
	}
	return nil
}

// connKey is under which a request's context has its connection.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// limitBuffer bounds what the system keeps for a reader that does not read. It
// matters only under attack, so that a connection on which it fails is served.
func limitBuffer(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*net.TCPConn); ok {
		_ = c.SetWriteBuffer(streamBuffer)
	}
}

// lastEvent reads what the reader has seen last: 0 for nothing.
func lastEvent(r *http.Request) (uint64, error) {
	text := r.Header.Get(LastEventHeader)
	if text == "" {
		return 0, nil
	}
	seq, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, badRequest("bad-request", "%s is %s; expected the id of an event, which is a number", LastEventHeader, ledger.Quote(text))
	}
	return seq, nil
}

// A stream is one reader of a job's events. It keeps none for its reader: what a
// slow one misses the next event says as well. While an event is written, the
// stream holds it together with all others of the job.
type stream struct {
	a     *API
	w     http.ResponseWriter
	conn  *http.ResponseController
	watch *watch
	found uint64 // the sequence at which the job was found when the reader came
	seen  uint64 // the sequence of the last event that was written
}

// begin writes the header, and when to come back after the stream has ended.
func (s *stream) begin() error {
	if err := s.deadline(); err != nil {
		return err
	}
	h := s.w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("X-Accel-Buffering", "no") // a proxy passes events on at once
	s.w.WriteHeader(http.StatusOK)
	back := readersReturn + rand.N(readersReturn)
	return s.write(fmt.Appendf(nil, "retry: %d\n\n", back.Milliseconds()))
}

// follow writes the job as it is, unless the reader has seen that, and every
// change, until the job is settled. It returns an error if the reader does not
// take them.
func (s *stream) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, maxStream)
	defer cancel()
	alive := time.NewTicker(s.a.opts.KeepAlive)
	defer alive.Stop()
	for {
		news, changed := s.watch.look()
		newest := max(news.Seq, s.found) // others' news may be older than what was found
		switch {
		case newest > s.seen:
			over, err := s.tell(ctx, newest)
			if over || err != nil {
				return err
			}
			continue
		case news.State.Settled():
			return nil
		}
		select {
		case <-changed:
		case <-alive.C:
			if err := s.write([]byte(": alive\n\n")); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		case <-s.a.closing:
			return nil
		}
	}
}

// tell writes the job as it is now, with the entry newest or later; over: it is
// settled, so that this was the last event. A job that cannot be read ends the
// stream: the reader comes back.
func (s *stream) tell(ctx context.Context, newest uint64) (over bool, err error) {
	e, err := s.watch.event(ctx, newest, s.a.readEvent)
	switch {
	case ctx.Err() != nil:
		return true, nil
	case err != nil:
		s.a.log.Warn("a job could not be read for a stream of events", "job", s.watch.job, "error", err)
		return true, nil
	case e.seq <= s.seen:
		return !s.a.pause(ctx, readAgain), nil // read from a replica that is behind
	}
	s.seen = e.seq
	return e.settled, s.write(e.text)
}

// An event is what streams say of a job.
type event struct {
	seq     uint64 // of the entry that changed the job last
	text    []byte
	settled bool
}

// readEvent makes the event of the job as it is.
func (a *API) readEvent(ctx context.Context, job uuid.UUID) (*event, error) {
	j, err := a.opts.Reader.Job(ctx, job)
	if err != nil {
		return nil, err
	}
	if j == nil {
		return nil, errors.New("the job is not there any more")
	}
	e := &event{seq: j.News().Seq, settled: j.State.Settled()}
	var b bytes.Buffer
	fmt.Fprintf(&b, "id: %d\ndata: ", e.seq)
	enc := json.NewEncoder(&b) // ends with the line feed that an event's line needs
	enc.SetEscapeHTML(false)
	if err := enc.Encode(viewEvent(j)); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	e.text = b.Bytes()
	return e, nil
}

// write writes and flushes, within the time that a slow reader has.
func (s *stream) write(b []byte) error {
	if err := s.deadline(); err != nil {
		return err
	}
	if _, err := s.w.Write(b); err != nil {
		return err
	}
	return s.conn.Flush()
}

func (s *stream) deadline() error {
	return s.conn.SetWriteDeadline(time.Now().Add(s.a.opts.SlowReader))
}
