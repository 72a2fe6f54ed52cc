package presence

import (
	"sync"
	"time"
)

// maxKnown bounds how many processes are known at a time. The bucket's size
// bounds it too; this holds if somebody has made another bucket.
const maxKnown = 50_000

// A sight is what a watcher has seen of others. All moments are of this
// machine's monotonic clock: when something was received here, never when
// somebody says that it was sent.
//
// A silence can only be told from deafness by something that is heard: the
// watcher's own beats take the same way through the same bucket, in order with
// everybody else's. What has not been received before an own beat was not
// stored before it. So a silence is measured up to the sending of the latest own
// beat that came back, and begins anew when own beats were missing for longer
// than a gap.
type sight struct {
	gap time.Duration

	mu    sync.Mutex
	seen  map[string]*process
	proof time.Time // when the latest own beat that came back was sent; zero: none did
	since time.Time // from when on the proofs are without a gap
}

// A process is one that announces itself.
type process struct {
	at       time.Time // when its latest beat was received
	revision uint64    // of that beat
	next     time.Time // not to be looked at before
	pause    time.Duration
}

func newSight(gap time.Duration) *sight {
	return &sight{gap: gap, seen: map[string]*process{}}
}

// heard notes a beat of another process. Delivered a second time, it is none.
// It reports false if too many processes are known already.
func (s *sight) heard(name string, revision uint64, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.seen[name]
	switch {
	case p == nil && len(s.seen) >= maxKnown:
		return false
	case p == nil:
		s.seen[name] = &process{at: now, revision: revision}
	case p.revision != revision:
		*p = process{at: now, revision: revision}
	}
	return true
}

// gone notes that a process has taken its announcement back.
func (s *sight) gone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, name)
}

// heardOwn notes an own beat that was sent at the given moment.
func (s *sight) heardOwn(sent, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proof.IsZero() || sent.Sub(s.proof) > s.gap {
		s.since = now
	}
	if sent.After(s.proof) {
		s.proof = sent
	}
}

// sees reports whether what is not seen is not there.
func (s *sight) sees(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seesLocked(now)
}

func (s *sight) seesLocked(now time.Time) bool { return !s.proof.IsZero() && now.Sub(s.proof) <= s.gap }

// silence returns for how long a process has provably said nothing; 0 if
// nothing is proved or it is not known.
func (s *sight) silence(name string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.seen[name]
	if p == nil || !s.seesLocked(now) {
		return 0
	}
	return s.silenceOf(p)
}

func (s *sight) silenceOf(p *process) time.Duration {
	from := p.at
	if s.since.After(from) {
		from = s.since
	}
	return max(s.proof.Sub(from), 0)
}

// silent returns those who have been silent for at least the given time and
// are to be looked at, at most so many, with their silences.
func (s *sight) silent(shortest time.Duration, most int, now time.Time) map[string]time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]time.Duration{}
	if !s.seesLocked(now) {
		return found
	}
	for name, p := range s.seen {
		if now.Before(p.next) {
			continue
		}
		if d := s.silenceOf(p); d >= shortest && len(found) < most {
			found[name] = d
		}
	}
	return found
}

// later says when a silent process is to be looked at again: after pauses that
// double from first to most, or sooner if something is due before.
func (s *sight) later(name string, first, most, due time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.seen[name]
	if p == nil {
		return
	}
	p.pause = min(max(2*p.pause, first), most)
	p.next = now.Add(min(p.pause, due))
}

// revision returns the revision of a process's latest beat.
func (s *sight) revision(name string) (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.seen[name]
	if p == nil {
		return 0, false
	}
	return p.revision, true
}
