package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// objectSchema decodes a result's schema; nil if there is none, or if it is not
// for an object, which is all that the APIs take.
func objectSchema(text json.RawMessage) (map[string]any, error) {
	if text == nil {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("the result's schema: %w", err)
	}
	schema, ok := document.(map[string]any)
	if !ok || schema["type"] != "object" {
		return nil, nil
	}
	for _, name := range []string{"$schema", "$id", "$comment"} { // about the schema, not the result
		delete(schema, name)
	}
	return schema, nil
}

// What OpenAI's strict mode knows. A schema with anything else is told all the
// same, as a wish.
var (
	strictKeywords = []string{
		"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
		"title", "description", "pattern", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum",
		"exclusiveMaximum", "minItems", "maxItems",
	}
	strictFormats = []string{"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
	// shapes are the keywords of which a schema needs one to say what a value is.
	shapes = []string{"type", "enum", "const", "anyOf", "$ref"}
)

// strictable reports whether OpenAI's strict mode takes a schema: every object
// names its members, requires each of them and allows no others.
func strictable(schema any) bool {
	s, ok := schema.(map[string]any)
	if !ok {
		return false
	}
	shaped := false
	for name := range s {
		if !slices.Contains(strictKeywords, name) {
			return false
		}
		shaped = shaped || slices.Contains(shapes, name)
	}
	if format, ok := s["format"].(string); ok && !slices.Contains(strictFormats, format) {
		return false
	}
	if ref, ok := s["$ref"].(string); ok && ref != "#" && !strings.HasPrefix(ref, "#/$defs/") {
		return false
	}
	if !shaped || isType(s, "object") && !closedObject(s) {
		return false
	}
	return strictParts(s)
}

func strictParts(s map[string]any) bool {
	for _, name := range []string{"properties", "$defs"} {
		parts, _ := s[name].(map[string]any)
		for _, part := range parts {
			if !strictable(part) {
				return false
			}
		}
	}
	for _, part := range list(s["anyOf"]) {
		if !strictable(part) {
			return false
		}
	}
	items, ok := s["items"]
	return !ok || strictable(items)
}

// closedObject reports whether a schema requires all members that it declares,
// and allows no others.
func closedObject(s map[string]any) bool {
	members, _ := s["properties"].(map[string]any)
	required := list(s["required"])
	for name := range members {
		if !slices.Contains(required, any(name)) {
			return false
		}
	}
	return members != nil && len(required) == len(members) && s["additionalProperties"] == false
}

func isType(s map[string]any, name string) bool {
	return s["type"] == name || slices.Contains(list(s["type"]), any(name))
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// oneTypeEach writes a list of types as anyOf, wherever it stands: Anthropic's SDK
// reads only schemas of one type.
func oneTypeEach(schema any) any {
	switch s := schema.(type) {
	case []any:
		out := make([]any, len(s))
		for i, v := range s {
			out[i] = oneTypeEach(v)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(s))
		for k, v := range s {
			switch k {
			case "enum", "const", "default", "examples": // values, not schemas
				out[k] = v
			default:
				out[k] = oneTypeEach(v)
			}
		}
		types := list(s["type"])
		if len(types) == 0 || s["anyOf"] != nil {
			return out
		}
		return anyOfTypes(out, types)
	}
	return schema
}

func anyOfTypes(s map[string]any, types []any) any {
	var variants []any
	for _, t := range types {
		variant := map[string]any{}
		for k, v := range s {
			variant[k] = v
		}
		variant["type"] = t
		if t != "object" {
			for _, name := range []string{"properties", "required", "additionalProperties"} {
				delete(variant, name)
			}
		}
		if t != "array" {
			delete(variant, "items")
		}
		variants = append(variants, variant)
	}
	return map[string]any{"anyOf": variants}
}
