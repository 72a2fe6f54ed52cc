//go:build !trialrules

package ledger

// trialRules is how many versions of rules are on trial: none, but in the build
// that the tests of a change of rules make (see rules_trial.go).
const trialRules = 0

func (*step) onTrial() bool { return false }
