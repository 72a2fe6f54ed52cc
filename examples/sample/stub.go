package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// What a job's input tells the stubs to do.
const (
	doAnswer   = "answer"    // answer at once
	doBusyOnce = "busy-once" // refuse the first attempt, and ask to come back
	doReject   = "reject"    // refuse as no provider would take it
	doCrash    = "crash"     // answer 500: who knows what was done
	doStall    = "stall"     // never answer
	doFail     = "fail"      // exec: do the work and fail
)

// call is what a provider is given.
type call struct {
	JobID   string `json:"job_id"`
	Attempt int    `json:"attempt"`
	Input   struct {
		Do     string `json:"do"`
		Amount int    `json:"amount"`
	} `json:"input"`
}

// A stub is HTTP providers that do as the input tells them, and count the calls.
type stub struct {
	mu       sync.Mutex
	calls    map[string]int           // by job
	released map[string]chan struct{} // by job; closed by POST /release/{job}
}

// runStub serves until ctx ends, and says first on which URL.
func runStub(ctx context.Context, out io.Writer) error {
	s := &stub{calls: map[string]int{}, released: map[string]chan struct{}{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /providers/{name}", s.provide)
	mux.HandleFunc("POST /calls/{job}", func(_ http.ResponseWriter, r *http.Request) { s.count(r.PathValue("job")) })
	mux.HandleFunc("GET /calls", s.counts)
	mux.HandleFunc("GET /released/{job}", s.await)
	mux.HandleFunc("POST /release/{job}", func(_ http.ResponseWriter, r *http.Request) { close(s.gate(r.PathValue("job"))) })
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "http://%s\n", l.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // stalled calls are cut off
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (s *stub) count(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[job]++
}

func (s *stub) gate(job string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released[job] == nil {
		s.released[job] = make(chan struct{})
	}
	return s.released[job]
}

func (s *stub) counts(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answerJSON(w, http.StatusOK, s.calls)
}

// await answers when the job is released.
func (s *stub) await(_ http.ResponseWriter, r *http.Request) {
	select {
	case <-s.gate(r.PathValue("job")):
	case <-r.Context().Done():
	}
}

func (s *stub) provide(w http.ResponseWriter, r *http.Request) {
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		answerJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	s.count(c.JobID)
	name := r.PathValue("name")
	switch {
	case c.Input.Do == doBusyOnce && c.Attempt == 1:
		w.Header().Set("Retry-After", "1")
		answerJSON(w, http.StatusServiceUnavailable, map[string]string{"error": "busy"})
	case c.Input.Do == doReject:
		answerJSON(w, http.StatusUnprocessableEntity, map[string]string{"error": "the card does not exist"})
	case c.Input.Do == doCrash:
		answerJSON(w, http.StatusInternalServerError, map[string]string{"error": "out of memory"})
	case c.Input.Do == doStall && name == "primary":
		<-r.Context().Done()
	default:
		answerJSON(w, http.StatusOK, map[string]any{"by": name, "charged": c.Input.Amount})
	}
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone is what is being tried
}
