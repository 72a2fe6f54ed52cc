package ledger

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// arguments are the key=value words of a command. Using one takes it out, so
// that what is left was misspelt. The first error sticks.
type arguments struct {
	values map[string]string
	err    error
}

// parseArguments splits a line into its words. Blanks inside quotes and
// brackets do not end a word.
func parseArguments(text string) (*arguments, error) {
	a := &arguments{values: map[string]string{}}
	depth, quoted, from := 0, false, 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && (text[i] != ' ' || quoted || depth > 0) {
			switch c := text[i]; {
			case c == '"':
				quoted = !quoted
			case quoted:
			case c == '{' || c == '[':
				depth++
			case c == '}' || c == ']':
				depth--
			}
			continue
		}
		if word := text[from:i]; word != "" {
			name, value, _ := strings.Cut(word, "=")
			a.values[name] = value
		}
		from = i + 1
	}
	if quoted || depth != 0 {
		return nil, errors.New("quotes or brackets do not match")
	}
	return a, nil
}

func (a *arguments) has(name string) bool {
	_, ok := a.values[name]
	delete(a.values, name)
	return ok
}

func (a *arguments) text(name, otherwise string) string {
	v, ok := a.values[name]
	if delete(a.values, name); !ok {
		return otherwise
	}
	return v
}

// raw returns JSON, nil for none.
func (a *arguments) raw(name string) []byte {
	if v := a.text(name, ""); v != "" {
		return []byte(v)
	}
	return nil
}

func (a *arguments) int(name string, otherwise int) int {
	v, ok := a.values[name]
	if delete(a.values, name); !ok {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	a.fail(err)
	return n
}

func (a *arguments) duration(name string, otherwise time.Duration) time.Duration {
	v, ok := a.values[name]
	if delete(a.values, name); !ok {
		return otherwise
	}
	d, err := time.ParseDuration(strings.TrimPrefix(v, "+"))
	a.fail(err)
	return d
}

func (a *arguments) ms(name string, otherwise int64) int64 {
	return a.duration(name, milliseconds(otherwise)).Milliseconds()
}

func (a *arguments) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// done returns the first error, or what was not used.
func (a *arguments) done() error {
	if a.err == nil && len(a.values) > 0 {
		return fmt.Errorf("arguments that the command does not have: %v", a.values)
	}
	return a.err
}

// failure reads class, message, executed, reach and retry_after.
func (a *arguments) failure() Failure {
	return Failure{
		Class: a.text("class", ""), Message: a.text("message", ""), Executed: a.has("executed"),
		Reach: Reach(a.text("reach", "")), RetryAfterMS: a.ms("retry_after", 0),
	}
}

func (s *story) command(text string) error {
	verb, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	switch verb {
	case "raw":
		return s.appendRaw(rest)
	case "advance":
		d, err := time.ParseDuration(rest)
		s.now = s.now.Add(d)
		return err
	case "reload":
		return s.endBatch(reloaded)
	}
	a, err := parseArguments(rest)
	if err != nil {
		return err
	}
	if verb == "show" {
		if j := s.state.Job(s.job(a.text("job", ""))); j != nil {
			s.printJob(j, true)
		} else {
			s.out.WriteString("  no such job\n")
		}
		return a.done()
	}
	b := s.body(verb, a)
	if err := a.done(); err != nil {
		return err
	}
	if b == nil {
		return errors.New("an unknown command")
	}
	return s.append(b.Message())
}

// body makes the entry that a command stands for, or nil.
func (s *story) body(verb string, a *arguments) Body {
	switch verb {
	case "rules":
		return &Rules{Rules: a.int("n", 1), Actor: "init"}
	case "kind":
		return s.kindBody(a)
	case "provider":
		return s.providerBody(a)
	case "pause", "resume":
		return &ProviderBrake{
			Name: a.text("provider", ""), Paused: verb == "pause", Reason: a.text("reason", ""), Actor: "operator",
		}
	case "verified":
		return s.verifiedBody(a)
	case "request":
		return s.requestBody(a)
	case "cancel":
		return &Cancel{
			Job: s.job(a.text("job", "")), Owner: a.text("owner", ""), Reason: a.text("reason", ""), Actor: "alice",
		}
	case "ask":
		return &AttemptAsk{
			Job: s.job(a.text("job", "")), Owner: a.text("owner", ""), Key: a.text("key", ""),
			Provider: a.text("provider", ""), Force: a.has("force"), Actor: "alice",
		}
	case "claim":
		return s.claimBody(a)
	case "complete":
		return s.completeBody(a)
	case "resolve":
		at := s.attempt(a)
		return &Resolution{
			Job: at.Job, Attempt: at.Number, As: Outcome(a.text("as", "")), Result: a.raw("result"),
			Failure: a.failure(), Worker: a.text("worker", ""), IfUnknown: a.has("if_unknown"), Reason: a.text("reason", "looked it up"), Actor: "operator",
		}
	case "due":
		return s.dueBody(a)
	case "clock":
		return s.clockBody(a)
	case "result": // a success whose result has so many bytes
		b := s.completeBody(a)
		b.Result = []byte(`"` + strings.Repeat("x", a.int("bytes", 2)-2) + `"`)
		return b
	case "filler": // a request whose body has so many bytes
		b := s.requestBody(a)
		b.Input = []byte(`""`)
		b.Input = []byte(`"` + strings.Repeat("x", a.int("bytes", 0)-len(b.Message().Data)) + `"`)
		return b
	}
	return nil
}

func (s *story) kindBody(a *arguments) Body {
	k := DefaultKind()
	k.Name = a.text("name", "work")
	k.Providers = strings.Split(a.text("providers", "primary,fallback"), ",")
	k.Effects = Effects(a.text("effects", string(k.Effects)))
	k.Mode = Mode(a.text("mode", string(k.Mode)))
	k.HedgeAfterMS = a.ms("hedge", 0)
	k.StartTimeoutMS = a.ms("start_timeout", 0)
	k.AttemptTimeoutMS = a.ms("timeout", k.AttemptTimeoutMS)
	k.MaxAttempts = a.int("max_attempts", k.MaxAttempts)
	k.Failover = FailoverRule(a.text("failover", string(k.Failover)))
	k.Contract = a.text("contract", "")
	k.Backoff.FactorMilli = int64(a.int("factor", 2)) * 1000
	if first, most, ok := strings.Cut(a.text("backoff", ""), ".."); ok {
		initial, err := time.ParseDuration(first)
		a.fail(err)
		limit, err := time.ParseDuration(most)
		a.fail(err)
		k.Backoff.InitialMS, k.Backoff.MaxMS = initial.Milliseconds(), limit.Milliseconds()
	}
	return &KindDefinition{Kind: k, Actor: "operator"}
}

func (s *story) providerBody(a *arguments) Body {
	b := &ProviderDefinition{
		Name: a.text("name", ""), Type: a.text("type", "http"), Definition: a.raw("definition"), Actor: "operator",
	}
	digest, err := ProviderDigest(b.Type, b.Definition)
	a.fail(err)
	s.digests[b.Name] = digest.String()
	return b
}

func (s *story) verifiedBody(a *arguments) Body {
	provider := a.text("provider", "fallback")
	return &Verification{
		Provider: provider, Kind: a.text("kind", "work"), Contract: a.text("contract", ""),
		ProviderDigest: a.text("digest", s.digests[provider]), Passed: !a.has("failed"),
		ExpiresAt: s.now.Add(a.duration("expires", time.Hour)), Actor: "verifier",
	}
}

func (s *story) requestBody(a *arguments) *Request {
	b := &Request{
		Owner: a.text("owner", "acme"), Key: a.text("key", ""), Kind: a.text("kind", "work"),
		Input: []byte(a.text("input", `{"n":1}`)), Provider: a.text("provider", ""), DelayMS: a.ms("delay", 0),
		Producer: a.text("producer", ""),
	}
	if d := a.duration("run_at", 0); d != 0 {
		b.RunAt = storyStart.Add(d)
	}
	s.name(JobID(b.Owner, b.Key), b.Owner, b.Key)
	return b
}

// attempt returns the attempt that a command is about, an empty one with the
// right names if there is none.
func (s *story) attempt(a *arguments) *Attempt {
	id := s.job(a.text("job", ""))
	j := s.state.Job(id)
	if j == nil {
		return &Attempt{Job: id, Number: a.int("attempt", 1), Provider: "primary", JobVersion: 1}
	}
	n := a.int("attempt", len(j.Attempts))
	if at := j.Attempt(n); at != nil {
		return at
	}
	return &Attempt{Job: id, Number: n, Provider: "primary", JobVersion: j.Version}
}

// claimID makes a claim of the length that the ledger expects of a letter.
func claimID(name string) string { return name + strings.Repeat(".", MinClaimBytes) }

func (s *story) claimBody(a *arguments) Body {
	at := s.attempt(a)
	return &Claim{
		Job: at.Job, Attempt: at.Number, JobVersion: int64(a.int("version", int(at.JobVersion))),
		Provider: a.text("provider", at.Provider), Claim: claimID(a.text("claim", "A")),
		Worker: a.text("worker", "w1"), StartSeq: max(s.seq, 1), Replay: a.has("replay"),
	}
}

func (s *story) completeBody(a *arguments) *Completion {
	at := s.attempt(a)
	return &Completion{
		Job: at.Job, Attempt: at.Number, JobVersion: int64(a.int("version", int(at.JobVersion))),
		Provider: a.text("provider", at.Provider), Claim: claimID(a.text("claim", "A")),
		Outcome: Outcome(a.text("outcome", "succeeded")), Result: a.raw("result"), Failure: a.failure(),
		ProviderRef: a.text("ref", ""), Usage: a.raw("usage"),
	}
}

func (s *story) dueBody(a *arguments) Body {
	b := &Due{Job: s.job(a.text("job", "")), Attempt: a.int("attempt", 0)}
	if j := s.state.Job(b.Job); j != nil {
		b.Due = j.DueAt
		if at := j.Attempt(b.Attempt); at != nil {
			b.Due = at.DueAt
		}
	}
	if d := a.duration("at", -1); d >= 0 {
		b.Due = storyStart.Add(d)
	}
	if b.Due.IsZero() {
		a.fail(errors.New("nothing is due; say at="))
	}
	return b
}

// clockBody moves the stream's clock to the job's next due time.
func (s *story) clockBody(a *arguments) Body {
	b := &Due{Job: s.job(a.text("job", ""))}
	j := s.state.Job(b.Job)
	if j == nil {
		a.fail(errors.New("no such job"))
		return b
	}
	b.Due, b.Attempt = j.NextDue()
	if b.Due.IsZero() {
		a.fail(errors.New("nothing is due"))
	}
	if s.now.Before(b.Due) {
		s.now = b.Due
	}
	return b
}

// appendRaw appends an entry as it stands. The names of jobs in braces are
// replaced by their ids: {job:k1}.
func (s *story) appendRaw(text string) error {
	subject, data, _ := strings.Cut(text, " ")
	if strings.HasPrefix(data, `"`) {
		unquoted, err := strconv.Unquote(data)
		if err != nil {
			return err
		}
		data = unquoted
	}
	for {
		before, rest, ok := strings.Cut(data, "{job:")
		if !ok {
			break
		}
		name, after, _ := strings.Cut(rest, "}")
		data = before + s.job(name).String() + after
	}
	return s.append(Message{Subject: subject, Data: []byte(data)})
}
