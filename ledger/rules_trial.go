//go:build trialrules

package ledger

// This build knows one version of rules more than the current one. Nothing but
// tests makes it: they show that a change of rules decides nothing again that
// came before it, and that a binary without the new rules stops.
const trialRules = 1

// onTrial decides what the rules on trial decide otherwise: whoever cancels a job
// must say why.
func (st *step) onTrial() bool {
	b, isCancel := st.e.Body.(*Cancel)
	if st.s.rules < MaxRules || !isCancel || b.Reason != "" {
		return false
	}
	st.refuse(Forbidden, "rules %d ask for a reason", MaxRules)
	return true
}
