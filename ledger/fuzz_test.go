package ledger

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// FuzzCanonical: no input panics; what is accepted is JSON to encoding/json too,
// and so is its canonical form, which is its own canonical form. A form may
// have an exponent beyond what is accepted from outside (10e1000 is 1e1001).
func FuzzCanonical(f *testing.F) {
	for _, doc := range refusedDocuments() {
		if len(doc) < 1<<12 {
			f.Add([]byte(doc))
		}
	}
	for _, doc := range []string{
		`{"b":[1,2.50,{"a":null}],"a":"\u00e9\ud83d\ude00\/"}`, `-0.0e-0`, `10e1000`, `[[[]],{},""]`, `{"":{"":0}}`,
		nested(MaxDepth), "\"\u2028\u007f\"", `[0.0001,1000,1E5]`,
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		form, err := Canonical([]byte("kept"), doc)
		if err != nil {
			if _, ok := err.(*JSONError); !ok {
				t.Fatalf("the error is a %T", err)
			}
			return
		}
		form, kept := bytes.CutPrefix(form, []byte("kept"))
		if !kept || !json.Valid(doc) || !json.Valid(form) {
			t.Fatalf("%q was accepted as %q: kept is %v, valid are %v, %v", doc, form, kept, json.Valid(doc), json.Valid(form))
		}
		again, err := Canonical(nil, form)
		switch {
		case err != nil && strings.Contains(err.Error(), "an exponent beyond"):
		case err != nil:
			t.Fatalf("the form %q of %q is refused: %v", form, doc, err)
		case !bytes.Equal(again, form):
			t.Fatalf("the form %q of %q has the form %q", form, doc, again)
		}
	})
}

// everySubject has one subject of each kind of entry, and some of none.
var everySubject = []string{
	"rules.set", "kind.define", "provider.define", "provider.verified", "job.request", "job.request.shop", "job.cancel",
	"attempt.request", "attempt.start.p", "attempt.claim.p", "attempt.complete.p", "attempt.resolve", "clock.due",
	"", "job", "job.request.", "attempt.claim", "nothing.at.all",
}

// FuzzDecode: no entry panics; it has either a body or a fault; and a body says
// itself again: the entry that it makes decodes to an equal body.
func FuzzDecode(f *testing.F) {
	for i, subject := range everySubject {
		f.Add(uint8(i), []byte(`{"v":1}`))
		f.Add(uint8(i), []byte(`{"v":2,"`+subject+`":[]}`))
	}
	for _, path := range goldenFiles(f) {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for i, subject := range everySubject {
			if strings.HasPrefix(filepath.Base(path), strings.TrimSuffix(subject, ".p")) {
				f.Add(uint8(i), bytes.TrimSuffix(data, []byte("\n")))
			}
		}
	}
	f.Add(uint8(10), []byte(`{"v":1,"job":"932e6392-de75-5f3a-ac8f-94870d967406","attempt":1,"job_version":1,`+
		`"claim":"0123456789abcdef","outcome":"succeeded","result":{"a":[NaN,"}"]}}`))
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		subject := everySubject[int(which)%len(everySubject)]
		at := storyStart
		e := Decode(7, at, subject, data)
		if (e.Fault == nil) == (e.Body == nil) {
			t.Fatalf("fault %v and body %v", e.Fault, e.Body)
		}
		if e.Fault != nil {
			if e.Fault.Reason == "" || e.Fault.Detail == "" {
				t.Fatalf("an empty fault: %+v", e.Fault)
			}
			return
		}
		if e.Kind == AttemptStart { // the fold does not read starts
			return
		}
		checkAgain(t, e, at)
	})
}

func checkAgain(t *testing.T, e *Entry, at time.Time) {
	t.Helper()
	m := e.Body.Message()
	if !json.Valid(m.Data) {
		t.Fatalf("%s: the body says %q, which is not JSON", m.Subject, m.Data)
	}
	again := Decode(e.Seq, at, m.Subject, m.Data)
	if again.Fault != nil {
		t.Fatalf("%s %q says itself as %q, which is refused: %s", e.Subject, e.Raw, m.Data, again.Fault.Detail)
	}
	if !reflect.DeepEqual(again.Body, e.Body) || again.Job != e.Job || again.Kind != e.Kind {
		t.Fatalf("%s %q\n is %+v\n and says itself as %q\n which is %+v", e.Subject, e.Raw, e.Body, m.Data, again.Body)
	}
	if m2 := again.Body.Message(); m2.ID != m.ID || !bytes.Equal(m2.Data, m.Data) {
		t.Fatalf("said again, %q (%s) becomes %q (%s)", m.Data, m.ID, m2.Data, m2.ID)
	}
}

// FuzzParseSubject: no subject panics, and what is recognised is made of its
// parts and is stored by the stream.
func FuzzParseSubject(f *testing.F) {
	for _, s := range everySubject {
		f.Add(s)
	}
	for _, s := range []string{"attempt.start.*", "attempt.start.>", "attempt.start.a.b", "job.request.É", "clock.due.", "attempt.startx"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		kind, token, err := ParseSubject(subject)
		if err != nil {
			return
		}
		made := string(kind)
		if token != "" {
			made += "." + token
		}
		if made != subject || token != "" && !ValidName(token) {
			t.Fatalf("%q was read as %q and %q", subject, kind, token)
		}
		if !stored(subject) {
			t.Fatalf("%q is a kind of entry, but no stream stores it", subject)
		}
	})
}

func stored(subject string) bool {
	for _, pattern := range StoredSubjects("p") {
		head, wild := strings.CutSuffix(pattern, "*")
		rest, ok := strings.CutPrefix("p."+subject, head)
		if ok && (wild && rest != "" && !strings.Contains(rest, ".") || !wild && rest == "") {
			return true
		}
	}
	return false
}
