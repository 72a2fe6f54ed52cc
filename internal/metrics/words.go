package metrics

import "sync"

const (
	// maxNames bounds the names of kinds or providers that become labels, and
	// maxReasons the reasons of decisions. The ledger has some thirty reasons.
	maxNames   = 500
	maxReasons = 64
	// otherWord stands for all that is beyond the bound.
	otherWord = "other"
)

// words bounds the values of a label: the first ones are taken as they are, and
// what comes when there are too many becomes "other". Each value is a series
// that the process, and Prometheus, keep.
type words struct {
	most int

	mu    sync.RWMutex
	known map[string]struct{}
}

func newWords(most int) *words { return &words{most: most, known: map[string]struct{}{}} }

func (w *words) bound(value string) string {
	w.mu.RLock()
	_, known := w.known[value]
	w.mu.RUnlock()
	if known {
		return value
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known = w.known[value]; !known && len(w.known) >= w.most {
		return otherWord
	}
	w.known[value] = struct{}{}
	return value
}
