package ledger

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestStoredSubjects pins the subjects that the contract enumerates. None has a
// job's id, and none swallows the request and reply services.
func TestStoredSubjects(t *testing.T) {
	t.Parallel()
	want := []string{
		"ledger.rules.set", "ledger.kind.define", "ledger.provider.define", "ledger.provider.verified",
		"ledger.job.request", "ledger.job.request.*", "ledger.job.cancel", "ledger.attempt.request",
		"ledger.attempt.start.*", "ledger.attempt.claim.*", "ledger.attempt.complete.*", "ledger.attempt.resolve",
		"ledger.clock.due",
	}
	if got := StoredSubjects("ledger"); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, s := range StoredSubjects("a.b") {
		if !strings.HasPrefix(s, "a.b.") || strings.Contains(s, ">") {
			t.Errorf("%s does not start with its prefix, or swallows everything", s)
		}
	}
	for _, s := range []string{OutcomeSubject(goldenJob.String()), StopSubject("primary"), "api.job.submit"} {
		if stored(s) {
			t.Errorf("%s is stored, and must not be", s)
		}
	}
}

// TestValidTextFits: whatever a provider or a system call says can be put into
// an entry, and text that fits is left alone.
func TestValidTextFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		part := string(rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "bytes")) + rapid.StringN(0, 20, -1).Draw(t, "text")
		text := strings.Repeat(part, rapid.IntRange(1, 200).Draw(t, "times"))
		got := ValidText(text)
		if len(got) > MaxTextBytes || !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Fatalf("%q does not fit an entry (%d bytes)", got, len(got))
		}
		if again := ValidText(got); again != got {
			t.Fatalf("%q was changed to %q", got, again)
		}
		fits := len(text) <= MaxTextBytes && utf8.ValidString(text) && !strings.ContainsRune(text, 0)
		if fits && got != text {
			t.Fatalf("%q fits, and was changed to %q", text, got)
		}
		m := (&Cancel{Job: goldenJob, Reason: got}).Message()
		if e := Decode(1, storyStart, m.Subject, m.Data); e.Fault != nil || e.Body.(*Cancel).Reason != got {
			t.Fatalf("%q in an entry: %+v", got, e.Fault)
		}
	})
}

// TestMessageIDs: the server drops a message whose id it has seen, whatever its
// subject and body. So another subject or another body has another id.
func TestMessageIDs(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for name, body := range goldenBodies() {
		m := body.Message()
		if m.Subject == string(ClockDue) {
			if m.ID != "" {
				t.Errorf("%s has the id %s; a due time may have to be said again", name, m.ID)
			}
			continue
		}
		if m.ID == "" {
			continue
		}
		if other, ok := seen[m.ID]; ok {
			t.Errorf("%s and %s share the id %s", name, other, m.ID)
		}
		seen[m.ID] = name
	}
	a := (&Request{Owner: "acme", Key: "k", Kind: "work", Input: []byte(`1`)}).Message()
	b := (&Request{Owner: "acme", Key: "k", Kind: "work", Input: []byte(`1`), Producer: "shop"}).Message()
	if a.ID == b.ID {
		t.Errorf("the same body on %s and %s has one id", a.Subject, b.Subject)
	}
}
