// Package tokens counts the tokens of prompts with the vocabularies of OpenAI's
// models, which are part of the program: nobody is asked.
package tokens

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
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

// New returns a counter for a model of OpenAI's. Whether its vocabulary is known
// is told when it counts.
func New(model string, c *contract.Contract) *Counter {
	return &Counter{model, c, sync.OnceValues(func() (tokenizer.Codec, error) { return codecOf(model) })}
}

// Which chat models have which vocabulary. A name counts only as a whole: others
// name their own models after these (gpt-4-x-alpaca), with vocabularies of theirs.
var (
	o200k = regexp.MustCompile(`^(?:(?:gpt-5(?:-mini|-nano)?|gpt-4\.1(?:-mini|-nano)?|gpt-4o(?:-mini)?|o1(?:-preview|-mini|-pro)?|o3(?:-mini|-pro)?|o4-mini)` +
		`(?:-20\d\d-\d\d-\d\d)?|chatgpt-4o-latest)$`)
	cl100k = regexp.MustCompile(`^(?:gpt-4(?:-32k|-turbo)?(?:-20\d\d-\d\d-\d\d|-\d{4})?(?:-preview)?|gpt-3\.5-turbo(?:-16k|-instruct)?(?:-\d{4})?)$`)
)

// codecOf returns the codec of a model, or of the one that it was tuned from
// (ft:MODEL:…).
func codecOf(model string) (tokenizer.Codec, error) {
	if tuned, ok := strings.CutPrefix(model, "ft:"); ok {
		model, _, _ = strings.Cut(tuned, ":")
	}
	switch {
	case o200k.MatchString(model):
		return tokenizer.Get(tokenizer.O200kBase)
	case cl100k.MatchString(model):
		return tokenizer.Get(tokenizer.Cl100kBase)
	}
	return nil, errors.New("it is no chat model of OpenAI's that is known here")
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
