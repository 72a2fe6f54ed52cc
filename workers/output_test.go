package workers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

// What a provider says beside a failure is kept, and only there.
func TestOutputIsKeptWhereItIsNoResult(t *testing.T) {
	t.Parallel()
	const said = "I can't help with that.\x00 \xff"
	for name, c := range map[string]struct {
		err  error
		kept string
	}{
		"failed":  {&CallError{Known: Executed, Class: "refused"}, "I can't help with that.\ufffd \ufffd"},
		"unknown": {&CallError{Class: "truncated"}, "I can't help with that.\ufffd \ufffd"},
		"unsent":  {&CallError{Known: NotSent, Class: "tls"}, ""},
		"success": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 1, providerFunc(func(context.Context, Call) (Result, error) {
				return Result{Body: []byte("{}"), Output: said}, c.err
			})).start()
			r.publish("k")
			require.Equal(t, c.kept, r.completed(1)[0].Output)
		})
	}
}

// The text is the first to give way when a completion has to become smaller.
func TestOutputGivesWay(t *testing.T) {
	t.Parallel()
	text := storable(strings.Repeat("é\n", 1<<20))
	require.Len(t, text, maxOutputBytes-maxOutputBytes%3)
	for limit, kept := range map[int]int{1 << 20: len(text), 64 << 10: shortOutputBytes, 4 << 10: shortTextBytes} {
		c := someCompletion("k")
		c.Result, c.Outcome, c.Output = nil, ledger.OutcomeUnknown, text
		c.Failure = ledger.Failure{Class: "truncated", Message: "the stream broke off", Executed: true}
		m := fit(c, limit)
		require.LessOrEqual(t, len(m.Data), limit)
		require.InDelta(t, kept, len(c.Output), 2)
		require.Nil(t, ledger.Decode(1, time.Now(), m.Subject, m.Data).Fault)
	}
}
