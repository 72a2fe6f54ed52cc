package proof

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"jobledger/ledger"
)

// A Verdict is what came out.
type Verdict string

// The values of Verdict.
const (
	Passed Verdict = "passed"
	Failed Verdict = "failed"
	// NotProved says that nobody can tell: of calls, that the provider could not
	// be asked; of a prompt, that nobody can count its tokens.
	NotProved Verdict = "not proved"
)

const (
	// MaxReportBytes bounds a report as the ledger keeps it.
	MaxReportBytes = 64 << 10

	brokenKept = 5   // calls that broke the contract, of one question
	detailKept = 500 // bytes of one text
	usageNames = 32  // numbers of usages that are added up
	usageName  = 64  // bytes of the name of one
)

// A Report is what a verification has found out.
type Report struct {
	Verdict   Verdict          `json:"verdict"`
	Calls     int              `json:"calls"`
	Kept      int              `json:"kept"`      // calls whose result kept the contract
	Unasked   int              `json:"unasked"`   // calls whose provider provably did nothing
	Questions []QuestionReport `json:"questions"` // in the order of the questions
	Latency   Latency          `json:"latency"`
	// Usage has the sums of the numbers that the provider told of its calls,
	// such as input_tokens; nil: none.
	Usage  map[string]float64 `json:"usage,omitempty"`
	Prompt *PromptReport      `json:"prompt,omitempty"` // nil: the contract has none
	// Shortened says that the report was too long: what broke is not told in
	// full.
	Shortened bool `json:"shortened,omitempty"`

	took []time.Duration
}

// A QuestionReport is what a verification has found out about one question.
type QuestionReport struct {
	Name string `json:"name"`
	// Past says that the input was submitted before: Name is its job.
	Past   bool     `json:"past,omitempty"`
	Calls  int      `json:"calls"`
	Kept   int      `json:"kept"`
	Broken []Broken `json:"broken,omitempty"` // the first few, by run
}

// A Broken call has no result that keeps the contract.
type Broken struct {
	Run     int            `json:"run"` // from 1
	Outcome ledger.Outcome `json:"outcome"`
	Class   string         `json:"class"`
	Details []string       `json:"details"`
	Output  string         `json:"output,omitempty"` // how what the provider said begins
}

// Latency is how long calls took, in milliseconds; zero: there were none.
type Latency struct {
	P50 int64 `json:"p50_ms"`
	P95 int64 `json:"p95_ms"`
	Max int64 `json:"max_ms"`
}

func newReport(o *Options) *Report {
	r := &Report{Questions: make([]QuestionReport, len(o.Questions))}
	for i, q := range o.Questions {
		r.Questions[i] = QuestionReport{Name: q.Name, Past: q.Case < 0}
	}
	return r
}

// add counts a call.
func (r *Report) add(n, run int, e ending) {
	q := &r.Questions[n]
	q.Calls++
	r.Calls++
	r.took = append(r.took, e.took)
	r.addUsage(e.usage)
	if e.failure == nil {
		q.Kept++
		r.Kept++
		return
	}
	if e.nothing {
		r.Unasked++
	}
	b := Broken{Run: run, Outcome: e.outcome, Class: e.failure.Class, Output: clip(e.said)}
	for _, f := range e.faults {
		b.Details = append(b.Details, clip(f.String()))
	}
	if len(e.faults) == 0 {
		b.Details = []string{clip(e.failure.Message)}
	}
	at, _ := slices.BinarySearchFunc(q.Broken, run, func(b Broken, run int) int { return b.Run - run })
	q.Broken = slices.Insert(q.Broken, at, b)
	if len(q.Broken) > brokenKept {
		q.Broken = q.Broken[:brokenKept]
	}
}

// addUsage adds the numbers among the members of a usage; what is no object has
// none.
func (r *Report) addUsage(usage []byte) {
	var members map[string]any
	if len(usage) == 0 || json.Unmarshal(usage, &members) != nil {
		return
	}
	for name, v := range members {
		if n, ok := v.(float64); ok {
			if r.Usage == nil {
				r.Usage = map[string]float64{}
			}
			if _, known := r.Usage[name]; known || len(r.Usage) < usageNames && len(name) <= usageName {
				r.Usage[name] += n
			}
		}
	}
}

func clip(text string) string {
	text = ledger.ValidText(text)
	if len(text) <= detailKept {
		return text
	}
	return ledger.ValidText(text[:detailKept]) + "…"
}

// conclude says what came out.
func (r *Report) conclude() {
	slices.Sort(r.took)
	if n := len(r.took); n > 0 {
		at := func(percent int) int64 { return r.took[(n*percent+99)/100-1].Milliseconds() }
		r.Latency = Latency{P50: at(50), P95: at(95), Max: at(100)}
	}
	switch {
	case r.Prompt != nil && r.Prompt.Verdict == Failed, r.Calls > r.Kept+r.Unasked:
		r.Verdict = Failed
	case r.Unasked > 0:
		r.Verdict = NotProved
	default:
		r.Verdict = Passed
	}
}

// Names returns the names of the usage's numbers, in order.
func (r *Report) Names() []string { return slices.Sorted(maps.Keys(r.Usage)) }

// JSON returns the report in at most MaxReportBytes: what is too long loses what
// the provider said, then what broke, then the questions.
func (r *Report) JSON() []byte {
	short := *r
	for _, cut := range []func(){
		func() {},
		func() { short.eachBroken(func(b *Broken) { b.Output = "" }) },
		func() { short.eachBroken(func(b *Broken) { b.Details = b.Details[:1] }) },
		func() { short.forgetBroken() },
		func() { short.Questions = nil },
		func() { short.Usage = nil },
		func() { short.forgetPrompts() },
	} {
		cut()
		text, err := json.Marshal(&short)
		if err != nil {
			panic(fmt.Sprintf("proof: a report cannot be written: %v", err))
		}
		if len(text) <= MaxReportBytes {
			return text
		}
		short.Shortened = true
	}
	panic("proof: the bare verdict is too long")
}

// eachBroken changes copies of the broken calls.
func (r *Report) eachBroken(change func(*Broken)) {
	r.Questions = slices.Clone(r.Questions)
	for i := range r.Questions {
		r.Questions[i].Broken = slices.Clone(r.Questions[i].Broken)
		for n := range r.Questions[i].Broken {
			change(&r.Questions[i].Broken[n])
		}
	}
}

func (r *Report) forgetPrompts() {
	if p := r.Prompt; p != nil {
		r.Prompt = &PromptReport{Verdict: p.Verdict, Why: p.Why, MaxTokens: p.MaxTokens}
	}
}

func (r *Report) forgetBroken() {
	r.Questions = slices.Clone(r.Questions)
	for i := range r.Questions {
		r.Questions[i].Broken = nil
	}
}
