package projector

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/internal/testenv"
	"jobledger/ledger"
)

// TestPausedProviderWaitsInSilence: while a provider is paused the clock says
// nothing of the jobs that wait for it; when it is resumed they start.
func TestPausedProviderWaitsInSilence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	dues := make(chan ledger.Message, 100)
	stop := w.project(appendTo(appenderFunc(func(ctx context.Context, m ledger.Message) (uint64, error) {
		if m.Subject == string(ledger.ClockDue) {
			dues <- m
		}
		return w.Append(ctx, m)
	})))
	w.append(echoKind())
	w.append(&ledger.ProviderDefinition{Name: "primary", Type: "http", Definition: []byte(`{}`)})
	w.append(&ledger.ProviderBrake{Name: "primary", Paused: true, Reason: "bad answers", Actor: "ops"})
	w.append(request("waits"))
	w.append(request("waits too"))
	// A job with a time of its own shows that the clock has looked since.
	timed := request("timed")
	timed.DelayMS = 600
	w.caughtUp(w.append(timed))
	require.Contains(t, string(receive(t, dues, "the timed job's due time").Data), ledger.JobID("acme", "timed").String())
	require.Equal(t, ledger.ProviderPaused, w.job("acme", "waits").StateReason)
	require.Empty(t, dues)

	w.append(&ledger.ProviderBrake{Name: "primary", Actor: "ops"})
	for _, key := range []string{"waits", "waits too", "timed"} {
		testenv.Eventually(t, 20*time.Second, func() (bool, string) {
			j := w.job("acme", key)
			return j.State == ledger.JobRunning, key + " is " + string(j.State)
		})
	}
	w.settled(w.last())
	stop()
	w.verify()
}
