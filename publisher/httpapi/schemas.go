package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// The bodies of calls, for their schemas only: what HTTP has in paths and
// headers, and what follows it in HTTP's bodies, which parts adds.
type (
	submitCall struct {
		Owner string `json:"owner" doc:"whose job it is"`
		Key   string `json:"key" doc:"the idempotency key, which names the intent; 1 to 255 bytes"`
		Actor string `json:"actor,omitempty" doc:"who says it; default: the owner"`
	}
	getCall struct {
		Owner string `json:"owner" doc:"whose job it is"`
		Job   string `json:"job,omitempty" format:"uuid" doc:"the job's id; or name it by its key"`
		Key   string `json:"key,omitempty" doc:"the job's idempotency key; or name it by its id"`
		Wait  string `json:"wait,omitempty" doc:"up to 60s: answer when the job is settled or unknown" example:"30s"`
		Until string `json:"until,omitempty" enum:"terminal" doc:"wait on while it is unknown"`
	}
	cancelCall struct {
		Owner string `json:"owner" doc:"whose job it is"`
		Job   string `json:"job,omitempty" format:"uuid" doc:"the job's id; or name it by its key"`
		Key   string `json:"key,omitempty" doc:"the job's idempotency key; or name it by its id"`
		Actor string `json:"actor,omitempty" doc:"who says it; default: the owner"`
	}
	startCall struct {
		Owner string `json:"owner" doc:"whose job it is"`
		Job   string `json:"job" format:"uuid" doc:"the job's id"`
		Key   string `json:"key" doc:"the wish's own idempotency key"`
		Actor string `json:"actor,omitempty" doc:"who says it; default: the owner"`
	}
	resolveCall struct {
		Owner   string `json:"owner" doc:"whose job it is"`
		Job     string `json:"job,omitempty" format:"uuid" doc:"the job's id; or name it by its key"`
		Key     string `json:"key,omitempty" doc:"the job's idempotency key; or name it by its id"`
		Attempt int    `json:"attempt" minimum:"1" doc:"the attempt's number"`
		Actor   string `json:"actor,omitempty" doc:"who says it; default: the owner"`
	}
)

// parts adds the members of v's type to a schema. The generator does not look
// into embedded types that are not exported.
func parts(s *huma.Schema, r huma.Registry, v any) *huma.Schema {
	more := huma.SchemaFromType(r, reflect.TypeOf(v))
	for name, member := range more.Properties {
		s.Properties[name] = member
	}
	s.Required = append(s.Required, more.Required...)
	return s
}

// TransformSchema implements huma.SchemaTransformer.
func (listedAttempt) TransformSchema(r huma.Registry, s *huma.Schema) *huma.Schema {
	return parts(s, r, attemptView{})
}

// TransformSchema implements huma.SchemaTransformer: there may be no failure.
func (failureView) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// Schemas of an operation, JSON Schema 2020-12 as text: of the body of a
// request, of the answer, and of the problem that is the body of an error.
type Schemas struct{ Request, Response, Problem string }

// SchemasOf returns the schemas of an operation.
func SchemasOf(op Operation) (Schemas, error) {
	o, ok := map[Operation]struct {
		named, rest any
		answers     []any
	}{
		JobSubmit:      {submitCall{}, submitBody{}, []any{jobView{}, pendingView{}}},
		JobGet:         {getCall{}, struct{}{}, []any{jobView{}}},
		JobCancel:      {cancelCall{}, cancelBody{}, []any{jobView{}, pendingView{}}},
		AttemptStart:   {startCall{}, attemptBody{}, []any{attemptView{}, pendingView{}}},
		AttemptResolve: {resolveCall{}, resolveBody{}, []any{jobView{}, pendingView{}}},
	}[op]
	if !ok {
		return Schemas{}, fmt.Errorf("there is no operation %q", op)
	}
	registry := huma.NewMapRegistry(schemaRefs, huma.DefaultSchemaNamer)
	request, err1 := schemaText(registry, parts(huma.SchemaFromType(registry, reflect.TypeOf(o.named)), registry, o.rest))
	response, err2 := anyOf(o.answers...)
	fault, err3 := anyOf(Problem{})
	if err := errors.Join(err1, err2, err3); err != nil {
		return Schemas{}, fmt.Errorf("make the schemas of %s: %w", op, err)
	}
	return Schemas{request, response, fault}, nil
}

const schemaRefs = "#/$defs/"

// anyOf returns the schema of values of one of the types.
func anyOf(values ...any) (string, error) {
	registry := huma.NewMapRegistry(schemaRefs, huma.DefaultSchemaNamer)
	var list []*huma.Schema
	for _, v := range values {
		t := reflect.TypeOf(v)
		list = append(list, registry.Schema(t, true, t.Name()))
	}
	return schemaText(registry, &huma.Schema{AnyOf: list})
}

// schemaText returns a schema with those that it refers to.
func schemaText(registry huma.Registry, schema *huma.Schema) (string, error) {
	members := map[string]any{}
	data, err := json.Marshal(schema)
	if err == nil {
		err = json.Unmarshal(data, &members)
	}
	if err != nil {
		return "", err
	}
	members["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	if defs := registry.Map(); len(defs) > 0 {
		members["$defs"] = defs
	}
	data, err = jsonOf(members)
	return string(data), err
}
