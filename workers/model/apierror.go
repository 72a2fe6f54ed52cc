package model

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Errors are told by their type and code, which are names; their messages are for
// people and change.
var (
	creditErrors = []string{
		"insufficient_quota", "billing_error", "billing_not_active", "billing_hard_limit_reached",
		"insufficient_credits", "insufficient_balance", "credit_balance_too_low",
	}
	filterErrors   = []string{"content_filter", "content_policy_violation", "moderation_blocked"}
	overloadErrors = []string{"overloaded_error"}
)

// An apiError is what an API says of an error. Servers differ in what they fill in.
type apiError struct {
	kind, code, message string
	requestID           string
}

func (e apiError) is(names []string) bool {
	return slices.Contains(names, e.kind) || slices.Contains(names, e.code)
}

func (e apiError) String() string { return fmt.Sprintf("%s %s: %s", e.kind, e.code, e.message) }

// readAPIError finds the error in a document: {"error": {…}} as both APIs have it,
// {"error": "…"} or {"object": "error", …} as some servers do. ok is false if there
// is none; a member error that is null or empty says that there is none.
func readAPIError(data []byte) (e apiError, ok bool) {
	var document struct {
		Error     json.RawMessage `json:"error"`
		RequestID any             `json:"request_id"`
		Object    any             `json:"object"`
	}
	if json.Unmarshal(data, &document) != nil { // no JSON, or no object
		return apiError{}, false
	}
	id, _ := document.RequestID.(string)
	inner := []byte(document.Error)
	if document.Object == "error" {
		inner = data
	}
	switch string(inner) {
	case "", "null", "false", `""`:
		return apiError{requestID: id}, false
	}
	var members struct {
		Type, Code, Message any
	}
	if json.Unmarshal(inner, &members) != nil { // a text, say
		return apiError{message: string(inner), requestID: id}, true
	}
	return apiError{asText(members.Type), asText(members.Code), asText(members.Message), id}, true
}

func asText(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
