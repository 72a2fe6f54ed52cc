package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"jobledger/ledger"
)

// An intent is what a line of a file of jobs asks for.
type intent struct {
	owner, key string
	body       map[string]json.RawMessage // of POST /v1/jobs
}

// intentDefaults stand in for members that a line leaves out.
type intentDefaults struct {
	owner, kind string // "": none
	// ownerKnown says that the API knows the owner without being told.
	ownerKnown bool
}

// The members of a line.
var intentMembers = []string{"owner", "key", "kind", "input", "provider", "run_at", "delay"}

// parseIntent reads a line. It judges what does not travel in the body; the
// rest is the API's to judge.
func parseIntent(ln line, d intentDefaults) (intent, error) {
	if ln.long {
		return intent{}, fmt.Errorf("it has %d bytes; at most %d are allowed", ln.bytes, maxLineBytes)
	}
	if bytes.HasPrefix(ln.text, []byte("\xef\xbb\xbf")) {
		return intent{}, errors.New("it starts with a byte order mark; JSON starts without one")
	}
	if err := ledger.CheckJSON(ln.text); err != nil {
		return intent{}, err
	}
	in := intent{}
	if err := json.Unmarshal(ln.text, &in.body); err != nil || in.body == nil {
		return intent{}, errors.New("it is not a JSON object")
	}
	for _, name := range slices.Sorted(maps.Keys(in.body)) {
		if !slices.Contains(intentMembers, name) {
			return intent{}, fmt.Errorf("the member %s is not known; known are %s", ledger.Quote(name), strings.Join(intentMembers, ", "))
		}
	}
	var err error
	if in.owner, err = in.take("owner", d.owner, d.ownerKnown); err != nil {
		return intent{}, err
	}
	if in.key, err = in.take("key", "", false); err != nil {
		return intent{}, err
	}
	if in.body["kind"] == nil {
		if d.kind == "" {
			return intent{}, errors.New("the member kind is missing; --kind gives it to all lines that leave it out")
		}
		in.body["kind"], err = json.Marshal(d.kind)
	}
	return in, err
}

// take removes a member that is to be a header and returns its text. It is
// checked here, because a header would lose white space at its ends.
func (in *intent) take(name, instead string, optional bool) (string, error) {
	raw, given := in.body[name]
	delete(in.body, name)
	value := instead
	switch {
	case given && (raw[0] != '"' || json.Unmarshal(raw, &value) != nil):
		return "", fmt.Errorf("the member %s is not a string", name)
	case !given && instead == "" && optional:
		return "", nil
	case !given && instead == "":
		return "", fmt.Errorf("the member %s is missing", name)
	}
	return value, ledger.CheckIdent(name, value)
}
