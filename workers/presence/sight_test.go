package presence

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A story is a sight whose clock the test moves.
type story struct {
	*sight
	t        *testing.T
	now      time.Time
	revision uint64
}

func newStory(t *testing.T) *story {
	return &story{sight: newSight(2500 * time.Millisecond), t: t, now: time.Now()}
}

// pass lets seconds pass in which own beats come back, and those of others.
func (s *story) pass(seconds int, others ...string) {
	for range seconds {
		s.now = s.now.Add(time.Second)
		for _, name := range others {
			s.beat(name)
		}
		s.own()
	}
}

func (s *story) own() { s.heardOwn(s.now, s.now) }

func (s *story) beat(name string) {
	s.revision++
	s.heard(name, s.revision, s.now)
}

func (s *story) requireSilence(name string, seconds int) {
	s.t.Helper()
	require.Equal(s.t, time.Duration(seconds)*time.Second, s.silence(name, s.now))
}

func TestSilenceGrowsWhileOwnBeatsComeBack(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.pass(1, "a", "b")
	s.pass(5, "b")
	s.requireSilence("a", 5)
	s.requireSilence("b", 0)
	s.requireSilence("never heard of", 0)
	require.Equal(t, map[string]time.Duration{"a": 5 * time.Second}, s.silent(3*time.Second, 10, s.now))
	require.Empty(t, s.silent(6*time.Second, 10, s.now))
	require.Empty(t, s.silent(3*time.Second, 0, s.now))
	s.beat("a")
	s.requireSilence("a", 0)
}

// Whoever hears nothing of himself knows nothing of others, and counts anew
// when he does.
func TestDeafnessIsNoSilence(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.beat("a")
	s.now = s.now.Add(time.Minute)
	require.False(t, s.sees(s.now), "no own beat has come back yet")
	s.requireSilence("a", 0)
	s.pass(1)
	s.requireSilence("a", 0)
	s.pass(4)
	s.requireSilence("a", 4)

	s.now = s.now.Add(3 * time.Second) // frozen, or cut off
	require.False(t, s.sees(s.now))
	s.requireSilence("a", 0)
	require.Empty(t, s.silent(time.Second, 10, s.now))
	s.own()
	s.requireSilence("a", 0)
	s.pass(3)
	s.requireSilence("a", 3)
}

// An own beat proves what was stored before it was sent, not what came until it
// was received.
func TestProofReachesToTheSending(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.pass(1, "a")
	s.pass(2)
	sent := s.now.Add(time.Second)
	s.now = s.now.Add(2 * time.Second)
	s.heardOwn(sent, s.now)
	s.requireSilence("a", 3)
	s.heardOwn(sent.Add(-time.Second), s.now) // one that was overtaken
	s.requireSilence("a", 3)
}

func TestABeatDeliveredTwiceIsOne(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.pass(1, "a")
	s.pass(3)
	s.heard("a", s.revision, s.now)
	s.requireSilence("a", 3)
	s.gone("a")
	s.requireSilence("a", 0)
	s.heard("a", 1, s.now) // a bucket made anew counts from 1
	s.pass(2)
	s.requireSilence("a", 2)
}

func TestSilentOnesAreLookedAtLessAndLess(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	s.pass(1, "a")
	s.pass(3)
	for _, want := range []time.Duration{1, 2, 4, 4} {
		require.Len(t, s.silent(time.Second, 10, s.now), 1)
		s.later("a", time.Second, 4*time.Second, time.Hour, s.now)
		s.pass(int(want) - 1)
		require.Empty(t, s.silent(time.Second, 10, s.now))
		s.pass(1)
	}
	s.later("a", time.Second, 4*time.Second, time.Second, s.now) // something is due before
	s.pass(1)
	require.Len(t, s.silent(time.Second, 10, s.now), 1)
	s.later("gone", time.Second, time.Second, time.Second, s.now)
}
