package ledger

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// requiredMembers lists what an entry cannot do without. A result is required
// of successes only.
var requiredMembers = map[EntryKind][]string{
	RulesSet:         {"v", "rules"},
	KindDefine:       {"v", "kind"},
	ProviderDefine:   {"v", "name", "type", "definition"},
	ProviderVerified: {"v", "provider", "kind", "passed", "expires_at"},
	JobRequest:       {"v", "owner", "key", "kind", "input"},
	JobCancel:        {"v", "job"},
	AttemptRequest:   {"v", "job", "key"},
	AttemptClaim:     {"v", "job", "attempt", "job_version", "claim", "start_seq"},
	AttemptComplete:  {"v", "job", "attempt", "job_version", "claim", "outcome", "result"},
	AttemptResolve:   {"v", "job", "attempt", "as", "reason", "result", "worker"},
	ClockDue:         {"v", "job", "due"},
}

// anyJSON are the members that may hold any value, null too.
var anyJSON = []string{"input", "result", "report", "usage"}

// part is one member of a body: its name, and the text of name and value.
type part struct{ name, text string }

func parts(t *testing.T, body []byte) []part {
	t.Helper()
	var list []part
	err := members(body, func(name string, r *reader) error {
		value := r.raw()
		list = append(list, part{name, fmt.Sprintf("%q:%s", name, value)})
		return r.err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func joined(list []part) []byte {
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = p.text
	}
	return []byte("{" + strings.Join(texts, ",") + "}")
}

// TestEveryMember takes each member of each golden body out, names it twice, and
// puts null in its place.
func TestEveryMember(t *testing.T) {
	t.Parallel()
	for name, body := range goldenBodies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := body.Message()
			kind, _, err := ParseSubject(m.Subject)
			if err != nil {
				t.Fatal(err)
			}
			list := parts(t, m.Data)
			for i, p := range list {
				without := slices.Delete(slices.Clone(list), i, i+1)
				named := p.name
				if named == "paused" { // without it the entry is a definition that lacks other members
					named = ""
				}
				optional := named != "" && !slices.Contains(requiredMembers[kind], p.name)
				expect(t, m.Subject, joined(without), optional, named)
				expect(t, m.Subject, joined(append(slices.Clone(list), p)), false, p.name)
				null := slices.Clone(list)
				null[i].text = fmt.Sprintf("%q:null", p.name)
				expect(t, m.Subject, joined(null), slices.Contains(anyJSON, p.name), p.name)
			}
			extra := append(slices.Clone(list), part{"extra", `"extra":1`})
			expect(t, m.Subject, joined(extra), false, "extra")
			slices.Reverse(list)
			expect(t, m.Subject, joined(list), true, "")
		})
	}
}

// expect decodes an entry and compares whether it is accepted; the fault must
// name the member.
func expect(t *testing.T, subject string, data []byte, ok bool, member string) {
	t.Helper()
	e := Decode(7, storyStart, subject, data)
	switch {
	case (e.Fault == nil) != ok:
		t.Errorf("%s %.300s\n fault: %+v; expected it to be accepted: %v", subject, data, e.Fault, ok)
	case !ok && !strings.HasPrefix(e.Fault.Detail, "/"+member):
		t.Errorf("%s %.300s\n %s; expected the fault to name /%s", subject, data, e.Fault.Detail, member)
	}
}

// TestEntryLimits has values at the bounds and beyond.
func TestEntryLimits(t *testing.T) {
	t.Parallel()
	job := `"job":"` + goldenJob.String() + `"`
	text := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	at := func(d time.Duration) string { return `"` + storyStart.Add(d).Format(time.RFC3339Nano) + `"` }
	request := `{"v":1,"owner":"acme","key":"k","kind":"work","input":1,%s}`
	claim := `{"v":1,` + job + `,"attempt":1,"job_version":1,"claim":"0123456789abcdef","start_seq":1,%s}`
	complete := `{"v":1,` + job + `,"attempt":1,"job_version":1,"claim":"0123456789abcdef","outcome":"failed",%s}`
	resolve := `{"v":1,` + job + `,"as":"failed","reason":"r","attempt":%s}`
	verified := `{"v":1,"provider":"p","kind":"work","passed":true,"expires_at":"2026-01-02T00:00:00Z",%s}`
	kind := `{"v":1,"kind":{"name":"work","providers":["p"],%s}}`
	for _, v := range []struct {
		name, subject, format, good, bad string
	}{
		{"delay", "job.request", request, `"delay":"8784h"`, `"delay":"8784h0m0.001s"`},
		{"no delay", "job.request", request, `"delay":"0s"`, `"delay":"-1ms"`},
		{"delay's unit", "job.request", request, `"delay":"1ms"`, `"delay":"1ms1us"`},
		{"delay without unit", "job.request", request, `"delay":"1.5h"`, `"delay":"90"`},
		{"run_at", "job.request", request, `"run_at":` + at(MaxDelay), `"run_at":` + at(MaxDelay+time.Microsecond)},
		{"run_at's form", "job.request", request, `"run_at":"2026-01-01T01:00:00+01:00"`, `"run_at":"2026-01-01 00:00:00"`},
		{"actor", "job.request", request, `"actor":` + text(MaxTextBytes), `"actor":` + text(MaxTextBytes+1)},
		{"provider", "job.request", request, `"provider":` + text(MaxNameBytes), `"provider":` + text(MaxNameBytes+1)},
		{"key", "attempt.request", `{"v":1,` + job + `,"key":%s}`, text(MaxIdentBytes), text(MaxIdentBytes + 1)},
		{"reason", "job.cancel", `{"v":1,` + job + `,"reason":%s}`, text(MaxTextBytes), text(MaxTextBytes + 1)},
		{"worker", "attempt.claim.p", claim, `"worker":` + text(MaxTextBytes), `"worker":` + text(MaxTextBytes+1)},
		{"attempt", "attempt.resolve", resolve, `1000`, `1001`},
		{"attempt, least", "attempt.resolve", resolve, `1`, `0`},
		{"attempt's form", "attempt.resolve", resolve, `12`, `1.0`},
		{"class", "attempt.complete.p", complete, `"failure":{"class":` + text(MaxNameBytes) + `}`, `"failure":{"class":` + text(MaxNameBytes+1) + `}`},
		{"class is required", "attempt.complete.p", complete, `"failure":{"class":"x"}`, `"failure":{"executed":true}`},
		{"failure is an object", "attempt.complete.p", complete, `"failure":{"class":"x","executed":true}`, `"failure":"x"`},
		{"failure's members", "attempt.complete.p", complete, `"failure":{"class":"x","message":"m"}`, `"failure":{"class":"x","massage":"m"}`},
		{"message", "attempt.complete.p", complete, `"failure":{"class":"x","message":` + text(MaxTextBytes) + `}`, `"failure":{"class":"x","message":` + text(MaxTextBytes+1) + `}`},
		{"retry_after_ms", "attempt.complete.p", complete, `"failure":{"class":"x","retry_after_ms":31622400000}`, `"failure":{"class":"x","retry_after_ms":31622400001}`},
		{"retry_after_ms, least", "attempt.complete.p", complete, `"failure":{"class":"x","retry_after_ms":0}`, `"failure":{"class":"x","retry_after_ms":-1}`},
		{"usage is JSON", "attempt.complete.p", complete, `"usage":[1.5]`, `"usage":NaN`},
		{"provider_digest", "provider.verified", verified, `"provider_digest":"` + strings.Repeat("0A", 32) + `"`, `"provider_digest":"` + strings.Repeat("0A", 31) + `"`},
		{"provider_digest, empty", "provider.verified", verified, `"provider_digest":""`, `"provider_digest":"` + strings.Repeat("0g", 32) + `"`},
		{"contract", "provider.verified", verified, `"contract":` + text(MaxContractBytes), `"contract":` + text(MaxContractBytes+1)},
		{"contract's letters", "kind.define", kind, `"contract":"sha256:aZ-_.9"`, `"contract":"a b"`},
		{"timeout", "kind.define", kind, `"attempt_timeout_ms":2592000000`, `"attempt_timeout_ms":2592000001`},
		{"max_attempts", "kind.define", kind, `"max_attempts":100`, `"max_attempts":101`},
		{"max_attempts, least", "kind.define", kind, `"max_attempts":1`, `"max_attempts":0`},
		{"factor", "kind.define", kind, `"backoff":{"factor_milli":1000}`, `"backoff":{"factor_milli":999}`},
		{"due", "clock.due", `{"v":1,` + job + `,"due":%s}`, at(0), `1767225600`},
		{"rules", "rules.set", `{"v":1,"rules":%s}`, `1`, `0`},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			expect(t, v.subject, fmt.Appendf(nil, v.format, v.good), true, "")
			expect(t, v.subject, fmt.Appendf(nil, v.format, v.bad), false, "")
		})
	}
}

// TestZeroIsNoNumber: sequences, versions and attempts count from 1.
func TestZeroIsNoNumber(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"attempt.claim.full", "attempt.complete.failed", "attempt.resolve.failed", "clock.due.attempt"} {
		m := goldenBodies()[name].Message()
		for i, p := range parts(t, m.Data) {
			if p.name == "v" || !strings.ContainsAny(p.text[len(p.text)-1:], "0123456789") {
				continue
			}
			for _, value := range []string{"0", "-1", "1.0", "1e0", `"1"`, "9223372036854775808"} {
				list := parts(t, m.Data)
				list[i].text = fmt.Sprintf("%q:%s", p.name, value)
				expect(t, m.Subject, joined(list), false, p.name)
			}
		}
	}
}

// TestWorkerSpeaks: who sent a claim is its worker, unless the entry says
// otherwise; a request's is its producer.
func TestWorkerSpeaks(t *testing.T) {
	t.Parallel()
	claim := goldenBodies()["attempt.claim.full"].Message()
	if e := Decode(1, storyStart, claim.Subject, claim.Data); e.Actor != "host-1/4711" {
		t.Errorf("the claim's actor is %q", e.Actor)
	}
	list := append(parts(t, claim.Data), part{"actor", `"actor":"somebody"`})
	if e := Decode(1, storyStart, claim.Subject, joined(list)); e.Actor != "somebody" {
		t.Errorf("the claim's actor is %q; the entry says somebody", e.Actor)
	}
	request := goldenBodies()["job.request.minimal"].Message()
	if e := Decode(1, storyStart, request.Subject+".shop", request.Data); e.Actor != "shop" {
		t.Errorf("the request's actor is %q", e.Actor)
	}
}

// TestStartsMayGrow: an older worker passes over what a newer projector says.
func TestStartsMayGrow(t *testing.T) {
	t.Parallel()
	b := &Start{Job: goldenJob, Attempt: 1, JobVersion: 1, Owner: "acme", Kind: "work", KindSeq: 2, Provider: "p", Input: []byte(`1`), TimeoutMS: 1}
	list := parts(t, b.Message().Data)
	if _, err := ParseStart("p", joined(append(slices.Clone(list), part{"later", `"later":{"a":[]}`}))); err != nil {
		t.Errorf("a start with a member of the future: %v", err)
	}
	for i, p := range list {
		_, err := ParseStart("p", joined(slices.Delete(slices.Clone(list), i, i+1)))
		if required := slices.Contains([]string{"v", "job", "attempt", "input"}, p.name); (err != nil) != required {
			t.Errorf("a start without %s: %v; expected an error: %v", p.name, err, required)
		}
	}
	for _, bad := range []string{`{"v":2}`, `[]`, ``, `{"v":1,"job":1}`} {
		if _, err := ParseStart("p", []byte(bad)); err == nil {
			t.Errorf("%q was read as a start", bad)
		}
	}
}

// TestInvalidResultKeepsTheRest: everything else that a completion with an
// unusable result says is kept, wherever it stands.
func TestInvalidResultKeepsTheRest(t *testing.T) {
	t.Parallel()
	head := `{"v":1,"provider_ref":"run-1","job":"` + goldenJob.String() + `","attempt":2,"job_version":3,"claim":"0123456789abcdef",`
	for _, result := range []string{
		`NaN`, `{"a":NaN}`, `[1,{"b":[Infinity,"]}"]},2]`, `{"a":"\ud800","}":1}`, "\"a\tb\"", `{"a":1,"a":2}`, nested(MaxDepth + 1), `1e1001`, `01`, `tru`, `-`,
	} {
		for _, format := range []string{
			head + `"outcome":"succeeded","result":%s,"usage":{"tokens":5}}`, head + `"result":%s,"usage":{"tokens":5},"outcome":"succeeded"}`,
		} {
			e := Decode(1, storyStart, "attempt.complete.p", fmt.Appendf(nil, format, result))
			if e.Fault != nil {
				t.Errorf("%.60s: %s", result, e.Fault.Detail)
				continue
			}
			b := e.Body.(*Completion)
			if b.Outcome != OutcomeFailed || b.Failure.Class != "invalid_result" || !b.Failure.Executed || b.Result != nil {
				t.Errorf("%.60s: %s %+v with result %q", result, b.Outcome, b.Failure, b.Result)
			}
			if b.Attempt != 2 || b.JobVersion != 3 || b.ProviderRef != "run-1" || string(b.Usage) != `{"tokens":5}` || e.Job != goldenJob {
				t.Errorf("%.60s: the rest is lost: %+v", result, b)
			}
		}
	}
}
