package ledger

import "fmt"

// The tables below are the only places where states change. Everything that
// the fold does to a state goes through them; a move that is not listed is a
// programmer's mistake. The diagram in docs/states.md is generated from them.

type attemptEvent string

const (
	attemptCreated    attemptEvent = "start"
	attemptClaimed    attemptEvent = "claim"
	attemptUnclaimed  attemptEvent = "start deadline"
	attemptWon        attemptEvent = "success, first"
	attemptLost       attemptEvent = "success, too late"
	attemptFailed     attemptEvent = "failure"
	attemptNotSent    attemptEvent = "unsent"
	attemptAmbiguous  attemptEvent = "ambiguous end"
	attemptOverdue    attemptEvent = "deadline"
	attemptForsaken   attemptEvent = "worker lost"
	attemptReplayed   attemptEvent = "claim, replay"
	attemptDropped    attemptEvent = "job cancelled or won by a sibling"
	resolvedSucceeded attemptEvent = "resolved: succeeded"
	resolvedLost      attemptEvent = "resolved: succeeded, too late"
	resolvedFailed    attemptEvent = "resolved: failed"
	resolvedCancelled attemptEvent = "resolved: cancelled"
)

type attemptMove struct {
	from  AttemptState
	event attemptEvent
	to    AttemptState
}

var attemptMoves = []attemptMove{
	{"", attemptCreated, AttemptStarting},
	{AttemptStarting, attemptClaimed, AttemptRunning},
	{AttemptStarting, attemptUnclaimed, AttemptExpired},
	{AttemptStarting, attemptDropped, AttemptCancelled},
	{AttemptStarting, resolvedCancelled, AttemptCancelled},
	{AttemptRunning, attemptWon, AttemptSucceeded},
	{AttemptRunning, attemptLost, AttemptSuperseded},
	{AttemptRunning, attemptFailed, AttemptFailed},
	{AttemptRunning, attemptNotSent, AttemptUnsent},
	{AttemptRunning, attemptAmbiguous, AttemptUnknown},
	{AttemptRunning, attemptOverdue, AttemptUnknown},
	{AttemptRunning, attemptForsaken, AttemptUnknown},
	{AttemptRunning, resolvedSucceeded, AttemptSucceeded},
	{AttemptRunning, resolvedLost, AttemptSuperseded},
	{AttemptRunning, resolvedFailed, AttemptFailed},
	{AttemptRunning, resolvedCancelled, AttemptCancelled},
	{AttemptUnknown, attemptWon, AttemptSucceeded},
	{AttemptUnknown, attemptLost, AttemptSuperseded},
	{AttemptUnknown, attemptFailed, AttemptFailed},
	{AttemptUnknown, attemptNotSent, AttemptUnsent},
	{AttemptUnknown, attemptAmbiguous, AttemptUnknown},
	{AttemptUnknown, attemptReplayed, AttemptRunning},
	{AttemptUnknown, resolvedSucceeded, AttemptSucceeded},
	{AttemptUnknown, resolvedLost, AttemptSuperseded},
	{AttemptUnknown, resolvedFailed, AttemptFailed},
	{AttemptUnknown, resolvedCancelled, AttemptCancelled},
}

type jobEvent string

const (
	jobAccepted  jobEvent = "request"
	jobScheduled jobEvent = "request for later, or provider paused"
	jobStarted   jobEvent = "attempt starts"
	jobReopened  jobEvent = "a person starts an attempt"
	jobHedged    jobEvent = "hedge starts"
	jobLostSight jobEvent = "only unknown attempts are left"
	jobReplayed  jobEvent = "unknown attempt claimed again"
	jobWaits     jobEvent = "back-off, hold, missing proof or paused provider"
	jobWon       jobEvent = "result"
	jobFailed    jobEvent = "fatal failure"
	jobCancelled jobEvent = "cancel"
)

type jobMove struct {
	from  JobState
	event jobEvent
	to    JobState
}

var jobMoves = []jobMove{
	{"", jobAccepted, JobRunning},
	{"", jobScheduled, JobWaiting},
	{JobWaiting, jobStarted, JobRunning},
	{JobWaiting, jobReopened, JobRunning},
	{JobWaiting, jobWaits, JobWaiting},
	{JobWaiting, jobCancelled, JobCancelled},
	{JobRunning, jobStarted, JobRunning},
	{JobRunning, jobReopened, JobRunning},
	{JobRunning, jobHedged, JobRunning},
	{JobRunning, jobLostSight, JobUnknown},
	{JobRunning, jobWaits, JobWaiting},
	{JobRunning, jobWon, JobSucceeded},
	{JobRunning, jobFailed, JobFailed},
	{JobRunning, jobCancelled, JobCancelled},
	{JobUnknown, jobStarted, JobRunning},
	{JobUnknown, jobReopened, JobRunning},
	{JobUnknown, jobHedged, JobRunning},
	{JobUnknown, jobReplayed, JobRunning},
	{JobUnknown, jobWaits, JobWaiting},
	{JobUnknown, jobWon, JobSucceeded},
	{JobUnknown, jobFailed, JobFailed},
	{JobUnknown, jobCancelled, JobCancelled},
	{JobFailed, jobReopened, JobRunning},
	{JobFailed, jobCancelled, JobCancelled},
}

type attemptStep struct {
	from  AttemptState
	event attemptEvent
}

type jobStep struct {
	from  JobState
	event jobEvent
}

// The tables, indexed: the value is the position of the move.
var (
	attemptIndex = map[attemptStep]int{}
	jobIndex     = map[jobStep]int{}
)

func init() {
	for i, m := range attemptMoves {
		attemptIndex[attemptStep{m.from, m.event}] = i
	}
	for i, m := range jobMoves {
		jobIndex[jobStep{m.from, m.event}] = i
	}
}

// Coverage counts how often each move was made. Tests hand one to a State to
// see that their histories reach every move.
type Coverage struct {
	attempt, job []int
}

// NewCoverage returns a Coverage with all counts zero.
func NewCoverage() *Coverage {
	return &Coverage{attempt: make([]int, len(attemptMoves)), job: make([]int, len(jobMoves))}
}

// Each calls visit for every move of the tables with its count.
func (c *Coverage) Each(visit func(move string, count int)) {
	for i, m := range attemptMoves {
		visit(fmt.Sprintf("attempt %s --%s--> %s", orNone(m.from), m.event, m.to), c.attempt[i])
	}
	for i, m := range jobMoves {
		visit(fmt.Sprintf("job %s --%s--> %s", orNone(m.from), m.event, m.to), c.job[i])
	}
}

func orNone[T ~string](state T) string {
	if state == "" {
		return "(none)"
	}
	return string(state)
}

func (s *State) moveAttempt(a *Attempt, event attemptEvent) {
	i, ok := attemptIndex[attemptStep{a.State, event}]
	if !ok {
		panic(fmt.Sprintf("ledger: an attempt that is %s cannot take the event %q", orNone(a.State), event))
	}
	a.State = attemptMoves[i].to
	if s.Coverage != nil {
		s.Coverage.attempt[i]++
	}
}

func (s *State) moveJob(j *Job, event jobEvent) {
	i, ok := jobIndex[jobStep{j.State, event}]
	if !ok {
		panic(fmt.Sprintf("ledger: a job that is %s cannot take the event %q", orNone(j.State), event))
	}
	j.State = jobMoves[i].to
	if s.Coverage != nil {
		s.Coverage.job[i]++
	}
}
