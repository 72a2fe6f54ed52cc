package workers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	outcome, failure := Classify(nil)
	require.Equal(t, ledger.OutcomeSucceeded, outcome)
	require.Zero(t, failure)

	cause := errors.New("why")
	for name, c := range map[string]struct {
		err      error
		expected ending
	}{
		"any error":       {cause, unknown("ambiguous")},
		"a deadline":      {fmt.Errorf("call: %w", context.DeadlineExceeded), unknown("timeout")},
		"a stop":          {context.Canceled, unknown("stopped")},
		"the zero value":  {&CallError{}, unknown("error")},
		"not sent":        {&CallError{Known: NotSent, Class: "dns", Err: cause}, unsent("dns")},
		"wrapped":         {fmt.Errorf("x: %w", &CallError{Known: NotSent, Class: "dns"}), unsent("dns")},
		"joined":          {errors.Join(&CallError{Known: NotSent, Class: "dns"}, cause), unknown("ambiguous")},
		"executed":        {&CallError{Known: Executed, Class: "contract", Err: cause}, executed("contract")},
		"a class to mend": {&CallError{Known: Executed, Class: "No Name!", Err: cause}, executed("error")},
		"refused": {&CallError{Known: Refused, Class: "http_429", Reach: "odd", RetryAfter: 1, Err: cause},
			refused(429, ledger.ReachTransient, 1)},
		"a long wait": {&CallError{Known: Refused, Class: "http_400", Reach: ledger.ReachRequest, RetryAfter: 1e9 * time.Second},
			refused(400, ledger.ReachRequest, ledger.MaxDelay.Milliseconds())},
		"a negative wait": {&CallError{Known: Refused, Class: "http_401", Reach: ledger.ReachProvider, RetryAfter: -1},
			refused(401, ledger.ReachProvider, 0)},
	} {
		t.Run(name, func(t *testing.T) { requireEnding(t, c.expected, c.err) })
	}
	_, failure = Classify(errors.New(strings.Repeat("\xff\x00x", ledger.MaxTextBytes)))
	require.LessOrEqual(t, len(failure.Message), ledger.MaxTextBytes)
	require.NotContains(t, failure.Message, "\x00")
}
