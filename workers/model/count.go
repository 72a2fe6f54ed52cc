package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/uuid"

	"jobledger/workers"
)

// countBytes bounds the answer to the question how many tokens a prompt has.
const countBytes = 64 << 10

// A counting API has an endpoint that counts the tokens of a prompt.
type counting interface {
	count(ctx context.Context, on *exchange, q question) (*http.Response, error)
}

// CountTokens asks the server how many tokens the prompt for an input of a kind
// has, with all that goes before it. The error says why that is not known; for
// servers of OpenAI's API it never is, because it has no such endpoint.
func (p *Provider) CountTokens(ctx context.Context, kind string, input []byte) (int, error) {
	api, ok := p.api.(counting)
	if !ok {
		return 0, errors.New("the server's API does not count tokens")
	}
	t, ok := p.tasks[kind]
	if !ok {
		return 0, fmt.Errorf("there is no contract for the kind %s, and so no prompt", kind)
	}
	prompt, err := t.contract.Render(input)
	if err != nil {
		return 0, err
	}
	id := uuid.New()
	x := &exchange{p: p, call: workers.Call{JobID: id, Attempt: 1, Kind: kind, IdempotencyKey: "count-" + id.String()}}
	defer x.close()
	answer, err := api.count(ctx, x, question{task: t, kind: kind, system: prompt.System, user: prompt.User}) //nolint:bodyclose // x.close closes it
	if failure := x.failure(err); failure != nil {
		return 0, fmt.Errorf("the server does not count the prompt's tokens: %s", p.clean(failure.Err.Error()))
	}
	body, err := workers.ReadAnswer(answer, countBytes)
	if err != nil {
		return 0, fmt.Errorf("the server's count of the prompt's tokens cannot be read: %s", p.clean(err.Error()))
	}
	var count anthropic.MessageTokensCount
	if err := json.Unmarshal(body, &count); err != nil || !count.JSON.InputTokens.Valid() || count.InputTokens < 1 {
		return 0, fmt.Errorf("the server's answer is no count of tokens: %s", p.excerpt(string(body)))
	}
	return int(count.InputTokens), nil
}

func (a *anthropicAPI) count(ctx context.Context, on *exchange, q question) (answer *http.Response, err error) {
	params := anthropic.MessageCountTokensParams{
		Model:    a.model,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(q.user))},
	}
	if q.system != "" {
		params.System.OfTextBlockArray = []anthropic.TextBlockParam{{Text: q.system}}
	}
	if schema, ok := q.schema.(map[string]any); ok {
		params.OutputConfig.Format.Schema = schema
	}
	err = a.client.Execute(ctx, http.MethodPost, "v1/messages/count_tokens", params, &answer, option.WithHTTPClient(on))
	return answer, err
}
