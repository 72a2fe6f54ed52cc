package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
)

// How a model server behaves.
const (
	behavesWell   = int32(iota)
	ignoresSystem // it gives the right JSON, and does not follow the instructions
	hasNoKey      // it refuses everybody
)

// A modelServer speaks as much of OpenAI's chat completions as the provider needs.
// Its model is a rule: a summary is the first words of the text.
type modelServer struct {
	*httptest.Server
	behaviour atomic.Int32
}

func newModelServer() *modelServer {
	s := &modelServer{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.complete)
	s.Server = httptest.NewServer(mux)
	return s
}

// complete is POST /v1/chat/completions.
func (s *modelServer) complete(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Model    string
		Messages []struct{ Role, Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.Messages) == 0 {
		answer(w, http.StatusBadRequest, apiError("invalid_request_error", "that is no chat"))
		return
	}
	if s.behaviour.Load() == hasNoKey {
		answer(w, http.StatusUnauthorized, apiError("invalid_api_key", "Incorrect API key provided"))
		return
	}
	_, text, _ := strings.Cut(asked.Messages[len(asked.Messages)-1].Content, "\n\n")
	said, err := json.Marshal(s.summary(text))
	if err != nil {
		panic(err)
	}
	answer(w, http.StatusOK, map[string]any{
		"id": "chatcmpl-" + asked.Model, "object": "chat.completion", "created": 1, "model": asked.Model,
		"choices": []any{map[string]any{
			"index": 0, "finish_reason": "stop",
			"message": map[string]any{"role": "assistant", "content": string(said), "refusal": nil},
		}},
		"usage": map[string]int{"prompt_tokens": 60, "completion_tokens": 12, "total_tokens": 72},
	})
}

// summary is what the model makes of a text.
func (s *modelServer) summary(text string) any {
	words := strings.Fields(text)
	words = words[:min(3, len(words))]
	if s.behaviour.Load() != ignoresSystem {
		words = append(words, "END")
	}
	return map[string]any{"summary": strings.Join(words, " "), "words": len(words)}
}

func apiError(code, message string) any {
	return map[string]any{"error": map[string]any{"message": message, "type": "invalid_request_error", "param": nil, "code": code}}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Request-Id", fmt.Sprintf("req-%d", status))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone is its own business
}
