package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// A route is an operation with its handler. The OpenAPI document is made of the
// same table that the mux is.
type route struct {
	method, path, id, summary string
	handler                   handler
	params                    []*huma.Param
	body                      any         // a value of the body's type; nil: none
	answers                   map[int]any // values of the types by status
	events                    any         // a value of the events' data; nil: none
	problems                  []int
	open                      bool // needs no authentication
}

// The bodies of requests, for the document only: they are read by the ledger's
// own rules.
type (
	submitBody struct {
		Kind     string          `json:"kind"`
		Input    json.RawMessage `json:"input" doc:"one JSON value that fits the kind's schema"`
		Provider string          `json:"provider,omitempty" doc:"default: the kind's first"`
		RunAt    time.Time       `json:"run_at,omitempty" doc:"not before; excludes delay"`
		Delay    string          `json:"delay,omitempty" doc:"such as 10m; excludes run_at" example:"10m"`
	}
	attemptBody struct {
		Provider string `json:"provider,omitempty" doc:"default: that of the latest attempt"`
		Force    bool   `json:"force,omitempty" doc:"start on an unverified provider; operators only"`
	}
	cancelBody struct {
		Reason string `json:"reason,omitempty"`
	}
	resolveBody struct {
		As     string          `json:"as" enum:"succeeded,failed,cancelled"`
		Result json.RawMessage `json:"result,omitempty" doc:"required with succeeded"`
		If     string          `json:"if,omitempty" enum:"unknown" doc:"only while the attempt is unknown: not if a replay runs by now"`
		Reason string          `json:"reason" doc:"why you believe it"`
	}
)

var (
	paramJob  = &huma.Param{Name: "id", In: "path", Required: true, Description: "the job's id", Schema: &huma.Schema{Type: "string", Format: "uuid"}}
	paramN    = &huma.Param{Name: "n", In: "path", Required: true, Description: "the attempt's number, from 1", Schema: &huma.Schema{Type: "integer"}}
	paramName = &huma.Param{Name: "name", In: "path", Required: true, Description: "the provider's name", Schema: &huma.Schema{Type: "string"}}
	paramKey  = &huma.Param{Name: KeyHeader, In: "header", Required: true,
		Description: "names the intent; taken verbatim, 1 to 255 bytes of visible ASCII and inner spaces", Schema: &huma.Schema{Type: "string"}}
)

func inQuery(name, description string) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: description, Schema: &huma.Schema{Type: "string"}}
}

func (a *API) routes() []route {
	paging := []*huma.Param{inQuery("limit", "1 to 500; default 50"), inQuery("cursor", "next_cursor of the page before")}
	routes := []route{
		{method: "POST", path: "/v1/jobs", id: "submit-job", summary: "Submit a job, once however often it is sent",
			handler: a.known(a.submit), params: []*huma.Param{paramKey}, body: submitBody{},
			answers: map[int]any{201: jobView{}, 200: jobView{}, 202: pendingView{}}, problems: []int{400, 409, 413, 422, 503}},
		{method: "GET", path: "/v1/jobs", id: "list-jobs", summary: "List jobs, newest first", handler: a.known(a.listJobs),
			params: append([]*huma.Param{inQuery("state", ""), inQuery("kind", ""), inQuery("provider", "the provider that the request names"),
				inQuery("owner", ""), inQuery("key", "")}, paging...),
			answers: map[int]any{200: jobsPage{}}, problems: []int{400, 503}},
		{method: "GET", path: "/v1/jobs/{id}", id: "get-job", summary: "Get a job with its attempts, or wait for it", handler: a.known(a.getJob),
			params:  []*huma.Param{paramJob, inQuery("wait", "up to 60s: answer when the job is settled or unknown"), inQuery("until", "terminal: wait on while it is unknown")},
			answers: map[int]any{200: jobView{}}, problems: []int{400, 404, 503}},
		{method: "GET", path: "/v1/jobs/{id}/events", id: "stream-job", summary: "Follow a job until it is settled, as server-sent events", handler: a.known(a.streamJob),
			params: []*huma.Param{paramJob, paramLastEvent}, events: eventView{}, problems: []int{400, 404, 503}},
		{method: "POST", path: "/v1/jobs/{id}/cancel", id: "cancel-job", summary: "Cancel a job for good", handler: a.known(a.cancel),
			params: []*huma.Param{paramJob}, body: cancelBody{},
			answers: map[int]any{200: jobView{}, 202: pendingView{}}, problems: []int{400, 404, 409, 413, 503}},
		{method: "POST", path: "/v1/jobs/{id}/attempts", id: "start-attempt", summary: "Try the job again, or on another provider",
			handler: a.known(a.startAttempt), params: []*huma.Param{paramJob, paramKey}, body: attemptBody{},
			answers: map[int]any{201: attemptView{}, 200: attemptView{}, 202: pendingView{}}, problems: []int{400, 403, 404, 409, 413, 503}},
		{method: "GET", path: "/v1/jobs/{id}/attempts/{n}", id: "get-attempt", summary: "Get an attempt", handler: a.known(a.getAttempt),
			params: []*huma.Param{paramJob, paramN}, answers: map[int]any{200: attemptView{}}, problems: []int{400, 404, 503}},
		{method: "POST", path: "/v1/jobs/{id}/attempts/{n}/resolve", id: "resolve-attempt", summary: "State the truth about an attempt",
			handler: a.known(a.resolve), params: []*huma.Param{paramJob, paramN}, body: resolveBody{},
			answers: map[int]any{200: jobView{}, 202: pendingView{}}, problems: []int{400, 403, 404, 409, 413, 503}},
		{method: "GET", path: "/v1/attempts", id: "list-attempts", summary: "List attempts, oldest first", handler: a.known(a.listAttempts),
			params: append([]*huma.Param{inQuery("state", "such as unknown"), inQuery("provider", ""),
				inQuery("kind", "of the attempt's job"), inQuery("older_than", "requested longer ago than this, such as 10m"),
				inQuery("started_before", "a time, such as 2026-01-31T12:00:00Z; leaves out what has not started")}, paging...),
			answers: map[int]any{200: attemptsPage{}}, problems: []int{400, 503}},
		{method: "GET", path: "/v1/providers", id: "list-providers", summary: "List the providers, with their brakes and what is proved of them",
			handler: a.known(a.listProviders), answers: map[int]any{200: providersPage{}}, problems: []int{400, 503}},
		{method: "POST", path: "/v1/providers/{name}/pause", id: "pause-provider", summary: "Let no attempt start on a provider",
			handler: a.known(a.pauseProvider), params: []*huma.Param{paramName}, body: brakeBody{},
			answers: map[int]any{200: providerView{}, 202: pendingBrake{}}, problems: []int{400, 403, 404, 413, 503}},
		{method: "POST", path: "/v1/providers/{name}/resume", id: "resume-provider", summary: "Let attempts start on a provider again",
			handler: a.known(a.resumeProvider), params: []*huma.Param{paramName}, body: brakeBody{},
			answers: map[int]any{200: providerView{}, 202: pendingBrake{}}, problems: []int{400, 403, 404, 413, 503}},
		{method: "GET", path: "/healthz", id: "health", summary: "Whether the process lives", handler: a.health,
			answers: map[int]any{200: statusView{}}, open: true},
		{method: "GET", path: "/readyz", id: "ready", summary: "Whether the process can serve", handler: a.ready,
			answers: map[int]any{200: statusView{}}, problems: []int{503}, open: true},
		{method: "GET", path: "/openapi.json", id: "openapi", summary: "This document", handler: a.document,
			answers: map[int]any{200: map[string]any{}}, open: true},
	}
	if a.opts.History == nil {
		return routes
	}
	return append(routes, route{method: "GET", path: "/v1/jobs/{id}/history", id: "job-history",
		summary: "Get what became of a job, entry by entry", handler: a.known(a.jobHistory),
		params:  []*huma.Param{paramJob, inQuery("at", "a sequence of the stream, or a time: the history up to it")},
		answers: map[int]any{200: historyView{}}, problems: []int{400, 404, 503}})
}

// register puts the routes into the mux and describes them.
func (a *API) register() error {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "Job ledger", Version: a.opts.Version,
			Description: "Errors are RFC 9457 problems. Every 202 and 503 carries Retry-After; answers about a job carry " + JobHeader + "."},
		Components: &huma.Components{Schemas: registry, SecuritySchemes: map[string]*huma.SecurityScheme{
			"token": {Type: "http", Scheme: "bearer"}}},
	}
	adapter := humago.NewAdapter(a.mux, "")
	for _, rt := range a.routes() {
		op := rt.operation(registry)
		doc.AddOperation(op)
		serve := a.handle(rt.handler)
		adapter.Handle(op, func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			serve(w, r)
		})
	}
	var err error
	if a.openapi, err = json.Marshal(doc); err != nil {
		return fmt.Errorf("make the OpenAPI document: %w", err)
	}
	return nil
}

func (rt route) operation(registry huma.Registry) *huma.Operation {
	op := &huma.Operation{
		Method: rt.method, Path: rt.path, OperationID: rt.id, Summary: rt.summary,
		Parameters: rt.params, Responses: map[string]*huma.Response{},
	}
	problems := rt.problems
	if !rt.open {
		problems = append([]int{http.StatusUnauthorized}, problems...)
		op.Security = []map[string][]string{{"token": {}}}
	}
	if rt.body != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: content(registry, "application/json", rt.body)}
	}
	for status, v := range rt.answers {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status), Content: content(registry, "application/json", v)}
	}
	if rt.events != nil {
		op.Responses["200"] = &huma.Response{Description: "Server-sent events; the data of each is JSON", Content: content(registry, eventStream, rt.events)}
		op.Responses["204"] = &huma.Response{Description: "The job is settled, and its last event is the one that the request names"}
	}
	for _, status := range problems {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status), Content: content(registry, "application/problem+json", Problem{})}
	}
	return op
}

func content(registry huma.Registry, mediaType string, v any) map[string]*huma.MediaType {
	t := reflect.TypeOf(v)
	return map[string]*huma.MediaType{mediaType: {Schema: registry.Schema(t, true, t.Name())}}
}

// document is GET /openapi.json.
func (a *API) document(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(a.openapi); err != nil {
		a.log.Debug("the OpenAPI document could not be written", "error", err)
	}
	return nil
}

// health is GET /healthz.
func (a *API) health(w http.ResponseWriter, _ *http.Request) error {
	a.sendJSON(w, http.StatusOK, statusView{"ok"})
	return nil
}

// readyWait bounds the check of GET /readyz.
const readyWait = 2 * time.Second

// ready is GET /readyz.
func (a *API) ready(w http.ResponseWriter, r *http.Request) error {
	select {
	case <-a.closing:
		return problem(http.StatusServiceUnavailable, "not-ready", "shutting down")
	default:
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyWait)
	defer cancel()
	if err := a.opts.Ready(ctx); err != nil {
		a.log.Debug("not ready", "error", err) // who is not ready says so itself
		return problem(http.StatusServiceUnavailable, "not-ready", "%v", err)
	}
	a.sendJSON(w, http.StatusOK, statusView{"ready"})
	return nil
}
