package proof

import (
	"context"
	"fmt"
	"strings"

	"jobledger/workers/contract"
)

// A Counter counts the tokens that a prompt has for one model.
type Counter interface {
	// CountTokens returns how many tokens the prompt for an input of a kind has,
	// as the model counts them. An error says why nobody can tell.
	CountTokens(ctx context.Context, kind string, input []byte) (int, error)
}

// A PromptReport is what can be said of the prompts for the questions.
type PromptReport struct {
	Verdict   Verdict          `json:"verdict"`
	Why       string           `json:"why,omitempty"` // unless it passed
	MaxTokens int              `json:"max_tokens"`    // the contract's bound; 0: none
	Questions []PromptQuestion `json:"questions"`
}

// A PromptQuestion is the prompt for one question.
type PromptQuestion struct {
	Name   string   `json:"name"`
	Tokens int      `json:"tokens,omitempty"` // 0: not counted
	Lost   []string `json:"lost,omitempty"`   // parts of the input that the prompt does not hold
	Fault  string   `json:"fault,omitempty"`  // why it is not as it should be
}

// Prompts makes the prompt of each question and looks at it; nil if the contract
// has none. Of the options it looks at Contract, Kind, Questions, Timeout and
// Counter. A prompt fails if it cannot be made, loses or changes a part
// of the input, or has too many tokens. Where there is a bound and nobody can
// count, it is not proved.
func Prompts(ctx context.Context, o *Options) *PromptReport {
	p := o.Contract.Prompt()
	if p == nil {
		return nil
	}
	r := &PromptReport{Verdict: Passed, MaxTokens: p.MaxInputTokens}
	for _, q := range o.Questions {
		one, uncounted := provePrompt(ctx, o, q)
		r.Questions = append(r.Questions, one)
		switch {
		case one.Fault != "" && r.Verdict != Failed:
			r.Verdict, r.Why = Failed, q.Name+": "+one.Fault
		case uncounted != "" && r.Verdict == Passed:
			r.Verdict, r.Why = NotProved, clip(uncounted)
		}
	}
	return r
}

func provePrompt(ctx context.Context, o *Options, q Question) (r PromptQuestion, uncounted string) {
	r.Name = q.Name
	var err error
	if r.Lost, err = o.Contract.Lost(q.Input); err != nil {
		r.Fault = clip(err.Error())
		return r, ""
	}
	if len(r.Lost) > 0 {
		r.Fault = clip("the prompt does not hold what the input has at " + strings.Join(r.Lost, ", "))
		r.Lost = r.Lost[:min(len(r.Lost), brokenKept)]
		return r, ""
	}
	uncounted = countPrompt(ctx, o, q, o.Contract.Prompt(), &r)
	return r, uncounted
}

// countPrompt counts the prompt's tokens if there is a bound, and says why it
// cannot.
func countPrompt(ctx context.Context, o *Options, q Question, p *contract.Prompt, r *PromptQuestion) string {
	if p.MaxInputTokens == 0 {
		return ""
	}
	if o.Counter == nil {
		return "nobody can count the prompt's tokens for this provider"
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	n, err := o.Counter.CountTokens(ctx, o.Kind, q.Input)
	if err != nil {
		return err.Error()
	}
	if r.Tokens = n; n > p.MaxInputTokens {
		r.Fault = fmt.Sprintf("the prompt has %d tokens; the contract allows %d", n, p.MaxInputTokens)
	}
	return ""
}
