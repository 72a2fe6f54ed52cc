package ledger_test

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// A profile is a family of histories.
type profile struct {
	name    string
	share   int // of a hundred histories
	entries int // at least so many after the definitions
	kind    func(d *dice, k *ledger.Kind)
	weights weights
}

// weights say how often a world does what.
type weights struct{ request, worker, due, resolve, ask, cancel, define, noise int }

var plainWeights = weights{request: 8, worker: 45, due: 18, resolve: 8, ask: 8, cancel: 4, define: 4, noise: 5}

var profiles = []profile{
	{"exclusive external", 14, 34, func(d *dice, k *ledger.Kind) {}, plainWeights},
	{"exclusive none", 12, 34, func(d *dice, k *ledger.Kind) { k.Effects = ledger.EffectsNone }, plainWeights},
	{"race", 40, 37, func(d *dice, k *ledger.Kind) {
		k.Effects, k.Mode, k.HedgeAfterMS = ledger.EffectsNone, ledger.ModeRace, one[int64](d, 1000, 12_000)
		k.AttemptTimeoutMS = one[int64](d, 2000, 5000, 10_000)
		k.MaxAttempts = one(d, 2, 3, 4)
	}, plainWeights},
	{"never fails over", 12, 34, func(d *dice, k *ledger.Kind) { k.Failover = ledger.FailoverNever }, plainWeights},
	{"start deadlines", 12, 34, func(d *dice, k *ledger.Kind) {
		k.StartTimeoutMS = 3000
		k.Effects = one(d, ledger.EffectsNone, ledger.EffectsExternal)
		if k.Effects == ledger.EffectsNone && d.percent(50) {
			k.Mode, k.HedgeAfterMS = ledger.ModeRace, 1000
		}
	}, weights{request: 10, worker: 30, due: 35, resolve: 5, ask: 8, cancel: 2, define: 4, noise: 6}},
	{"few attempts", 8, 34, func(d *dice, k *ledger.Kind) { k.MaxAttempts = one(d, 1, 2) }, plainWeights},
	{"churn", 2, 80, func(d *dice, k *ledger.Kind) {
		k.StartTimeoutMS, k.MaxAttempts, k.Effects = 500, 4, ledger.EffectsNone
	}, weights{request: 2, worker: 4, due: 88, ask: 4, noise: 2}},
}

// A world is what generates a history: producers, workers, operators and a
// clock, all a little careless. It looks at the twin to know what is plausible.
type world struct {
	*dice
	profile *profile
	run     *run
	said    history
	now     time.Time
	ids     []uuid.UUID
	kinds   []ledger.Kind
}

var (
	worldStart    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	worldOwners   = []string{"acme", "zoë"}
	worldProvider = []string{"p1", "p2", "p3"}
)

func newWorld(seed uint64, p *profile, c *ledger.Coverage) *world {
	return &world{dice: newDice(seed), profile: p, run: newRun(c), now: worldStart}
}

// live generates a history, checking it as it goes.
func (w *world) live() error {
	if err := w.begin(); err != nil {
		return err
	}
	for n := w.profile.entries + w.n(20); n > 0; n-- {
		w.tick()
		if err := w.act(); err != nil {
			return err
		}
	}
	return w.run.finish(newDice(w.next()))
}

// say appends an entry.
func (w *world) say(b ledger.Body) error {
	m := b.Message()
	return w.append(m.Subject, m.Data)
}

func (w *world) append(subject string, data []byte) error {
	s := said{w.now, subject, data}
	w.said = append(w.said, s)
	return w.run.step(s)
}

// begin defines the kinds and makes three jobs of two owners.
func (w *world) begin() error {
	bodies := []ledger.Body{&ledger.Rules{Rules: 1, Actor: "init"}}
	for _, name := range []string{"draw", "talk"} {
		w.kinds = append(w.kinds, w.newKind(name))
		bodies = append(bodies, &ledger.KindDefinition{Kind: w.kinds[len(w.kinds)-1], Actor: "op"})
	}
	for _, p := range worldProvider[:1+w.n(3)] {
		bodies = append(bodies, w.providerDefinition(p, 1))
	}
	for _, b := range bodies {
		if err := w.say(b); err != nil {
			return err
		}
	}
	for _, p := range worldProvider {
		if w.percent(60) {
			if err := w.say(w.verification(p)); err != nil {
				return err
			}
		}
	}
	for i, key := range []string{"k1", "k1", "k2"} {
		if err := w.say(w.plainRequest(worldOwners[i%2], key)); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) newKind(name string) ledger.Kind {
	k := ledger.DefaultKind()
	k.Name, k.Providers = name, worldProvider[:one(w.dice, 2, 3, 3)]
	k.AttemptTimeoutMS = one[int64](w.dice, 5000, 10_000)
	k.MaxAttempts = one(w.dice, 2, 3, 4, 6)
	k.Backoff = ledger.BackoffPolicy{
		InitialMS: one[int64](w.dice, 0, 100, 1000), MaxMS: one[int64](w.dice, 1000, 4000),
		FactorMilli: one[int64](w.dice, 1000, 1500, 2000),
	}
	k.Contract = one(w.dice, "", "c1")
	if w.percent(15) {
		k.Failover = ledger.FailoverNever
	}
	w.profile.kind(w.dice, &k)
	return k
}

func (w *world) providerDefinition(name string, revision int) *ledger.ProviderDefinition {
	doc := []string{
		`{"url":"x","n":1,"reconcile":{"replay":true}}`, `{"n":1.0, "reconcile":{"replay":true}, "url":"x"}`,
		`{"url":"y","reconcile":{"lookup":"z","replay":false}}`,
	}
	return &ledger.ProviderDefinition{Name: name, Type: "http", Definition: []byte(doc[revision%3]), Actor: "op"}
}

// verification is mostly one that proves what it should.
func (w *world) verification(provider string) *ledger.Verification {
	k := w.kinds[w.n(len(w.kinds))]
	digest := w.run.twin.providers[provider].String()
	v := &ledger.Verification{
		Provider: provider, Kind: k.Name, Contract: k.Contract, ProviderDigest: digest, Passed: w.percent(85),
		ExpiresAt: w.now.Add(one(w.dice, time.Hour, time.Hour, 20*time.Second, 3*time.Second, -time.Second)), Actor: "verifier",
	}
	switch w.n(20) {
	case 0:
		v.Contract = "c2"
	case 1:
		v.ProviderDigest = strings.Repeat("ab", 32)
	case 2:
		v.Kind = "nokind"
	case 3:
		v.Report = []byte(`{"cases":3}`)
	}
	return v
}

func (w *world) plainRequest(owner, key string) *ledger.Request {
	w.ids = append(w.ids, twinJobID(owner, key))
	return &ledger.Request{
		Owner: owner, Key: key, Kind: w.kinds[w.n(len(w.kinds))].Name, Input: []byte(`{"n": 1, "s": "é"}`), Actor: "alice",
	}
}

// tick lets time pass, at times backwards.
func (w *world) tick() {
	switch r := w.n(100); {
	case r < 30:
	case r < 72:
		w.now = w.now.Add(time.Duration(w.n(900)) * time.Millisecond)
	case r < 90:
		w.now = w.now.Add(time.Duration(w.n(4_000_000)) * time.Microsecond)
	case r < 96:
		w.now = w.now.Add(time.Duration(w.n(30_000)) * time.Millisecond)
	case r < 98:
		w.now = w.now.Add(time.Duration(w.n(5)) * time.Minute)
	default:
		w.now = w.now.Add(-time.Duration(w.n(2000)) * time.Millisecond)
	}
}

// act lets somebody do something.
func (w *world) act() error {
	c := w.profile.weights
	r := w.n(c.request + c.worker + c.due + c.resolve + c.ask + c.cancel + c.define + c.noise)
	for _, choice := range []struct {
		weight int
		do     func() error
	}{
		{c.request, w.request}, {c.worker, w.work}, {c.due, w.clock}, {c.resolve, w.resolve}, {c.ask, w.ask},
		{c.cancel, w.cancel}, {c.define, w.redefine}, {c.noise, w.noise},
	} {
		if r < choice.weight {
			return choice.do()
		}
		r -= choice.weight
	}
	panic("no choice")
}

// job picks a job, rarely one that nobody knows, and rather one that is alive.
func (w *world) job() (uuid.UUID, *twinJob) {
	if w.percent(2) {
		id := twinJobID("nobody", "k")
		return id, w.run.twin.jobs[id]
	}
	if w.profile.name == "churn" && w.percent(85) {
		return w.ids[0], w.run.twin.jobs[w.ids[0]]
	}
	var id uuid.UUID
	for range 3 {
		id = w.ids[w.n(len(w.ids))]
		if j := w.run.twin.jobs[id]; j != nil && !j.settled() {
			break
		}
	}
	return id, w.run.twin.jobs[id]
}

// straggler picks an attempt that is in flight although its job is settled,
// rather an unknown one.
func (w *world) straggler() (id uuid.UUID, found *twinAttempt) {
	for _, known := range w.ids {
		j := w.run.twin.jobs[known]
		if j == nil || !j.settled() {
			continue
		}
		for _, a := range j.attempts {
			if a.end == "" && (found == nil || a.lost) {
				id, found = j.id, a
			}
		}
	}
	return id, found
}
