package projector

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

const aJob = `"11111111-1111-4111-8111-111111111111"`

// poisons are entries that cannot be accepted, whatever the state, and the
// reason that their rejection must give.
var poisons = []struct {
	subject, body string
	decision      ledger.Decision
	reason        ledger.Reason
}{
	{"job.request", ``, ledger.Malformed, ledger.BadEntry},
	{"job.request", `{`, ledger.Malformed, ledger.BadEntry},
	{"job.request", `null`, ledger.Malformed, ledger.BadEntry},
	{"job.request", "\x00\xff\xfe", ledger.Malformed, ledger.BadEntry},
	{"job.request", `{"owner":"a","key":"k","kind":"echo","input":1}`, ledger.Malformed, ledger.BadEntry},
	{"job.request", `{"v":2,"owner":"a","key":"k","kind":"echo","input":1}`, ledger.Malformed, ledger.UnsupportedVersion},
	{"job.request", `{"v":1,"owner":"a","key":"k","kind":"echo","input":1} {}`, ledger.Malformed, ledger.BadEntry},
	{"job.request", `{"v":1,"owner":"a","key":"k","kind":"echo","input":NaN}`, ledger.Malformed, ledger.BadEntry},
	{"job.request", `{"v":1,"owner":"a","key":"k","kind":"echo","input":"\ud800"}`, ledger.Malformed, ledger.BadEntry},
	{"job.request", `{"v":1,"owner":"a","key":"k","kind":"echo","input":"\u0000"}`, ledger.Malformed, ledger.BadEntry},
	{"job.request", `{"v":1,"owner":"a","key":"k","kind":"echo","input":{"a":1,"a":1}}`, ledger.Malformed, ledger.BadEntry},
	{"job.request", `{"v":1,"owner":"a","key":"k","kind":"echo","input":1e1001}`, ledger.Malformed, ledger.BadEntry},
	{"job.request", `{"v":1,"owner":"a\u0000","key":"k","kind":"echo","input":1}`, ledger.Malformed, ledger.BadEntry},
	{"job.request", `{"v":1,"owner":"a","key":"k","kind":"echo","input":1,"inptu":2}`, ledger.Malformed, ledger.BadEntry},
	{"job.request", `{"v":1,"owner":"a","key":"k","kind":"nothing","input":1}`, ledger.Refused, ledger.UnknownKind},
	{"job.request", `{"v":1,"owner":"a","key":"k","kind":"../x","input":1}`, ledger.Malformed, ledger.BadEntry},
	{"job.request.UPPER", `{"v":1,"owner":"a","key":"k","kind":"echo","input":1}`, ledger.Malformed, ledger.UnknownEntry},
	{"job.request", `{"v":1,"actor":"` + strings.Repeat("x", 8000) + `","owner":"a","key":"k","kind":"echo","input":1}`, ledger.Malformed, ledger.BadEntry},
	{"job.request", `{"v":1,"owner":"a","key":"k","kind":"echo","input":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, ledger.Malformed, ledger.BadEntry},
	{"job.request", `{"v":1,"owner":"` + strings.Repeat("ü", 128) + `","key":"k","kind":"echo","input":1}`, ledger.Malformed, ledger.BadEntry},
	{"job.cancel", `{"v":1,"job":"11111111"}`, ledger.Malformed, ledger.BadEntry},
	{"job.cancel", `{"v":1,"job":` + aJob + `}`, ledger.Refused, ledger.UnknownJob},
	{"attempt.request", `{"v":1,"job":` + aJob + `,"key":""}`, ledger.Malformed, ledger.BadEntry},
	{"attempt.request", `{"v":1,"job":` + aJob + `,"key":"k"}`, ledger.Refused, ledger.UnknownJob},
	{"attempt.claim.primary", `{"v":1,"job":` + aJob + `,"attempt":1,"job_version":1,"claim":"0123456789abcdef","start_seq":1}`, ledger.Refused, ledger.UnknownJob},
	{"attempt.claim.primary", `{"v":1,"job":` + aJob + `,"attempt":1,"job_version":1,"claim":"short","start_seq":1}`, ledger.Malformed, ledger.BadEntry},
	{"attempt.claim.primary", `{"v":1,"job":` + aJob + `,"attempt":9223372036854775807,"job_version":1,"claim":"0123456789abcdef","start_seq":1}`, ledger.Malformed, ledger.BadEntry},
	{"attempt.claim.primary", `{"v":1,"job":` + aJob + `,"attempt":1,"job_version":1,"claim":"0123456789abcdef","start_seq":18446744073709551615}`, ledger.Malformed, ledger.BadEntry},
	{"attempt.complete.primary", `{"v":1,"job":` + aJob + `,"attempt":1,"job_version":1,"claim":"0123456789abcdef","outcome":"fine"}`, ledger.Malformed, ledger.BadEntry},
	{"attempt.complete.primary", `{"v":1,"job":` + aJob + `,"attempt":1,"job_version":1,"claim":"0123456789abcdef","outcome":"succeeded","result":"` + "\x00" + `"}`, ledger.Refused, ledger.UnknownJob},
	{"attempt.resolve", `{"v":1,"job":` + aJob + `,"attempt":1,"as":"succeeded","reason":"x"}`, ledger.Malformed, ledger.BadEntry},
	{"kind.define", `{"v":1,"kind":{"name":"echo"}}`, ledger.Malformed, ledger.BadEntry},
	{"kind.define", `{"v":1}`, ledger.Malformed, ledger.BadEntry},
	{"provider.define", `{"v":1,"name":"primary","type":"exec","definition":[]}`, ledger.Malformed, ledger.BadEntry},
	{"provider.verified", `{"v":1,"provider":"primary","kind":"nothing","passed":true,"expires_at":"2030-01-01T00:00:00Z"}`, ledger.Refused, ledger.UnknownKind},
	{"provider.verified", `{"v":1,"provider":"primary","kind":"nothing","passed":true,"expires_at":"292277026596-01-01T00:00:00Z"}`, ledger.Malformed, ledger.BadEntry},
	{"clock.due", `{"v":1,"job":` + aJob + `,"due":"tomorrow"}`, ledger.Malformed, ledger.BadEntry},
	{"rules.set", `{"v":1,"rules":0}`, ledger.Malformed, ledger.BadEntry},
	{"rules.set", `{"v":1,"rules":1.5}`, ledger.Malformed, ledger.BadEntry},
}

// TestNoEntryBlocksTheProjection puts every poison at a random place between
// good entries: I12.
func TestNoEntryBlocksTheProjection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	w.append(&ledger.Rules{Rules: 1})
	w.append(echoKind())
	expected := map[uint64]int{} // by sequence, the poison
	big := make(map[uint64]bool)
	for i, n := range rand.Perm(len(poisons)) {
		w.append(request(fmt.Sprint("before ", i)))
		expected[w.put(poisons[n].subject, poisons[n].body)] = n
		if i == 7 { // more than a request may have, less than the server takes
			big[w.put("job.request", `{"v":1,"owner":"a","key":"k","kind":"echo","input":"`+strings.Repeat("x", 1<<20-7000)+`"}`)] = true
		}
	}
	last := w.append(request("after"))
	stop := w.project()
	w.caughtUp(last)
	stop()
	require.Equal(t, ledger.JobRunning, w.job("acme", "after").State)
	found, err := NewQueries(w.pool).Rejections(w.ctx(), uuid.UUID{}, 0, ledger.MaxPage)
	require.NoError(t, err)
	require.Len(t, found, len(poisons)+len(big))
	for _, r := range found {
		require.LessOrEqual(t, len(r.Raw), ledger.RejectionRawBytes)
		require.LessOrEqual(t, len(r.Detail), ledger.MaxTextBytes)
		if big[r.Seq] {
			require.Equal(t, ledger.TooLarge, r.Reason)
			require.Len(t, r.Raw, ledger.RejectionRawBytes, "the first of it is kept")
			continue
		}
		p := poisons[expected[r.Seq]]
		require.Equal(t, p.decision, r.Decision, "%s %s: %s", p.subject, p.body, r.Detail)
		require.Equal(t, p.reason, r.Reason, "%s %s: %s", p.subject, p.body, r.Detail)
		if p.decision == ledger.Malformed {
			require.Equal(t, p.body[:min(len(p.body), ledger.RejectionRawBytes)], string(r.Raw))
		}
	}
	w.verify()
}

// TestNewerRulesStopTheProjector: what this binary cannot fold is not skipped.
func TestNewerRulesStopTheProjector(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.append(echoKind())
	before := w.append(request("before"))
	stop := w.project(appendTo(silent{}))
	w.caughtUp(before)
	stop()
	tables := w.dump()
	at := w.put("rules.set", `{"v":1,"rules":99}`)
	w.append(request("after"))
	p, _, done := w.run(appendTo(silent{}))
	err := receive(t, done, "the projector's end")
	var corrupt *ledger.CorruptionError
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, at, corrupt.Seq)
	require.Contains(t, err.Error(), "run a newer jobledger")
	require.ErrorAs(t, p.Status().Err, &corrupt)
	require.False(t, p.Status().Active)
	require.Equal(t, tables, w.dump())
}

// TestTooEarlyIsTooEarly: a machine whose clock is ahead expires nothing.
func TestTooEarlyIsTooEarly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	w.append(echoKind())
	w.append(request("one"))
	id := ledger.JobID("acme", "one")
	w.project(appendTo(silent{}))
	w.caughtUp(w.append(claimOf(id, 1)))
	deadline := w.job("acme", "one").Attempts[0].Deadline
	require.False(t, deadline.IsZero())
	w.append(&ledger.Due{Job: id, Attempt: 1, Due: deadline})
	w.caughtUp(w.append(&ledger.Due{Job: id, Attempt: 1, Due: time.Now().Add(-time.Hour)})) // not what stands there
	require.Equal(t, ledger.AttemptRunning, w.job("acme", "one").Attempts[0].State)
	require.Equal(t, []uint64{2, 3}, w.job("acme", "one").Attempts[0].Seqs, "the clock's entries leave no trace")
	w.verify()
}
