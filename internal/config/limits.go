package config

import "time"

// Bounds of what a file may say. They are far above sensible use; they exist so
// that a slip of the finger ends as a message and not as a stuck system.
const (
	maxFileBytes      = 256 << 10
	maxFileLines      = 5000 // the YAML library's time grows with the square of the lines
	maxNestingLevels  = 16
	maxContractLevels = 64 // schemas nest deeper than configurations
	maxCount          = 1 << 30
	maxFaultsReported = 50
	maxTextBytes      = 4096
	maxQuotedRunes    = 60

	minWait = time.Millisecond     // the protocol carries durations as whole milliseconds
	maxWait = 365 * 24 * time.Hour // a year

	// minHeartbeat is three beats of a worker, which come every second or so: a
	// shorter silence proves nothing.
	minHeartbeat     = 3 * time.Second
	maxLookupTimeout = 5 * time.Minute // a look-up is a question, not work

	maxAttemptsPerJob = 1000
	maxConcurrency    = 10_000
	minFactorMilli    = 1000
	maxFactorMilli    = 100_000

	minKnownFailure = 300 // a 1xx or 2xx status is never a failure
	maxKnownFailure = 599

	maxTokens     = 1000 // each look-up compares with every token
	maxOwnerBytes = 255
)
