package ledger

import (
	"encoding/json"
	"math/big"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawKind draws a definition that Check accepts.
func drawKind(t *rapid.T) Kind {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,8}`), 1, 5, rapid.ID[string])
	ms := rapid.Int64Range(0, MaxTimeout.Milliseconds())
	k := Kind{
		Name: rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,63}`).Draw(t, "name"), Providers: names.Draw(t, "providers"),
		Effects:        rapid.SampledFrom([]Effects{EffectsExternal, EffectsNone}).Draw(t, "effects"),
		Mode:           ModeExclusive,
		StartTimeoutMS: ms.Draw(t, "start"), AttemptTimeoutMS: max(1, ms.Draw(t, "attempt")), HeartbeatTimeoutMS: ms.Draw(t, "heartbeat"),
		MaxAttempts: rapid.IntRange(1, MaxAttemptsLimit).Draw(t, "attempts"),
		Failover:    rapid.SampledFrom([]FailoverRule{FailoverNever, FailoverVerified}).Draw(t, "failover"),
		Contract:    rapid.StringMatching(`[A-Za-z0-9:._-]{0,80}`).Draw(t, "contract"),
		Backoff:     drawBackoff(t),
	}
	if k.Effects == EffectsNone && rapid.Bool().Draw(t, "race") {
		k.Mode, k.HedgeAfterMS = ModeRace, max(1, ms.Draw(t, "hedge"))
	}
	return k
}

func drawBackoff(t *rapid.T) BackoffPolicy {
	ms := rapid.Int64Range(0, MaxTimeout.Milliseconds())
	a, b := ms.Draw(t, "initial"), ms.Draw(t, "max")
	return BackoffPolicy{
		InitialMS: min(a, b), MaxMS: max(a, b), FactorMilli: rapid.Int64Range(1000, 100_000).Draw(t, "factor"),
	}
}

// TestKindSaysItself: a definition that is written is read back equal, and its
// digest does not depend on the layout that it came in.
func TestKindSaysItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := drawKind(t)
		if err := k.Check(); err != nil {
			t.Fatal(err)
		}
		written := k.AppendJSON(nil)
		got, err := ParseKind(written)
		if err != nil || !reflect.DeepEqual(got, k) {
			t.Fatalf("%s\n was read as %+v, %v\n want %+v", written, got, err, k)
		}
		other, err := ParseKind(spell(t, nil, integers(parse(t, written))))
		if err != nil || other.Digest() != k.Digest() {
			t.Fatalf("%s in another layout: %+v, %v", written, other, err)
		}
	})
}

// integers has integers in the place of numbers, so that spell leaves them as
// they are: an entry's own numbers are written without point and exponent.
func integers(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, _ := v.Int64()
		return n
	case map[string]any:
		for name := range v {
			v[name] = integers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	}
	return v
}

// TestBackoffIsBounded: the wait never shrinks, never exceeds the maximum, and
// is the power that the definition names, cut to milliseconds at every step.
func TestBackoffIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := drawBackoff(t)
		n := rapid.IntRange(1, MaxAttemptsPerJob).Draw(t, "n")
		wait, next := b.wait(n), b.wait(n+1)
		if wait < b.InitialMS || wait > next || next > b.MaxMS {
			t.Fatalf("%+v waits %d before repetition %d and %d before the next", b, wait, n, next)
		}
		exact := big.NewInt(b.InitialMS)
		for range n - 1 {
			exact.Mul(exact, big.NewInt(b.FactorMilli)).Quo(exact, big.NewInt(1000))
			if exact.Cmp(big.NewInt(b.MaxMS)) >= 0 {
				exact.SetInt64(b.MaxMS)
				break
			}
		}
		if exact.Int64() != wait {
			t.Fatalf("%+v waits %d before repetition %d; exactly it is %v", b, wait, n, exact)
		}
	})
}

// TestJitterStaysWithin: the jitter is at most what it may be, and the same for
// the same job and number of attempts.
func TestJitterStaysWithin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		j := &Job{ID: JobID("acme", rapid.String().Draw(t, "key"))}
		j.Attempts = make([]*Attempt, rapid.IntRange(0, 50).Draw(t, "attempts"))
		most := rapid.Int64Range(0, MaxTimeout.Milliseconds()).Draw(t, "most")
		got := jitter(j, most)
		if got < 0 || got > most || got != jitter(j, most) {
			t.Fatalf("jitter %d of at most %d, then %d", got, most, jitter(j, most))
		}
	})
	spread := map[int64]bool{}
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		spread[jitter(&Job{ID: JobID("acme", key)}, 1_000_000)] = true
	}
	if len(spread) != 6 {
		t.Errorf("six jobs have only %d different jitters", len(spread))
	}
}

func TestNextDue(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return storyStart.Add(time.Duration(s) * time.Second) }
	for name, v := range map[string]struct {
		job     time.Time
		due     []time.Time
		want    time.Time
		attempt int
	}{
		"nothing":             {},
		"nothing of attempts": {due: []time.Time{{}, {}}},
		"the job":             {job: at(1), due: []time.Time{{}, at(2)}, want: at(1)},
		"an attempt":          {job: at(5), due: []time.Time{at(3), at(2), {}}, want: at(2), attempt: 2},
		"only an attempt":     {due: []time.Time{{}, at(9)}, want: at(9), attempt: 2},
		"both at once":        {job: at(1), due: []time.Time{at(1)}, want: at(1)},
	} {
		j := &Job{DueAt: v.job}
		for i, due := range v.due {
			j.Attempts = append(j.Attempts, &Attempt{Number: i + 1, DueAt: due})
		}
		if due, attempt := j.NextDue(); !due.Equal(v.want) || attempt != v.attempt {
			t.Errorf("%s: %v of attempt %d; expected %v of %d", name, due, attempt, v.want, v.attempt)
		}
	}
}
