package model

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/shared"
)

// OpenAIURL is where OpenAI's API is.
const OpenAIURL = "https://api.openai.com/v1"

// openAI is the API of OpenAI, chat completions, which most servers speak.
type openAI struct {
	client openai.Client
	model  string
}

// NewOpenAI returns a provider for OpenAI, or for a server with the same API. The
// error says which option is wrong, or which kind's contract.
func NewOpenAI(o Options) (*Provider, error) {
	return newProvider(o, OpenAIURL, func(o Options) api {
		// Not NewClient: it reads base URL, keys and headers from the environment.
		return &openAI{model: o.Model, client: openai.Client{Options: []option.RequestOption{
			option.WithBaseURL(o.BaseURL), option.WithAPIKey(o.APIKey), option.WithMaxRetries(0),
		}}}
	})
}

func (a *openAI) ask(ctx context.Context, on *exchange, q question) (answer *http.Response, err error) {
	params := openai.ChatCompletionNewParams{Model: a.model}
	if q.system != "" {
		params.Messages = append(params.Messages, openai.SystemMessage(q.system))
	}
	params.Messages = append(params.Messages, openai.UserMessage(q.user))
	prompt := q.contract.Prompt()
	if prompt.Temperature != nil {
		params.Temperature = openai.Float(*prompt.Temperature)
	}
	if prompt.MaxOutputTokens > 0 {
		params.MaxCompletionTokens = openai.Int(int64(prompt.MaxOutputTokens))
	}
	if q.schema != nil {
		params.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: q.kind, Schema: q.schema, Strict: openai.Bool(q.strict)},
		}
	}
	options := []option.RequestOption{option.WithHTTPClient(on)}
	if q.stream {
		params.StreamOptions.IncludeUsage = openai.Bool(true)
		options = append(options, option.WithJSONSet("stream", true), option.WithHeader("Accept", "text/event-stream"))
	}
	// Not Chat.Completions.New: it reads answers without a limit, and takes the end
	// of a stream for its last event.
	err = a.client.Execute(ctx, http.MethodPost, "chat/completions", params, &answer, options...)
	return answer, err
}

func (a *openAI) tell(schema map[string]any) (any, bool) {
	text, err := json.Marshal(schema)
	if err != nil {
		panic("model: a schema that was JSON cannot be written: " + err.Error())
	}
	return json.RawMessage(text), strictable(schema)
}

func (a *openAI) events(answer *http.Response, take func(string, []byte) (bool, error)) error {
	decoder := ssestream.NewDecoder(answer)
	for decoder.Next() {
		event := decoder.Event()
		if last, err := take(event.Type, event.Data); last || err != nil {
			return err
		}
	}
	return decoder.Err()
}

func (a *openAI) document(body []byte, r *reply) error {
	var c openai.ChatCompletion
	if err := json.Unmarshal(body, &c); err != nil {
		return err
	}
	r.called(c.ID, c.Model)
	a.usage(c.Usage, r)
	if c.JSON.Choices.Raw() == "" {
		return errors.New("it has no choices")
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // nobody asked for more than one
		}
		r.parts++
		r.ends(choice.FinishReason)
		r.callsTools(len(choice.Message.ToolCalls))
		r.refusal.WriteString(choice.Message.Refusal)
		if err := r.content(choice.Message.JSON.Content.Raw()); err != nil {
			return err
		}
	}
	return nil
}

func (a *openAI) event(data []byte, r *reply) (last bool, err error) {
	if data == nil {
		return true, nil
	}
	var c openai.ChatCompletionChunk
	if err := json.Unmarshal(data, &c); err != nil {
		return false, err
	}
	r.called(c.ID, c.Model)
	a.usage(c.Usage, r)
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // nobody asked for more than one
		}
		r.parts++
		r.ends(choice.FinishReason)
		r.callsTools(len(choice.Delta.ToolCalls))
		r.refusal.WriteString(choice.Delta.Refusal)
		if err := r.content(choice.Delta.JSON.Content.Raw()); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (a *openAI) usage(u openai.CompletionUsage, r *reply) {
	if u.JSON.PromptTokens.Valid() {
		r.input = &u.PromptTokens
	}
	if u.JSON.CompletionTokens.Valid() {
		r.output = &u.CompletionTokens
	}
}
