package projector

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"jobledger/ledger"
)

// Bounds of the clock.
const (
	clockPeriod = 500 * time.Millisecond
	// clockRows is how many due times one look says at most, of either sort;
	// clockUnheard how many may be said and not folded yet for another look to
	// follow at once.
	clockRows    = 1000
	clockUnheard = 16_000
	// clockAhead bounds the due times that are appended at a time.
	clockAhead = 64
	// A due time that was said and still stands there is said again after
	// clockFirst, then ever more rarely up to clockMost: the fold may be behind.
	clockFirst = 2 * time.Second
	clockMost  = time.Minute
)

// clock looks for due rows and says so in the stream. It decides nothing: the
// fold compares the due time with the timestamp that the entry gets there. So a
// machine whose clock jumps ahead expires nothing by itself.
type clock struct {
	store    *Store
	appender Appender
	log      *slog.Logger
	said     map[DueRow]saying
}

// saying is when a due time may be said again, and how long to wait after that.
type saying struct {
	again time.Time
	wait  time.Duration
}

func (c *clock) run(ctx context.Context) error {
	tick := time.NewTicker(clockPeriod)
	defer tick.Stop()
	c.said = map[DueRow]saying{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		for more := true; more; {
			var err error
			if more, err = c.look(ctx); err != nil {
				return err
			}
		}
	}
}

// look says what is due now, and reports whether there is more. Only the database
// is needed to go on: an append that fails is tried again at a later look.
//
// What was said stands there until it is folded, and must not hide what has not
// been said. And the jobs that wait for a provider are asked for by themselves:
// when it is resumed there may be very many, all of them older than any deadline.
func (c *clock) look(ctx context.Context) (more bool, err error) {
	now, limit := time.Now(), clockRows+len(c.said)
	rows, err := c.store.DueRows(ctx, now, limit)
	if err != nil {
		return false, err
	}
	paused, err := c.store.PausedRows(ctx, limit)
	if err != nil {
		return false, err
	}
	full := len(rows) == limit || len(paused) == limit
	said, err := c.say(ctx, c.choose(rows, paused, now))
	return said && full && len(c.said) < clockUnheard, err
}

// say appends due times and reports whether all of them were stored. One that was
// not is said again as one that was: ever more rarely.
func (c *clock) say(ctx context.Context, due []DueRow) (all bool, err error) {
	var failed atomic.Bool
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clockAhead)
	for _, r := range due {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, appendTimeout)
			defer cancel()
			b := ledger.Due{Job: r.Job, Attempt: r.Attempt, Due: r.Due}
			if _, err := c.appender.Append(ctx, b.Message()); err != nil {
				failed.Store(true)
				c.log.Warn("a due time was not appended; it will be said again", "job", r.Job, "attempt", r.Attempt, "error", err)
			}
			return nil
		})
	}
	err = g.Wait()
	return !failed.Load(), err
}

// choose returns the rows to say now, at most clockRows of each list, and forgets
// those that are handled.
func (c *clock) choose(rows, paused []DueRow, now time.Time) []DueRow {
	seen := make(map[DueRow]saying, len(rows)+len(paused))
	due := c.chooseFrom(rows, now, seen)
	due = append(due, c.chooseFrom(paused, now, seen)...)
	c.said = seen
	return due
}

func (c *clock) chooseFrom(rows []DueRow, now time.Time, seen map[DueRow]saying) []DueRow {
	var due []DueRow
	for _, r := range rows {
		s, before := c.said[r]
		switch {
		case len(due) == clockRows && !before:
			continue // for another look
		case !before:
			s = saying{now.Add(clockFirst), clockFirst}
			due = append(due, r)
		case now.After(s.again) && len(due) < clockRows:
			s.wait = min(2*s.wait, clockMost)
			s.again = now.Add(s.wait)
			due = append(due, r)
		}
		seen[r] = s
	}
	return due
}
