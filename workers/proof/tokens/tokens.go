// Package tokens counts the tokens of prompts with the vocabularies of OpenAI's
// models, which are part of the program: nobody is asked.
package tokens

import (
	"context"
	"fmt"
	"sync"

	"github.com/tiktoken-go/tokenizer"

	"jobledger/workers/contract"
)

// What a chat has besides its texts: marks around each message with its role, and
// the beginning of the answer.
const (
	perMessage = 4
	perAnswer  = 3
)

// A Counter counts for one model and one contract.
type Counter struct {
	model    string
	contract *contract.Contract
	codec    func() (tokenizer.Codec, error)
}

// New returns a counter. Whether the model's vocabulary is known is told when it
// counts.
func New(model string, c *contract.Contract) *Counter {
	return &Counter{model, c, sync.OnceValues(func() (tokenizer.Codec, error) { return tokenizer.ForModel(tokenizer.Model(model)) })}
}

// CountTokens implements proof.Counter. The result's schema is counted as its JSON,
// since the model gets to see it.
func (c *Counter) CountTokens(_ context.Context, _ string, input []byte) (int, error) {
	codec, err := c.codec()
	if err != nil {
		return 0, fmt.Errorf("nobody knows the vocabulary of the model %s (%w)", c.model, err)
	}
	prompt, err := c.contract.Render(input)
	if err != nil {
		return 0, err
	}
	sum := perAnswer
	for _, text := range []string{prompt.System, prompt.User} {
		if text == "" {
			continue
		}
		n, err := codec.Count(text)
		if err != nil {
			return 0, fmt.Errorf("count the prompt's tokens: %w", err)
		}
		sum += n + perMessage
	}
	n, err := codec.Count(string(c.contract.ResultSchema()))
	if err != nil {
		return 0, fmt.Errorf("count the schema's tokens: %w", err)
	}
	return sum + n, nil
}
