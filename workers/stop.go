package workers

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"jobledger/ledger"
)

// listenForStops ends calls that are named on the provider's stop subject. That
// is best effort: nothing depends on a stop being heard.
func (w *Worker) listenForStops() (*nats.Subscription, error) {
	subject := w.o.SubjectPrefix + "." + ledger.StopSubject(w.o.Provider)
	sub, err := w.o.JetStream.Conn().Subscribe(subject, func(m *nats.Msg) { w.stop(m.Data) })
	if err != nil {
		return nil, fmt.Errorf("workers: listen on %s: %w", subject, err)
	}
	return sub, nil
}

// stop ends the call of the attempt that data names, if it runs here. How it
// then ended is what the provider proves, and unknown if it proves nothing.
func (w *Worker) stop(data []byte) {
	var named struct {
		Job     uuid.UUID `json:"job"`
		Attempt int       `json:"attempt"`
	}
	if err := json.Unmarshal(data, &named); err != nil {
		w.log.Warn("a stop that cannot be read", "error", err)
		return
	}
	w.mu.Lock()
	a := w.running[attemptID{named.Job, named.Attempt}]
	w.mu.Unlock()
	if a != nil {
		w.log.Info("the attempt is told to stop", "job", named.Job, "attempt", named.Attempt)
		a.cancel()
	}
}

// setRunning makes a call known to stop, and setEnded unknown.
func (w *Worker) setRunning(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[a.id()] = a
}

func (w *Worker) setEnded(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[a.id()] == a {
		delete(w.running, a.id())
	}
}
