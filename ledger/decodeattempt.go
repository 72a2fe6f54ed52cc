package ledger

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// decodeStart reads only which attempt a start is about: starts come from the
// projector itself, change no row, and the workers read them with ParseStart.
func decodeStart(e *Entry) error {
	e.Body = &Start{}
	return nil
}

// ParseStart reads the body of an attempt's start for the workers of provider.
func ParseStart(provider string, data []byte) (*Start, error) {
	b := &Start{Provider: provider}
	version := int64(0)
	err := members(data, func(name string, r *reader) error {
		switch name {
		case "v":
			version = r.int()
		case "job":
			b.Job = r.uuid()
		case "attempt":
			b.Attempt = r.attempt()
		case "job_version":
			b.JobVersion = r.int()
		case "owner":
			b.Owner = r.text()
		case "kind":
			b.Kind = r.text()
		case "kind_seq":
			b.KindSeq = r.seq()
		case "input":
			b.Input = r.raw()
		case "timeout_ms":
			b.TimeoutMS = r.int()
		case "contract":
			b.Contract = r.text()
		case "provider_digest":
			b.ProviderDigest = r.text()
		default: // a newer projector may say more
			r.skip()
		}
		return r.err
	})
	if err != nil {
		return nil, err
	}
	if version != EntryVersion {
		return nil, versionError(version)
	}
	return b, required("job", b.Job != uuid.UUID{}, "attempt", b.Attempt > 0, "input", b.Input != nil)
}

func decodeClaim(e *Entry) error {
	b := &Claim{Provider: e.Token}
	e.Body = b
	err := jobBody(e, func(name string, r *reader) bool {
		switch name {
		case "attempt":
			b.Attempt = r.attempt()
		case "job_version":
			b.JobVersion = r.int()
		case "claim":
			b.Claim = r.claim()
		case "worker":
			b.Worker = r.freeText()
		case "start_seq":
			b.StartSeq = r.seq()
		case "replay":
			b.Replay = r.bool()
		default:
			return false
		}
		return true
	})
	b.Job = e.Job
	if err != nil {
		return err
	}
	if e.Actor == "" {
		e.Actor = b.Worker
	}
	return required("attempt", b.Attempt > 0,
		"job_version", b.JobVersion > 0, "claim", b.Claim != "", "start_seq", b.StartSeq > 0)
}

// claim reads a claim id.
func (r *reader) claim() string {
	at := r.pos
	v := r.text()
	if r.err == nil && (len(v) < MinClaimBytes || len(v) > MaxClaimBytes) {
		r.pos = at
		r.reject("a claim of %d bytes; expected %d to %d random ones", len(v), MinClaimBytes, MaxClaimBytes)
	}
	return v
}

// hashClaim returns what the state keeps of a claim: whoever reads the tables
// must not be able to complete an attempt in the claimant's name.
func hashClaim(claim string) Digest { return sha256.Sum256([]byte(claim)) }

func decodeCompletion(e *Entry) error {
	b := &Completion{Provider: e.Token}
	e.Body = b
	result, err := readCompletion(e, b, (*reader).document)
	if bad := new(JSONError); errors.As(err, &bad) && underResult(bad.Pointer) {
		*b = Completion{Provider: e.Token}
		_, err = readCompletion(e, b, func(r *reader) ([]byte, []byte) {
			from := r.pos
			r.lenient()
			return r.src[from:r.pos], nil
		})
		result = b.invalidResult(bad.Error())
	}
	if err != nil {
		return err
	}
	b.Job = e.Job
	b.assumeTheWorst()
	if len(b.Result) > MaxResultBytes {
		result = b.invalidResult(fmt.Sprintf("the result has %d bytes; at most %d are allowed", len(b.Result), MaxResultBytes))
		b.Failure.Class = "result_too_large"
	}
	if err := b.check(); err != nil {
		return err
	}
	b.setDigest(result)
	return nil
}

// assumeTheWorst completes a failure that does not say whether the provider did
// the work: then it did, so that nothing is repeated on a guess.
func (b *Completion) assumeTheWorst() {
	switch {
	case b.Outcome == OutcomeFailed && b.Failure == Failure{}:
		b.Failure = Failure{Class: "unspecified", Message: "the worker gave no reason", Executed: true}
	case b.Outcome == OutcomeFailed && !b.saysExecuted:
		b.Failure.Executed = true
	case b.Outcome == OutcomeUnsent && b.Failure == Failure{}:
		b.Failure = Failure{Class: "unsent", Message: "the worker did not call the provider"}
	}
	b.saysExecuted = false
}

func underResult(pointer string) bool {
	return pointer == "/result" || strings.HasPrefix(pointer, "/result/")
}

// invalidResult turns a completion whose result is not accepted into what it
// then means: executed, and without a usable result. The bytes stay in the
// entry.
func (b *Completion) invalidResult(why string) []byte {
	if b.Outcome == OutcomeSucceeded {
		b.Outcome = OutcomeFailed
		b.Failure = Failure{Class: "invalid_result", Message: ValidText(why), Executed: true, Reach: ReachTransient}
	}
	b.Result = nil
	return nil
}

// readCompletion reads the members of a completion, the result by the given
// function, and returns the result's canonical form.
func readCompletion(e *Entry, b *Completion, result func(*reader) (raw, canonical []byte)) ([]byte, error) {
	var canonical []byte
	err := jobBody(e, func(name string, r *reader) bool {
		switch name {
		case "attempt":
			b.Attempt = r.attempt()
		case "job_version":
			b.JobVersion = r.int()
		case "claim":
			b.Claim = r.claim()
		case "outcome":
			b.Outcome = oneOf(r, OutcomeSucceeded, OutcomeFailed, OutcomeUnsent, OutcomeUnknown)
		case "result":
			b.Result, canonical = result(r)
		case "failure":
			b.Failure, b.saysExecuted = r.failure()
		case "provider_ref":
			b.ProviderRef = r.freeText()
		case "usage":
			b.Usage = r.raw()
		case "output":
			b.Output = r.text()
		default:
			return false
		}
		return true
	})
	return canonical, err
}

// check refuses combinations that say nothing clear.
func (b *Completion) check() error {
	err := required("attempt", b.Attempt > 0, "job_version", b.JobVersion > 0,
		"claim", b.Claim != "", "outcome", b.Outcome != "")
	switch {
	case err != nil:
		return err
	case b.Outcome == OutcomeSucceeded && b.Result == nil:
		return fault("/result", "it is missing; a success needs a result (null is one)")
	case b.Outcome == OutcomeSucceeded && b.Failure != Failure{}:
		return fault("/failure", "it stands beside outcome succeeded")
	case b.Outcome != OutcomeSucceeded && b.Result != nil:
		return fault("/result", "it stands beside outcome %s", b.Outcome)
	case b.Output != "" && b.Outcome != OutcomeFailed && b.Outcome != OutcomeUnknown:
		return fault("/output", "it stands beside outcome %s", b.Outcome)
	case b.Outcome == OutcomeUnsent && b.Failure.Executed:
		return fault("/failure/executed", "true beside outcome unsent")
	}
	return nil
}

// setDigest digests what the completion says, but for who says it.
func (b *Completion) setDigest(canonicalResult []byte) {
	o := object(make([]byte, 0, len(canonicalResult)+len(b.Usage)+256))
	o.text("outcome", string(b.Outcome))
	o.optRaw("result", canonicalResult)
	b.Failure.appendMember(o)
	o.optText("provider_ref", b.ProviderRef)
	o.optRaw("usage", b.Usage)
	b.digest = sha256.Sum256(o.close())
}

// failure reads the description of a failure, and whether it says if the
// provider did the work.
func (r *reader) failure() (f Failure, saysExecuted bool) {
	if r.err != nil {
		return f, false
	}
	if r.peek() != '{' {
		r.expect("an object")
		return f, false
	}
	r.err = r.each(func(name string, r *reader) error {
		switch name {
		case "class":
			f.Class = r.named()
		case "message":
			f.Message = r.freeText()
		case "executed":
			f.Executed, saysExecuted = r.bool(), true
		case "reach":
			f.Reach = oneOf(r, ReachRequest, ReachProvider, ReachTransient)
		case "retry_after_ms":
			f.RetryAfterMS = r.count(MaxDelay.Milliseconds())
		default:
			r.reject("an unknown member of failure")
		}
		return r.err
	})
	if r.err == nil && f.Class == "" {
		r.err = fault("/class", "it is missing")
	}
	return f, saysExecuted
}

func decodeResolution(e *Entry) error {
	b := &Resolution{}
	e.Body = b
	err := jobBody(e, func(name string, r *reader) bool {
		switch name {
		case "attempt":
			b.Attempt = r.attempt()
		case "as":
			b.As = oneOf(r, OutcomeSucceeded, OutcomeFailed, OutcomeCancelled, OutcomeUnknown)
		case "result":
			b.Result = r.raw()
		case "failure":
			b.Failure, _ = r.failure()
		case "worker":
			b.Worker = r.freeText()
		case "if":
			b.IfUnknown = oneOf(r, AttemptUnknown) != ""
		case "reason":
			b.Reason = r.freeText()
		default:
			return false
		}
		return true
	})
	b.Job, b.Actor = e.Job, e.Actor
	if err != nil {
		return err
	}
	err = required("attempt", b.Attempt > 0, "as", b.As != "", "reason", b.Reason != "")
	switch {
	case err != nil:
		return err
	case b.As == OutcomeSucceeded && b.Result == nil:
		return fault("/result", "it is missing; resolving as succeeded needs the result")
	case b.As != OutcomeSucceeded && b.Result != nil:
		return fault("/result", "it stands beside as: %s", b.As)
	case b.As != OutcomeFailed && b.Failure != Failure{}:
		return fault("/failure", "it stands beside as: %s", b.As)
	case b.As == OutcomeUnknown && b.Worker == "":
		return fault("/worker", "it is missing; only the loss of its worker makes an attempt unknown")
	case b.As == OutcomeUnknown && b.IfUnknown:
		return fault("/if", "it stands beside as: %s", b.As)
	case b.As != OutcomeUnknown && b.Worker != "":
		return fault("/worker", "it stands beside as: %s", b.As)
	case len(b.Result) > MaxResultBytes:
		return fault("/result", "%d bytes; at most %d are allowed", len(b.Result), MaxResultBytes)
	}
	return nil
}
