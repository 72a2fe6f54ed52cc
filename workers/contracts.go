package workers

import (
	"fmt"
	"strings"

	"jobledger/ledger"
	"jobledger/workers/contract"
)

// faultBytes bounds what a failure's message says of one fault.
const faultBytes = 512

// terms returns the contract that the attempt's start names, nil if it names
// none. The error says that this worker has another, or none: what it would check
// is not what the job was accepted for.
func (a *attempt) terms() (*contract.Contract, error) {
	if a.start.Contract == "" {
		return nil, nil
	}
	c := a.w.o.Contracts[a.start.Kind]
	has := "none"
	if c != nil {
		has = c.Digest()
	}
	if has == a.start.Contract {
		return c, nil
	}
	return nil, notCalled("contract_mismatch", fmt.Errorf(
		"the job was accepted under the contract %s of kind %s, and this worker has %s; give it the contract file that was applied, and start it again",
		a.start.Contract, a.start.Kind, has))
}

// proved says that this worker's definition of the provider is not the one whose
// proof allowed the start: what it would call is not what was proved.
func (a *attempt) proved() error {
	want, has := a.start.ProviderDigest, a.w.o.ProviderDigest
	if want == "" || has == "" || want == has {
		return nil
	}
	return notCalled("provider_mismatch", fmt.Errorf(
		"the start rests on a proof of the definition %s of provider %s, and this worker has %s; apply its configuration and verify the provider, or give it the one that was applied",
		want, a.start.Provider, has))
}

// agree settles what the start rests on: the definition that was proved, and the
// contract, which the input is checked against. The error is how the attempt ends
// without a call.
func (a *attempt) agree() (err error) {
	if err := a.proved(); err != nil {
		return err
	}
	if a.contract, err = a.terms(); err != nil || a.contract == nil {
		return err
	}
	if faults := a.contract.CheckInput(a.start.Input); len(faults) > 0 {
		return &CallError{Known: Refused, Class: "invalid_input", Reach: ledger.ReachRequest,
			Err: fmt.Errorf("the provider was not called: the input breaks the contract: %s", told(faults))}
	}
	return nil
}

// checkTerms says why a result that the provider gave is none by the contract.
// The provider did the work. Another try at the same one may give better, so the
// failure's reach is transient: what repeats itself is left to another provider,
// where repeating does no harm.
func (a *attempt) checkTerms(body []byte) error {
	faults := a.contract.CheckResult(a.start.Input, body)
	if len(faults) == 0 {
		return nil
	}
	return &CallError{Known: Executed, Class: "contract", Reach: ledger.ReachTransient,
		Err: fmt.Errorf("the result breaks the contract: %s", told(faults))}
}

// told is a line about faults. Each has its share of it, so that a long one does
// not hide the others.
func told(faults []contract.Fault) string {
	lines := make([]string, len(faults))
	for i, f := range faults {
		lines[i] = shorten(f.String(), faultBytes)
	}
	return strings.Join(lines, "; ")
}
