package metrics

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"jobledger/internal/httpstatus"
	"jobledger/ledger"
	"jobledger/projector"
	"jobledger/publisher"
)

var (
	_ publisher.Observer = (*Metrics)(nil)
	_ projector.Observer = (*Metrics)(nil)
)

// Outcomes of appends and of what waits for a decision.
const (
	outcomeStored      = "stored"
	outcomeDuplicate   = "duplicate"
	outcomeNotAppended = "not_appended"
	outcomeUnconfirmed = "unconfirmed"
	outcomeUndecided   = "undecided"
)

// entryOf splits a subject into what labels say of it.
func entryOf(subject string) (kind ledger.EntryKind, token string) {
	kind, token, err := ledger.ParseSubject(subject)
	if err != nil {
		return otherWord, ""
	}
	return kind, token
}

// Appended implements publisher.Observer.
func (m *Metrics) Appended(subject string, ack publisher.Ack, err error, took time.Duration) {
	entry, _ := entryOf(subject)
	m.appends.WithLabelValues(string(entry), appendOutcome(ack, err)).Inc()
	m.appendSeconds.WithLabelValues(string(entry)).Observe(took.Seconds())
}

func appendOutcome(ack publisher.Ack, err error) string {
	switch {
	case err == nil && ack.Duplicate:
		return outcomeDuplicate
	case err == nil:
		return outcomeStored
	case errors.Is(err, publisher.ErrUnconfirmed):
		return outcomeUnconfirmed
	}
	return outcomeNotAppended
}

// Decided implements publisher.Observer.
func (m *Metrics) Decided(subject string, answer ledger.Answer, err error, took time.Duration) {
	decision := m.decisionOf(answer, err)
	switch entry, token := entryOf(subject); entry {
	case ledger.JobRequest:
		m.submissions.WithLabelValues(decision).Inc()
		m.submitSeconds.Observe(took.Seconds())
	case ledger.AttemptClaim:
		provider := m.providers.bound(token)
		m.claims.WithLabelValues(provider, decision, m.reasons.bound(string(answer.Reason))).Inc()
		m.claimSeconds.WithLabelValues(provider).Observe(took.Seconds())
	default: // appends says enough of what people do now and then
	}
}

func (m *Metrics) decisionOf(answer ledger.Answer, err error) string {
	switch {
	case err == nil:
		return m.reasons.bound(string(answer.Decision))
	case errors.Is(err, publisher.ErrDuplicateAppend):
		return outcomeDuplicate
	case errors.Is(err, publisher.ErrNoDecision):
		return outcomeUndecided
	}
	return appendOutcome(publisher.Ack{}, err)
}

// Committed implements projector.Observer.
func (m *Metrics) Committed(r projector.CommitReport) {
	entries := 0
	for f, n := range r.Folded {
		entries += n
		m.entries.WithLabelValues(string(f.Entry), string(f.Decision), m.reasons.bound(string(f.Reason))).Add(float64(n))
		if f.Entry == ledger.AttemptComplete && f.Reason == ledger.ResultAlreadyClaimed {
			m.races.Add(float64(n))
		}
	}
	if !r.Oldest.IsZero() {
		m.batches.Observe(float64(entries))
		// Two clocks: the server's and this machine's.
		m.applySeconds.Observe(max(time.Since(r.Oldest), 0).Seconds())
	}
	m.commitSeconds.Observe(r.Took.Seconds())
	m.checkpoints.WithLabelValues(shardName(r.Shard)).Set(float64(r.Seq))
	m.late.WithLabelValues(shardName(r.Shard)).Set(float64(r.Late))
}

// Ended returns the hook workers.Options.Ended for a provider.
func (m *Metrics) Ended(provider string) func(kind string, outcome ledger.Outcome, took time.Duration) {
	provider = m.providers.bound(provider)
	return func(kind string, outcome ledger.Outcome, took time.Duration) {
		kind = m.kinds.bound(kind)
		m.attempts.WithLabelValues(provider, kind, string(outcome)).Inc()
		m.attemptSeconds.WithLabelValues(provider, kind).Observe(took.Seconds())
	}
}

// Handler counts the requests that next serves, by the route that its mux
// leaves in the request.
func (m *Metrics) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, answer := time.Now(), httpstatus.New(w)
		m.requestsPending.Inc()
		defer func() { // a cut answer is counted as well
			m.requestsPending.Dec()
			route := r.Pattern
			if route == "" {
				route = "none"
			}
			m.requests.WithLabelValues(route, strconv.Itoa(answer.Status())).Inc()
			m.requestSeconds.WithLabelValues(route).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(answer, r)
	})
}

// Served counts a request to a NATS service.
func (m *Metrics) Served(operation string, status int, took time.Duration) {
	m.services.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	m.serviceSeconds.WithLabelValues(operation).Observe(took.Seconds())
}
