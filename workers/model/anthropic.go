package model

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"
)

const (
	// AnthropicURL is where Anthropic's API is.
	AnthropicURL = "https://api.anthropic.com"
	// anthropicMaxTokens is the bound on the output where the contract has none:
	// the API needs one.
	anthropicMaxTokens = 4096
)

// anthropicAPI is the API of Anthropic, messages.
type anthropicAPI struct {
	client anthropic.Client
	model  string
}

// NewAnthropic returns a provider for Anthropic, or for a server with the same API.
// The error says which option is wrong, or which kind's contract.
func NewAnthropic(o Options) (*Provider, error) {
	return newProvider(o, AnthropicURL, func(o Options) api {
		// Not NewClient: it reads base URL, keys and headers from the environment
		// and from files. The trace is the ledger's, not the SDK's.
		options := []option.RequestOption{option.WithBaseURL(o.BaseURL), option.WithMaxRetries(0), option.WithoutOpenTelemetry()}
		if o.APIKey != "" {
			options = append(options, option.WithAPIKey(o.APIKey))
		}
		return &anthropicAPI{model: o.Model, client: anthropic.Client{Options: options}}
	})
}

func (a *anthropicAPI) ask(ctx context.Context, on *exchange, q question) (answer *http.Response, err error) {
	params := anthropic.MessageNewParams{
		Model:     a.model,
		MaxTokens: anthropicMaxTokens,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(q.user))},
	}
	if q.system != "" {
		params.System = []anthropic.TextBlockParam{{Text: q.system}}
	}
	prompt := q.contract.Prompt()
	if prompt.Temperature != nil {
		params.Temperature = anthropic.Float(*prompt.Temperature)
	}
	if prompt.MaxOutputTokens > 0 {
		params.MaxTokens = int64(prompt.MaxOutputTokens)
	}
	if schema, ok := q.schema.(map[string]any); ok {
		params.OutputConfig.Format.Schema = schema
	}
	options := []option.RequestOption{option.WithHTTPClient(on)}
	if q.stream {
		options = append(options, option.WithJSONSet("stream", true), option.WithHeader("Accept", "text/event-stream"))
	}
	// Not Messages.New: it reads answers without a limit, and sets a timeout of its
	// own.
	err = a.client.Execute(ctx, http.MethodPost, "v1/messages", params, &answer, options...)
	return answer, err
}

// tell leaves to the SDK what the API's structured output does not know: it moves
// it into the descriptions, for the model to read.
func (a *anthropicAPI) tell(schema map[string]any) (any, bool) {
	single, _ := oneTypeEach(schema).(map[string]any)
	if told := anthropic.BetaJSONSchemaOutputFormat(single).Schema; told != nil {
		return told, true
	}
	return schema, false // the SDK cannot read it; the API may
}

func (a *anthropicAPI) events(answer *http.Response, take func(string, []byte) (bool, error)) error {
	decoder := ssestream.NewDecoder(answer)
	for decoder.Next() {
		event := decoder.Event()
		if len(event.Data) == 0 {
			continue
		}
		if last, err := take(event.Type, event.Data); last || err != nil {
			return err
		}
	}
	return decoder.Err()
}

func (a *anthropicAPI) document(body []byte, r *reply) error {
	var m anthropic.Message
	if err := json.Unmarshal(body, &m); err != nil {
		return err
	}
	r.called(m.ID, m.Model)
	u := m.Usage
	a.usage(u.JSON.InputTokens.Valid(), u.InputTokens+u.CacheCreationInputTokens+u.CacheReadInputTokens,
		u.JSON.OutputTokens.Valid(), u.OutputTokens, r)
	r.ends(string(m.StopReason))
	r.refusal.WriteString(m.StopDetails.Explanation)
	if m.JSON.Content.Raw() == "" {
		return errors.New("it has no content")
	}
	r.parts = len(m.Content)
	return r.content(m.JSON.Content.Raw())
}

func (a *anthropicAPI) event(data []byte, r *reply) (last bool, err error) {
	if data == nil {
		return false, nil // [DONE] is another API's
	}
	var e anthropic.MessageStreamEventUnion
	if err := json.Unmarshal(data, &e); err != nil {
		return false, err
	}
	switch e.Type {
	case "message_start":
		m := e.Message
		r.called(m.ID, m.Model)
		u := m.Usage
		a.usage(u.JSON.InputTokens.Valid(), u.InputTokens+u.CacheCreationInputTokens+u.CacheReadInputTokens,
			u.JSON.OutputTokens.Valid(), u.OutputTokens, r)
	case "content_block_start":
		r.parts++
		if e.ContentBlock.Type == "text" {
			r.text.WriteString(e.ContentBlock.Text)
		}
	case "content_block_delta":
		if e.Delta.Type == "text_delta" {
			r.text.WriteString(e.Delta.Text)
		}
	case "message_delta":
		r.ends(string(e.Delta.StopReason))
		r.refusal.WriteString(e.Delta.StopDetails.Explanation)
		u := e.Usage // counts from the beginning
		a.usage(u.JSON.InputTokens.Valid(), u.InputTokens+u.CacheCreationInputTokens+u.CacheReadInputTokens,
			u.JSON.OutputTokens.Valid(), u.OutputTokens, r)
	case "message_stop":
		return true, nil
	}
	return false, nil // ping, and what is newer than this
}

func (a *anthropicAPI) usage(hasInput bool, input int64, hasOutput bool, output int64, r *reply) {
	if hasInput {
		r.input = &input
	}
	if hasOutput {
		r.output = &output
	}
}
