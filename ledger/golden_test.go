package ledger

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// The files in testdata/golden/v1 pin the bytes of every entry, and beside each
// body its subject, message id and digests. Entries are never rewritten, so
// whatever version 1 once wrote must be readable for ever: -update writes files
// that are missing, and refuses to change one that is there. A change of the
// written form is a new version of entries, with a directory of its own.
var update = flag.Bool("update", false, "write golden files that are missing (existing ones never change)")

const goldenDir = "testdata/golden/v1"

// goldenFiles lists the bodies of entries.
func goldenFiles(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob(goldenDir + "/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files in %s (error: %v)", goldenDir, err)
	}
	return paths
}

// golden compares got with a file, or writes the file if it is missing and
// -update is set.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join(goldenDir, name)
	want, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && *update:
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	case errors.Is(err, fs.ErrNotExist):
		t.Fatalf("%s is missing; run the test with -update to write it", path)
	case err != nil:
		t.Fatal(err)
	case !bytes.Equal(got, want):
		t.Errorf("%s changed, and must not: what version %d wrote is in streams for ever.\n got  %s\n want %s",
			path, EntryVersion, got, want)
	}
}

var (
	goldenJob  = uuid.MustParse("932e6392-de75-5f3a-ac8f-94870d967406")
	goldenTime = time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
)

// goldenBodies has a minimal and a full body of every kind of entry.
func goldenBodies() map[string]Body {
	full := Kind{
		Name: "race", Providers: []string{"primary", "fallback"}, Effects: EffectsNone, Mode: ModeRace,
		HedgeAfterMS: 2000, StartTimeoutMS: 30_000, AttemptTimeoutMS: 90_000, HeartbeatTimeoutMS: 5000, MaxAttempts: 7,
		Backoff: BackoffPolicy{InitialMS: 250, MaxMS: 10_000, FactorMilli: 1500}, Failover: FailoverNever,
		Contract: "sha256:0011",
	}
	plain := DefaultKind()
	plain.Name, plain.Providers = "summarize", []string{"primary"}
	failure := Failure{
		Class: "rate_limited", Message: "429 Too Many \"Requests\"\n", Executed: false, Reach: ReachTransient, RetryAfterMS: 30_000,
	}
	const claim = "Zm9ydHktdHdvLWJ5dGVz"
	return map[string]Body{
		"rules.set.minimal":   &Rules{Rules: 1},
		"rules.set.full":      &Rules{Rules: 1, Actor: "init"},
		"kind.define.minimal": &KindDefinition{Kind: plain},
		"kind.define.full":    &KindDefinition{Kind: full, Actor: "operator:alice"},
		"provider.define.minimal": &ProviderDefinition{
			Name: "primary", Type: "exec", Definition: []byte(`{}`),
		},
		"provider.define.full": &ProviderDefinition{
			Name: "fallback", Type: "openai", Actor: "operator:alice",
			Definition: []byte(`{"base_url":"http://127.0.0.1:9001/v1","model":"small","temperature":0.0}`),
		},
		"provider.define.resume":    &ProviderBrake{Name: "fallback"},
		"provider.define.pause":     &ProviderBrake{Name: "fallback", Paused: true, Reason: "bad answers", Actor: "operator:alice"},
		"provider.verified.minimal": &Verification{Provider: "fallback", Kind: "summarize", ExpiresAt: goldenTime},
		"provider.verified.full": &Verification{
			Provider: "fallback", Kind: "summarize", Contract: "sha256:0011", ProviderDigest: strings.Repeat("0a", 32),
			Passed: true, Report: []byte(`{"runs":3,"failed":[]}`), ExpiresAt: goldenTime, Actor: "verifier",
		},
		"job.request.minimal": &Request{Owner: "acme", Key: "order-17", Kind: "summarize", Input: []byte(`null`)},
		"job.request.full": &Request{
			Owner: "acme", Key: "order \"17\" é", Kind: "summarize", Input: []byte(`{"text": "h\u00e9llo", "n": 1.0}`),
			Provider: "fallback", RunAt: goldenTime, Actor: "shop", Producer: "shop",
		},
		"job.request.delayed": &Request{
			Owner: "acme", Key: "order-17", Kind: "summarize", Input: []byte(`[]`), DelayMS: 90_500,
		},
		"job.cancel.minimal": &Cancel{Job: goldenJob},
		"job.cancel.full":    &Cancel{Job: goldenJob, Owner: "acme", Reason: "not needed", Actor: "alice"},
		"attempt.request.minimal": &AttemptAsk{
			Job: goldenJob, Key: "click-1",
		},
		"attempt.request.full": &AttemptAsk{
			Job: goldenJob, Owner: "acme", Key: "click-1", Provider: "fallback", Force: true, Actor: "alice",
		},
		"attempt.claim.minimal": &Claim{Job: goldenJob, Attempt: 1, JobVersion: 1, Provider: "primary", Claim: claim, StartSeq: 42},
		"attempt.claim.full": &Claim{
			Job: goldenJob, Attempt: 12, JobVersion: 3, Provider: "primary", Claim: claim, Worker: "host-1/4711", StartSeq: 42,
		},
		"attempt.claim.replay": &Claim{
			Job: goldenJob, Attempt: 2, JobVersion: 1, Provider: "primary", Claim: claim, Worker: "reconciler-1", StartSeq: 42, Replay: true,
		},
		"attempt.complete.succeeded": &Completion{
			Job: goldenJob, Attempt: 1, JobVersion: 1, Provider: "primary", Claim: claim, Outcome: OutcomeSucceeded,
			Result: []byte(`{"ok":true}`),
		},
		"attempt.complete.succeeded-full": &Completion{
			Job: goldenJob, Attempt: 1, JobVersion: 1, Provider: "primary", Claim: claim, Outcome: OutcomeSucceeded,
			Result: []byte(`{"ok":true}`), ProviderRef: "run-77", Usage: []byte(`{"tokens":12}`),
		},
		"attempt.complete.failed": &Completion{
			Job: goldenJob, Attempt: 1, JobVersion: 1, Provider: "primary", Claim: claim, Outcome: OutcomeFailed,
			Failure: failure, ProviderRef: "run-77", Usage: []byte(`{"tokens":12}`),
		},
		"attempt.complete.executed": &Completion{
			Job: goldenJob, Attempt: 1, JobVersion: 1, Provider: "primary", Claim: claim, Outcome: OutcomeFailed,
			Failure: Failure{Class: "contract", Executed: true},
		},
		"attempt.complete.output": &Completion{
			Job: goldenJob, Attempt: 1, JobVersion: 1, Provider: "primary", Claim: claim, Outcome: OutcomeFailed,
			Failure: Failure{Class: "contract", Message: "schema: /a: it is not declared by the schema", Executed: true},
			Output:  "Sure! {\"a\": 1}",
		},
		"attempt.complete.unsent": &Completion{
			Job: goldenJob, Attempt: 1, JobVersion: 1, Provider: "primary", Claim: claim, Outcome: OutcomeUnsent,
			Failure: Failure{Class: "connection_refused", Reach: ReachProvider},
		},
		"attempt.complete.unknown": &Completion{
			Job: goldenJob, Attempt: 1, JobVersion: 1, Provider: "primary", Claim: claim, Outcome: OutcomeUnknown,
			Failure: Failure{Class: "timeout", Message: "no answer"}, ProviderRef: "run-77",
		},
		"attempt.resolve.succeeded": &Resolution{
			Job: goldenJob, Attempt: 1, As: OutcomeSucceeded, Result: []byte(`"done"`), Reason: "seen in the console", Actor: "alice",
		},
		"attempt.resolve.failed": &Resolution{Job: goldenJob, Attempt: 1, As: OutcomeFailed, Reason: "never arrived"},
		"attempt.resolve.failed-full": &Resolution{
			Job: goldenJob, Attempt: 1, As: OutcomeFailed, Failure: failure, Reason: "lookup", Actor: "reconciler",
		},
		"attempt.resolve.worker-lost": &Resolution{
			Job: goldenJob, Attempt: 2, As: OutcomeUnknown, Worker: "host-1/4711", Reason: "silent for 10s", Actor: "presence",
		},
		"attempt.resolve.if-unknown": &Resolution{
			Job: goldenJob, Attempt: 2, As: OutcomeFailed, Reason: "the provider does not know it", Actor: "reconciler/1", IfUnknown: true,
		},
		"attempt.resolve.cancelled": &Resolution{Job: goldenJob, Attempt: 2, As: OutcomeCancelled, Reason: "give it up"},
		"clock.due.job":             &Due{Job: goldenJob, Due: goldenTime},
		"clock.due.attempt":         &Due{Job: goldenJob, Attempt: 3, Due: goldenTime.Truncate(time.Second)},
	}
}

func TestGoldenEntries(t *testing.T) {
	t.Parallel()
	kinds := map[EntryKind]bool{}
	for name, body := range goldenBodies() {
		kind, _, err := ParseSubject(body.Message().Subject)
		if err != nil || !strings.HasPrefix(name, string(kind)+".") {
			t.Fatalf("%s is about %s, %v", name, kind, err)
		}
		kinds[kind] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := body.Message()
			golden(t, name+".json", m.Data)
			golden(t, name+".txt", sealed(m, decodeGolden(t, name, m.Subject)))
			wantBody(t, decodeGolden(t, name, m.Subject), body)
		})
	}
	for _, g := range subjectGrammar {
		if !kinds[g.kind] && g.kind != AttemptStart {
			t.Errorf("no golden file for %s", g.kind)
		}
	}
}

// sealed is what is pinned beside the bytes.
func sealed(m Message, b Body) []byte {
	text := fmt.Sprintf("subject: %s\nid: %s\n", m.Subject, m.ID)
	switch b := b.(type) {
	case *Request:
		text += "fingerprint: " + b.Fingerprint.String() + "\n"
	case *Completion:
		text += "digest: " + b.digest.String() + "\n"
	case *ProviderDefinition:
		text += "digest: " + b.digest.String() + "\n"
	case *Resolution:
		text += "digest: " + b.digest().String() + "\n"
	case *KindDefinition:
		text += "digest: " + b.Kind.Digest().String() + "\n"
	}
	return []byte(text)
}

// decodeGolden decodes the stored file, not what the body says now.
func decodeGolden(t *testing.T, name, subject string) Body {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(goldenDir, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	e := Decode(7, goldenTime, subject, data)
	if e.Fault != nil {
		t.Fatalf("%s cannot be read any more: %s", name, e.Fault.Detail)
	}
	return e.Body
}

// wantBody compares a decoded body with the one that was written. The digests
// are made by decoding, and pinned on their own.
func wantBody(t *testing.T, got, want Body) {
	t.Helper()
	switch got := got.(type) {
	case *Request:
		got.Fingerprint = Digest{}
	case *Completion:
		got.digest = Digest{}
	case *ProviderDefinition:
		got.digest = Digest{}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v\n want    %+v", got, want)
	}
}

func TestGoldenStarts(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]*Start{
		"attempt.start.minimal": {
			Job: goldenJob, Attempt: 1, JobVersion: 1, Owner: "acme", Kind: "summarize", KindSeq: 2, Provider: "primary",
			Input: []byte(`null`), TimeoutMS: 60_000,
		},
		"attempt.start.proven": {
			Job: goldenJob, Attempt: 2, JobVersion: 1, Owner: "acme", Kind: "summarize", KindSeq: 7, Provider: "fallback",
			Input: []byte(`1`), TimeoutMS: 60_000, Contract: "sha256:0011", ProviderDigest: strings.Repeat("0a", 32),
		},
		"attempt.start.full": {
			Job: goldenJob, Attempt: 12, JobVersion: 3, Owner: "acme \"é\"", Kind: "summarize", KindSeq: 2, Provider: "fallback",
			Input: []byte(`{"text": "h\u00e9llo", "n": 1.0}`), TimeoutMS: 60_000, Contract: "sha256:0011",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := b.Message()
			golden(t, name+".json", m.Data)
			golden(t, name+".txt", sealed(m, b))
			got, err := ParseStart(b.Provider, m.Data)
			if err != nil || !reflect.DeepEqual(got, b) {
				t.Errorf("parsed %+v, %v\n want   %+v", got, err, b)
			}
		})
	}
}

func TestGoldenAnswers(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]Answer{
		"answer.minimal": {Seq: 9, Decision: Malformed, Reason: BadEntry},
		"answer.claim": {
			Seq: 1 << 40, Decision: Accepted, Job: goldenJob, Attempt: 2, State: JobRunning, Version: 3, TimeoutMS: 60_000,
		},
		"answer.refused": {
			Seq: 10, Decision: Refused, Reason: AttemptInFlight, Detail: "attempt 1 is unknown", Job: goldenJob, Attempt: 1,
			State: JobUnknown, Version: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := a.AppendJSON(nil)
			golden(t, name+".json", data)
			got, err := ParseAnswer(data)
			if err != nil || got != a {
				t.Errorf("parsed %+v, %v\n want   %+v", got, err, a)
			}
			newer := append(bytes.TrimSuffix(data, []byte("}")), `,"later":{"x":[1]}}`...)
			if got, err := ParseAnswer(newer); err != nil || got != a {
				t.Errorf("an answer with a member of the future: %+v, %v", got, err)
			}
		})
	}
}

func TestGoldenAnnouncements(t *testing.T) {
	t.Parallel()
	outcome := JobOutcome{Job: goldenJob, Owner: "acme", Kind: "summarize", State: JobSucceeded, Version: 2, CompletedBy: 1}
	golden(t, "outcome.succeeded.json", outcome.AppendJSON(nil))
	outcome.State, outcome.CompletedBy = JobUnknown, 0
	golden(t, "outcome.unknown.json", outcome.AppendJSON(nil))
	golden(t, "stop.json", AppendStopJSON(nil, goldenJob, 2))
}

// TestPlainProducers decodes what producers without our code write, as the
// contract shows it.
func TestPlainProducers(t *testing.T) {
	t.Parallel()
	e := Decode(1, goldenTime, "job.request", []byte(`{"v":1,"owner":"acme","key":"order-17","kind":"summarize","input":{"a":[]}}`))
	want := &Request{Owner: "acme", Key: "order-17", Kind: "summarize", Input: []byte(`{"a":[]}`)}
	if e.Fault != nil {
		t.Fatal(e.Fault.Detail)
	}
	wantBody(t, e.Body, want)
	if e.Job != goldenJob {
		t.Errorf("the job is %s", e.Job)
	}
	e = Decode(1, goldenTime, "job.request.shop", []byte("{\n  \"delay\": \"10m\",\n  \"input\": 1,\n  \"kind\": \"summarize\",\n"+
		"  \"key\": \"order-17\",\n  \"owner\": \"acme\",\n  \"v\": 1\n}\n"))
	if e.Fault != nil {
		t.Fatal(e.Fault.Detail)
	}
	wantBody(t, e.Body, &Request{
		Owner: "acme", Key: "order-17", Kind: "summarize", Input: []byte(`1`), DelayMS: 600_000, Producer: "shop", Actor: "shop",
	})
}

// TestTimesAreUTC: an instant whose year differs between its zone and UTC is
// judged in UTC, where it will be written.
func TestTimesAreUTC(t *testing.T) {
	t.Parallel()
	due := func(text string) *Entry {
		return Decode(1, goldenTime, "clock.due", fmt.Appendf(nil, `{"v":1,"job":"%s","due":"%s"}`, goldenJob, text))
	}
	for text, ok := range map[string]bool{
		"9999-12-31T23:59:59Z": true, "9999-12-31T23:59:59-00:01": false,
		"1970-01-01T00:00:00Z": true, "1970-01-01T00:00:00+00:01": false, "1969-12-31T23:59:59-01:00": true,
	} {
		e := due(text)
		if (e.Fault == nil) != ok {
			t.Errorf("%s: %+v; expected it to be accepted: %v", text, e.Fault, ok)
		}
		if ok {
			checkAgain(t, e, goldenTime)
		}
	}
	if e := due("2026-01-02T05:04:05.678900999+02:00"); e.Fault != nil || !e.Body.(*Due).Due.Equal(goldenTime) {
		t.Errorf("a zone and nanoseconds: %+v %+v; expected the instant in UTC, in whole microseconds", e.Body, e.Fault)
	}
}

// TestGoldenFilesStayReadable reads every file that is there, whether or not a
// body above still makes it.
func TestGoldenFilesStayReadable(t *testing.T) {
	t.Parallel()
	for _, path := range goldenFiles(t) {
		sealedText, err := os.ReadFile(strings.TrimSuffix(path, ".json") + ".txt")
		if errors.Is(err, fs.ErrNotExist) { // not an entry
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(sealedText), "\n")
		subject := strings.TrimPrefix(first, "subject: ")
		e := Decode(7, goldenTime, subject, data)
		if e.Fault != nil {
			t.Errorf("%s: %s", path, e.Fault.Detail)
			continue
		}
		b := e.Body
		if e.Kind == AttemptStart {
			if b, err = ParseStart(e.Token, data); err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
		}
		m := b.Message()
		if got := sealed(m, b); !bytes.Equal(got, sealedText) || !bytes.Equal(m.Data, data) {
			t.Errorf("%s: read and written again, it says\n%s%s\ninstead of\n%s%s", path, got, m.Data, sealedText, data)
		}
	}
}
