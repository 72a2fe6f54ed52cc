package httpapi

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"jobledger/ledger"
)

// noTables are those of a hub that is told by the test what they say.
type noTables struct{ Reader }

func (noTables) States(context.Context, []uuid.UUID) (map[uuid.UUID]ledger.JobNews, error) {
	return nil, nil
}

// TestNewsNeverGoBack: the next look may be at a replica that is behind.
func TestNewsNeverGoBack(t *testing.T) {
	t.Parallel()
	h := newHub(&Options{Reader: noTables{}}, slog.New(slog.DiscardHandler))
	defer h.close()
	id := ledger.JobID("acme", "order-17")
	w := h.watch(id)
	defer w.leave()
	tell := func(n ledger.JobNews) {
		h.tell([]uuid.UUID{id}, map[uuid.UUID]ledger.JobNews{id: n}, time.Now())
	}
	latest := ledger.JobNews{State: ledger.JobSucceeded, Version: 3, Seq: 9}
	_, changed := w.look()
	tell(latest)
	select {
	case <-changed:
	default:
		t.Fatal("nobody was told")
	}
	_, changed = w.look()
	for _, old := range []ledger.JobNews{{State: ledger.JobRunning, Version: 2, Seq: 5}, latest, {}} {
		tell(old)
	}
	news, same := w.look()
	require.Equal(t, latest, news)
	require.Equal(t, changed, same)
}
