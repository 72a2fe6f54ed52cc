package ledger_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"jobledger/ledger"
)

// A twin is a second fold, written from the rules and not from the code. It
// shares the types of entries with the real one and nothing else. Where the
// real fold moves states along tables, the twin keeps facts (who claimed, who
// won, what ended how) and derives every state from them when it is asked;
// where the real fold notes what it touches, the twin compares before and
// after. It is meant to be obvious, and is allowed to be slow.
type twin struct {
	rules     int // 0: none were set
	kinds     []twinKind
	providers map[string]ledger.Digest
	promises  map[string]bool // by provider: reconcile.replay
	paused    map[string]bool
	changed   time.Time // when anything last changed about providers
	proofs    []*ledger.Verification
	jobs      map[uuid.UUID]*twinJob
}

type twinKind struct {
	seq  uint64
	kind ledger.Kind
	text string
}

type twinJob struct {
	id         uuid.UUID
	owner, key string
	intent     string
	input      string
	kind       ledger.Kind
	kindSeq    uint64
	provider   string
	runAt      time.Time
	created    time.Time
	createdSeq uint64
	version    int64

	winner      int
	result      string
	failed      bool
	failure     ledger.Failure
	closedAt    time.Time // success or failure
	closedSeq   uint64
	cancelled   time.Time
	cancelledBy string
	isCancelled bool
	wait        ledger.StateReason
	due         time.Time

	updated  time.Time
	seqs     []uint64
	attempts []*twinAttempt
}

type twinAttempt struct {
	number    int
	provider  string
	why       ledger.AttemptReason
	key       string
	version   int64
	asked     time.Time
	startBy   time.Time
	claim     string
	replays   int
	claimHash ledger.Digest
	worker    string
	startSeq  uint64
	claimed   time.Time
	deadline  time.Time
	lost      bool
	lostSince time.Time
	end       ledger.AttemptState
	ended     time.Time
	failure   ledger.Failure
	ref       string
	usage     string
	said      string
	resolved  time.Time
	resolver  string
	because   string
	seqs      []uint64
}

func newTwin() *twin {
	return &twin{
		providers: map[string]ledger.Digest{}, promises: map[string]bool{}, paused: map[string]bool{},
		jobs: map[uuid.UUID]*twinJob{},
	}
}

func (j *twinJob) state() ledger.JobState {
	switch {
	case j.winner != 0:
		return ledger.JobSucceeded
	case j.isCancelled:
		return ledger.JobCancelled
	case j.failed:
		return ledger.JobFailed
	case j.wait != "":
		return ledger.JobWaiting
	}
	state := ledger.JobState("")
	for _, a := range j.attempts {
		switch a.state() {
		case ledger.AttemptStarting, ledger.AttemptRunning:
			return ledger.JobRunning
		case ledger.AttemptUnknown:
			state = ledger.JobUnknown
		}
	}
	return state
}

func (j *twinJob) settled() bool { return j.winner != 0 || j.isCancelled || j.failed }

func (j *twinJob) busy() bool {
	return slices.ContainsFunc(j.attempts, func(a *twinAttempt) bool { return a.end == "" })
}

// first is the provider that needs no proof.
func (j *twinJob) first() string {
	if j.provider == "" {
		return j.kind.Providers[0]
	}
	return j.provider
}

func (a *twinAttempt) state() ledger.AttemptState {
	switch {
	case a.end != "":
		return a.end
	case a.claim == "":
		return ledger.AttemptStarting
	case a.lost:
		return ledger.AttemptUnknown
	}
	return ledger.AttemptRunning
}

func (a *twinAttempt) due() time.Time {
	switch a.state() {
	case ledger.AttemptStarting:
		return a.startBy
	case ledger.AttemptRunning:
		return a.deadline
	}
	return time.Time{}
}

// proven looks for the newest verification of the provider for the contract.
func (t *twin) proven(provider string, k *ledger.Kind, now time.Time) bool {
	for _, v := range slices.Backward(t.proofs) {
		if v.Provider == provider && v.Kind == k.Name && v.Contract == k.Contract {
			return v.Passed && now.Before(v.ExpiresAt) && v.ProviderDigest == t.providers[provider].String()
		}
	}
	return false
}

func (t *twin) latestKind(name string) *twinKind {
	for i := range slices.Backward(t.kinds) {
		if t.kinds[i].kind.Name == name {
			return &t.kinds[i]
		}
	}
	return nil
}

// twinJobID computes a job's id anew, from the contract's words.
func twinJobID(owner, key string) uuid.UUID {
	namespace := uuid.MustParse("1d9af724-51c9-5d3b-9a7b-5e31743ea03a")
	return uuid.NewSHA1(namespace, []byte(strconv.Itoa(len(owner))+":"+owner+key))
}

// sameJSON gives documents that mean the same the same text. It is right for
// the small documents of the histories, not for all.
func sameJSON(doc []byte) string {
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		panic(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// twinIntent is all of a request that changes behaviour.
func twinIntent(b *ledger.Request) string {
	return b.Kind + "|" + b.Provider + "|" + strconv.FormatInt(b.DelayMS, 10) + "|" +
		b.RunAt.UTC().Format(time.RFC3339Nano) + "|" + sameJSON(b.Input)
}

// twinWord is all that a completion or resolution says of an ending.
func twinWord(outcome ledger.Outcome, result []byte, f ledger.Failure, ref string, usage []byte) string {
	doc := ""
	if result != nil {
		doc = sameJSON(result)
	}
	return string(outcome) + "|" + doc + "|" + f.Class + "|" + f.Message + "|" + strconv.FormatBool(f.Executed) + "|" +
		string(f.Reach) + "|" + strconv.FormatInt(f.RetryAfterMS, 10) + "|" + ref + "|" + string(usage)
}
