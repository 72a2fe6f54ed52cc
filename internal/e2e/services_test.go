package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
	"jobledger/publisher/natsapi"
)

// services is a client of the micro services, which knows of them what
// discovery says.
type services struct {
	w        *world
	nc       *nats.Conn
	subjects map[string]string // by the endpoint's name
}

// discover finds the services of this ledger, which that many processes offer.
func (w *world) discover(processes int) *services {
	w.t.Helper()
	s := &services{w: w, nc: testenv.Connect(w.t, w.nats), subjects: map[string]string{}}
	testenv.Eventually(w.t, patience, func() (bool, string) {
		infos := s.infos()
		for _, info := range infos {
			for _, e := range info.Endpoints {
				s.subjects[e.Name] = e.Subject
			}
		}
		return len(infos) == processes, fmt.Sprintf("%d services of %s are found, expected %d", len(infos), w.prefix, processes)
	})
	return s
}

// infos asks, as `nats micro ls` does, whoever serves anything.
func (s *services) infos() (found []micro.Info) {
	s.w.t.Helper()
	inbox := s.nc.NewInbox()
	sub, err := s.nc.SubscribeSync(inbox)
	require.NoError(s.w.t, err)
	defer func() { _ = sub.Unsubscribe() }()
	require.NoError(s.w.t, s.nc.PublishRequest("$SRV.INFO", inbox, nil))
	for {
		msg, err := sub.NextMsg(500 * time.Millisecond)
		if err != nil {
			return found
		}
		var info micro.Info
		require.NoError(s.w.t, json.Unmarshal(msg.Data, &info))
		if info.Name == natsapi.Name && info.Metadata["subject_prefix"] == s.w.prefix {
			require.Equal(s.w.t, s.w.stream, info.Metadata["stream"])
			found = append(found, info)
		}
	}
}

// call makes a request, and returns the answer as HTTP's would be.
func (s *services) call(endpoint, body string) answer {
	s.w.t.Helper()
	a, err := s.try(endpoint, body)
	require.NoError(s.w.t, err)
	return a
}

// try is call for any goroutine.
func (s *services) try(endpoint, body string) (answer, error) {
	msg, err := s.nc.Request(s.subjects[endpoint], []byte(body), patience)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", endpoint, err)
	}
	a := answer{t: s.w.t, what: endpoint, header: http.Header{}, raw: msg.Data}
	if a.status, err = strconv.Atoi(msg.Header.Get(natsapi.StatusHeader)); err != nil {
		return a, fmt.Errorf("%s: the header %s: %w", endpoint, natsapi.StatusHeader, err)
	}
	code := ""
	if a.status >= http.StatusBadRequest {
		code = strconv.Itoa(a.status)
	}
	if found := msg.Header.Get(micro.ErrorCodeHeader); found != code || (msg.Header.Get(micro.ErrorHeader) == "") != (code == "") {
		return a, fmt.Errorf("%s: status %d with the error %q: %q", endpoint, a.status, found, msg.Header.Get(micro.ErrorHeader))
	}
	for name, values := range msg.Header {
		a.header[http.CanonicalHeaderKey(name)] = values
	}
	if err := json.Unmarshal(msg.Data, &a.body); err != nil {
		return a, fmt.Errorf("%s: %w: %s", endpoint, err, msg.Data)
	}
	return a, nil
}

// named is a body about a job of acme.
func named(key, rest string) string {
	if rest != "" {
		rest = "," + rest
	}
	return fmt.Sprintf(`{"owner":"acme","key":%q%s}`, key, rest)
}

func TestMicroServices(t *testing.T) {
	t.Parallel()
	main, fallback := newStub(t, "main"), newStub(t, "fallback")
	w := newWorld(t, setup{yaml: oneKind(`failover: never`, main, fallback)})
	w.attach(main, fallback)
	w.serve("projector,worker")
	w.apply()
	c := w.serve("api").client("acme")
	other := w.serve("api")
	s := w.discover(2)
	require.Equal(t, map[string]string{
		"job-submit": w.prefix + ".api.job.submit", "job-get": w.prefix + ".api.job.get", "job-cancel": w.prefix + ".api.job.cancel",
		"attempt-start": w.prefix + ".api.attempt.start", "attempt-resolve": w.prefix + ".api.attempt.resolve",
	}, s.subjects)
	request := func(do string) string { return `"kind":"pay","input":{"do":"` + do + `"}` }

	// A job runs, and a hundred clicks through both doors are one.
	answers := volley(t, clicks, func(i int) (answer, error) {
		if i%2 == 0 {
			return c.verdict("POST", "/v1/jobs", pay(`"answer"`), "Idempotency-Key", "order-17")
		}
		return s.try("job-submit", named("order-17", request("answer")))
	})
	oneAndReplays(t, answers, "id")
	done := s.call("job-get", named("order-17", `"wait":"30s"`)).is(http.StatusOK)
	require.Equal(t, "succeeded", done.text("state"))
	require.JSONEq(t, `{"by":"main","attempt":1}`, done.text("result"))
	w.requireOneOfEach(c, main, "order-17")

	// The verdicts are HTTP's.
	conflict := s.call("job-submit", named("order-17", request("close"))).is(http.StatusConflict, "idempotency-conflict")
	require.Equal(t, c.submit("order-17", pay(`"close"`)).body, conflict.body)
	place := s.call("job-submit", named("k", `"kind":"pay","input":{"a":[1,{"b":tru}]}`)).is(http.StatusBadRequest, "malformed-json")
	require.Equal(t, "/input/a/1/b", place.text("errors.0.pointer"))
	s.call("job-submit", named("k", request("answer"))+strings.Repeat(" ", ledger.MaxRequestBytes)).is(http.StatusRequestEntityTooLarge, "too-large")
	s.call("job-submit", `{"key":"k",`+request("answer")+`}`).is(http.StatusUnauthorized, "unauthorized")
	s.call("job-get", `{"owner":"beta","job":"`+c.jobID("order-17")+`"}`).is(http.StatusNotFound, "not-found")

	// One process goes: the other serves.
	other.stop()
	s.call("job-submit", named("stalls", request("stall"))).is(http.StatusCreated)
	main.arrived(c.jobID("stalls"), 1)
	start := fmt.Sprintf(`{"owner":"acme","job":%q,"key":"click","provider":"fallback"`, c.jobID("stalls"))
	s.call("attempt-start", start+`}`).is(http.StatusConflict, "attempt-in-flight")
	s.call("attempt-start", start+`,"force":true}`).is(http.StatusForbidden, "forbidden")
	resolved := s.call("attempt-resolve", named("stalls", `"attempt":1,"as":"cancelled","reason":"it hangs","actor":"alice"`)).is(http.StatusOK)
	require.Equal(t, "nats:alice", resolved.text("attempts.0.resolved_by"))
	s.call("job-cancel", named("stalls", "")).is(http.StatusOK)
	require.Equal(t, "cancelled", s.call("job-get", named("stalls", "")).is(http.StatusOK).text("state"))
	require.Len(t, s.infos(), 1)
	main.releaseAll()
	w.verify()
}
