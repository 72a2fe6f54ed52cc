package proof

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"jobledger/ledger"
	"jobledger/workers"
	"jobledger/workers/contract"
)

type providerFunc func(ctx context.Context, c workers.Call) (workers.Result, error)

func (f providerFunc) Call(ctx context.Context, c workers.Call) (workers.Result, error) {
	return f(ctx, c)
}

type counterFunc func(input []byte) (int, error)

func (f counterFunc) CountTokens(_ context.Context, _ string, input []byte) (int, error) {
	return f(input)
}

func compiled(t *testing.T, change func(*contract.Spec)) *contract.Contract {
	t.Helper()
	s := contract.Spec{
		Input:      json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
		Result:     json.RawMessage(`{"type":"object","properties":{"twice":{"type":"integer"}},"required":["twice"]}`),
		Assertions: []contract.Assertion{{Name: "double", Expr: "result.twice == 2 * input.n"}},
		Cases: []contract.Case{
			{Name: "one", Input: json.RawMessage(`{"n":1}`)},
			{Name: "two", Input: json.RawMessage(`{"n":2}`), Expect: []string{"result.twice == 4"}},
		},
	}
	if change != nil {
		change(&s)
	}
	c, err := contract.New(s)
	require.NoError(t, err)
	return c
}

func options(t *testing.T, c *contract.Contract, f providerFunc) Options {
	t.Helper()
	return Options{
		Provider: f, Contract: c, Kind: "double", Questions: Cases(c), Runs: 3, Concurrency: 4, Timeout: time.Minute,
		wait: func(context.Context, time.Duration) {},
	}
}

func double(c workers.Call) int {
	var in struct{ N int }
	if err := json.Unmarshal(c.Input, &in); err != nil {
		panic(err)
	}
	return 2 * in.N
}

func TestPasses(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	keys, done := map[string]bool{}, 0
	o := options(t, compiled(t, nil), func(_ context.Context, c workers.Call) (workers.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		keys[c.IdempotencyKey] = true
		require.Equal(t, KeyPrefix+c.JobID.String(), c.IdempotencyKey)
		require.Equal(t, 1, c.Attempt)
		require.Equal(t, "double", c.Kind)
		return workers.Result{Body: fmt.Appendf(nil, ` {"twice":%d} `, double(c)), Usage: []byte(`{"input_tokens":10,"model":"m","cost":0.5}`)}, nil
	})
	o.Questions = append(o.Questions, Question{Name: "a job", Input: []byte(`{"n":7}`), Case: -1})
	o.Done = func() { done++ } // under the report's lock
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, Passed, r.Verdict)
	require.Equal(t, []int{9, 9, 0, 9, 9}, []int{r.Calls, r.Kept, r.Unasked, len(keys), done})
	require.Equal(t, map[string]float64{"input_tokens": 90, "cost": 4.5}, r.Usage)
	require.Nil(t, r.Prompt)
	require.True(t, r.Questions[2].Past)
	require.JSONEq(t, string(must(json.Marshal(r))), string(r.JSON()))
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// TestFails: one call that breaks the contract is enough, and the report says
// which, how, and what was said.
func TestFails(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	calls := map[int]int{}
	o := options(t, compiled(t, nil), func(_ context.Context, c workers.Call) (workers.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		n := double(c)
		if calls[n]++; n == 4 && calls[n] == 2 {
			return workers.Result{Body: []byte(`{"twice":4,"note":"!"}`)}, nil
		}
		return workers.Result{Body: fmt.Appendf(nil, `{"twice":%d}`, n)}, nil
	})
	o.Concurrency = 1
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, Failed, r.Verdict)
	require.Equal(t, 5, r.Kept)
	require.Equal(t, []Broken{{
		Run: 2, Outcome: ledger.OutcomeFailed, Class: "contract", Details: []string{"schema: /note: it is not declared by the schema"},
		Output: `{"twice":4,"note":"!"}`,
	}}, r.Questions[1].Broken)
}

// TestEndings: what is no result fails; what provably did nothing is tried again,
// and if it stays so nothing is proved.
func TestEndings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err     error
		verdict Verdict
		calls   int // on the wire, of 6
	}{
		"ambiguous":                {errors.New("broken off"), Failed, 6},
		"executed":                 {&workers.CallError{Known: workers.Executed, Class: "exit_status"}, Failed, 6},
		"refused":                  {&workers.CallError{Known: workers.Refused, Class: "http_422", Reach: ledger.ReachRequest}, Failed, 6},
		"no key":                   {&workers.CallError{Known: workers.Refused, Class: "http_401", Reach: ledger.ReachProvider}, NotProved, 6},
		"locked":                   {&workers.CallError{Known: workers.Refused, Class: "http_403", Reach: ledger.ReachProvider}, NotProved, 6},
		"no credit":                {&workers.CallError{Known: workers.Refused, Class: "no_credit", Reach: ledger.ReachProvider}, NotProved, 6},
		"gone":                     {&workers.CallError{Known: workers.Refused, Class: "http_404", Reach: ledger.ReachProvider}, Failed, 6},
		"locked, though it worked": {&workers.CallError{Known: workers.Executed, Class: "http_403", Reach: ledger.ReachProvider}, Failed, 6},
		"busy":                     {&workers.CallError{Known: workers.Refused, Class: "http_429", Reach: ledger.ReachTransient}, NotProved, 18},
		"away":                     {&workers.CallError{Known: workers.NotSent, Class: "not_connected"}, NotProved, 18},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			calls := 0
			r, err := Run(t.Context(), options(t, compiled(t, nil), func(context.Context, workers.Call) (workers.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				calls++
				return workers.Result{Output: "sorry"}, test.err
			}))
			require.NoError(t, err)
			require.Equal(t, test.verdict, r.Verdict)
			require.Equal(t, test.calls, calls)
			require.Equal(t, "sorry", r.Questions[0].Broken[0].Output)
		})
	}
	r, err := Run(t.Context(), options(t, compiled(t, nil), func(context.Context, workers.Call) (workers.Result, error) { panic("oh") }))
	require.NoError(t, err)
	require.Equal(t, "panic", r.Questions[0].Broken[0].Class)
}

// TestStops: what was interrupted proves nothing.
func TestStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, options(t, compiled(t, nil), func(ctx context.Context, _ workers.Call) (workers.Result, error) {
		cancel()
		<-ctx.Done()
		return workers.Result{}, ctx.Err()
	}))
	require.ErrorIs(t, err, context.Canceled)
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Options){
		"required":      func(o *Options) { o.Provider = nil },
		"no cases":      func(o *Options) { o.Questions = nil },
		"0 runs":        func(o *Options) { o.Runs = 0 },
		"at most 10000": func(o *Options) { o.Runs = 5001 },
		"concurrency":   func(o *Options) { o.Concurrency = 65 },
		"Timeout":       func(o *Options) { o.Timeout = 0 },
	} {
		o := options(t, compiled(t, nil), nil)
		change(&o)
		if want != "required" {
			o.Provider = providerFunc(func(context.Context, workers.Call) (workers.Result, error) { return workers.Result{}, nil })
		}
		_, err := Run(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
}

func TestPromptProof(t *testing.T) {
	t.Parallel()
	prompted := func(user string, most int) *contract.Contract {
		return compiled(t, func(s *contract.Spec) {
			s.Prompt = &contract.Prompt{User: user, MaxInputTokens: most}
			s.Cases[0].Instructions = true
		})
	}
	words := counterFunc(func(input []byte) (int, error) { return len(input), nil }) // 7 for each of the cases
	for name, test := range map[string]struct {
		user    string
		most    int
		counter Counter
		verdict Verdict
		why     string
		result  Verdict
	}{
		"passed":     {"Double {{.n}}", 7, words, Passed, "", Passed},
		"no bound":   {"Double {{.n}}", 0, nil, Passed, "", Passed},
		"too long":   {"Double {{.n}}", 6, words, Failed, "one: the prompt has 7 tokens; the contract allows 6", Failed},
		"lost":       {"Double it", 7, words, Failed, "one: the prompt does not hold what the input has at /n", Failed},
		"impossible": {"Double {{.m}}", 7, words, Failed, "one: the prompt's user part", Failed},
		"no counter": {"Double {{.n}}", 7, nil, NotProved, "nobody can count", Passed},
		"cannot": {"Double {{.n}}", 7, counterFunc(func([]byte) (int, error) { return 0, errors.New("an unknown model") }),
			NotProved, "an unknown model", Passed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, prompted(test.user, test.most), func(_ context.Context, c workers.Call) (workers.Result, error) {
				if test.result == Failed {
					t.Error("a prompt that is wrong is sent to nobody")
				}
				return workers.Result{Body: fmt.Appendf(nil, `{"twice":%d}`, double(c))}, nil
			})
			o.Counter = test.counter
			r, err := Run(t.Context(), o)
			require.NoError(t, err)
			require.Equal(t, test.verdict, r.Prompt.Verdict)
			require.Contains(t, r.Prompt.Why, test.why)
			require.Equal(t, test.result, r.Verdict)
		})
	}
}

// TestProvidersCountThemselves: what the provider says of a prompt's tokens counts.
func TestProvidersCountThemselves(t *testing.T) {
	t.Parallel()
	c := compiled(t, func(s *contract.Spec) {
		s.Prompt = &contract.Prompt{User: "Double {{.n}}", MaxInputTokens: 10}
		s.Cases[0].Instructions = true
	})
	r, err := Run(t.Context(), options(t, c, func(_ context.Context, c workers.Call) (workers.Result, error) {
		return workers.Result{Body: fmt.Appendf(nil, `{"twice":%d}`, double(c)), Usage: fmt.Appendf(nil, `{"input_tokens":%d}`, 8+double(c)/2)}, nil
	}))
	require.NoError(t, err)
	require.Equal(t, Passed, r.Verdict)
	r, err = Run(t.Context(), options(t, c, func(_ context.Context, c workers.Call) (workers.Result, error) {
		return workers.Result{Body: fmt.Appendf(nil, `{"twice":%d}`, double(c)), Usage: fmt.Appendf(nil, `{"input_tokens":%d}`, 9+double(c)/2)}, nil
	}))
	require.NoError(t, err)
	require.Equal(t, Failed, r.Verdict)
	require.Equal(t, []string{"prompt: by the provider's count it has 11 tokens; the contract allows 10"}, r.Questions[1].Broken[0].Details)
}

// TestReportIsBounded: however much breaks, and however much is said.
func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	o := options(t, compiled(t, nil), func(context.Context, workers.Call) (workers.Result, error) {
		usage := `{"a":1` + strings.Repeat(`,"b`+strings.Repeat("x", 100)+`":1`, 1) + `}`
		return workers.Result{Body: []byte(strings.Repeat("\"é\x00", 10_000)), Usage: []byte(usage)}, nil
	})
	for i := range 500 {
		o.Questions = append(o.Questions, Question{Name: fmt.Sprintf("job %d", i), Input: []byte(`{"n":1}`), Case: -1})
	}
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	text := r.JSON()
	require.LessOrEqual(t, len(text), MaxReportBytes)
	require.NoError(t, ledger.CheckJSON(text))
	require.Contains(t, string(text), `"shortened":true`)
	require.Len(t, r.Questions, 502)
	require.Len(t, r.Questions[0].Broken, 3)
	require.Equal(t, map[string]float64{"a": 1506}, r.Usage)
}
