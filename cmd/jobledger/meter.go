package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A meter shows on a terminal how far a long command is: a bar, the rate, and
// the time that is left. Where the output is not a terminal it shows nothing.
// Its methods may be called by any number of goroutines.
type meter struct {
	out   io.Writer
	unit  string // what is counted, in the plural
	doing string // "" or what is being done
	began time.Time

	mu    sync.Mutex
	bar   *progressbar.ProgressBar // nil: not on a terminal
	count int64                    // of units
}

const (
	meterWidth    = 24 // of the bar, in columns
	meterThrottle = 100 * time.Millisecond
)

// newMeter starts a meter of work whose size is total, in whatever the work is
// measured in; -1: nobody knows. Close it.
func newMeter(out io.Writer, unit string, total int64) *meter {
	m := &meter{out: out, unit: unit, began: time.Now()}
	if !isTerminal(out) {
		return m
	}
	m.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(meterWidth), progressbar.OptionThrottle(meterThrottle),
		progressbar.OptionSetPredictTime(total > 0), progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetSpinnerChangeInterval(0), progressbar.OptionSetDescription(m.describe()))
	return m
}

// isTerminal reports whether a person sees what is written.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (m *meter) describe() string {
	rate := 0.0
	if since := time.Since(m.began).Seconds(); since > 0 {
		rate = float64(m.count) / since
	}
	what := ""
	if m.doing != "" {
		what = m.doing + ": "
	}
	return fmt.Sprintf("%s%d %s, %.0f/s", what, m.count, m.unit, rate)
}

// name says what is being done, in a line of its own where there is no bar.
func (m *meter) name(doing string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.doing = doing; m.bar == nil {
		fmt.Fprintln(m.out, doing)
	}
}

// at says how many units are done, of how many as far as anybody knows.
func (m *meter) at(done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count = done
	if m.bar == nil {
		return
	}
	if total > 0 {
		m.bar.ChangeMax64(total)
	}
	m.bar.Describe(m.describe())
	_ = m.bar.Set64(min(done, total)) // a terminal that is gone takes no bar
}

// add says that one more unit is done, which was so much of the work.
func (m *meter) add(work int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	if m.bar == nil {
		return
	}
	m.bar.Describe(m.describe())
	_ = m.bar.Add64(work) // a terminal that is gone takes no bar
}

// say prints a line without tearing the bar.
func (m *meter) say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bar != nil {
		_ = m.bar.Clear()
	}
	fmt.Fprintf(m.out, format+"\n", args...)
}

// close takes the bar away.
func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bar != nil {
		_ = m.bar.Finish()
	}
}
