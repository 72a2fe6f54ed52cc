package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// EntryVersion is the version that this package writes into every entry, and
// the only one that it reads so far.
const EntryVersion = 1

// An Entry is one stored entry, decoded. Decode never fails: what cannot be
// decoded is an entry with a Fault, which the fold turns into a rejection.
type Entry struct {
	Seq     uint64    // sequence in the stream, from 1
	At      time.Time // the stream's timestamp: UTC, whole microseconds
	Kind    EntryKind // "" if the subject names no kind
	Subject string    // without the ledger's prefix
	// Token is what follows the kind in the subject: the provider of a start,
	// claim or completion, the producer of a request.
	Token string
	Raw   []byte    // the body as stored; the entry's parts alias it
	Job   uuid.UUID // the job concerned; the zero UUID for definitions and faults
	Actor string    // who said it, as far as the entry tells
	Body  Body      // nil if Fault is set
	Fault *Fault
}

// A Fault says why an entry could not be decoded.
type Fault struct {
	Reason Reason // BadEntry, UnknownEntry, UnsupportedVersion or TooLarge
	Detail string
}

// Body is the content of an entry: one of the pointer types below.
type Body interface {
	// Message returns the entry that says this, ready to append.
	Message() Message
}

// A Message is an entry to append.
type Message struct {
	Subject string // without the ledger's prefix
	// ID is the message id for the stream's deduplication; "" for none.
	// It is made of the entry's kind, job, attempt and content, because ids are
	// shared by the whole stream and the server compares nothing else.
	ID   string
	Data []byte
}

// message makes a Message whose id is derived from what it says.
func message(kind EntryKind, token string, job uuid.UUID, attempt int, data []byte) Message {
	m := plain(kind, token, data)
	h := sha256.New()
	h.Write([]byte(m.Subject))
	h.Write([]byte{0})
	h.Write(data)
	var sum [sha256.Size]byte
	digest := hex.EncodeToString(h.Sum(sum[:0])[:16])
	m.ID = string(kind) + "/" + job.String() + "/" + strconv.Itoa(attempt) + "/" + digest
	return m
}

// plain makes a Message without an id, for what the fold takes twice without
// harm and better than the stream could. A repeated claim or completion is
// answered as the duplicate that it is. A definition holds until another takes
// its place: A, then B, then A again within the deduplication window means A.
func plain(kind EntryKind, token string, data []byte) Message {
	m := Message{Subject: string(kind), Data: data}
	if token != "" {
		m.Subject += "." + token
	}
	return m
}

// A Request asks for a job.
type Request struct {
	Owner, Key string
	Kind       string
	Input      []byte    // one accepted JSON value
	Provider   string    // "": as the kind says
	RunAt      time.Time // zero: at once; excludes Delay
	DelayMS    int64     // milliseconds after the entry's timestamp; 0: none
	Actor      string
	Producer   string // the producer's token in the subject, "" for none

	// Fingerprint is the digest of the canonical form of all that changes
	// behaviour. Decode sets it; what a sender puts here is not looked at.
	Fingerprint Digest
}

// Message implements Body.
func (b *Request) Message() Message {
	o := envelope()
	o.text("owner", b.Owner)
	o.text("key", b.Key)
	o.text("kind", b.Kind)
	o.raw("input", b.Input)
	o.optText("provider", b.Provider)
	o.optTime("run_at", b.RunAt)
	if b.DelayMS != 0 {
		o.text("delay", (time.Duration(b.DelayMS) * time.Millisecond).String())
	}
	o.optText("actor", b.Actor)
	return message(JobRequest, b.Producer, JobID(b.Owner, b.Key), 0, o.close())
}

// A Cancel asks that a job be wanted no more.
type Cancel struct {
	Job    uuid.UUID
	Owner  string // set where a producer speaks: the job must be its own
	Reason string
	Actor  string
}

// Message implements Body.
func (b *Cancel) Message() Message {
	o := envelope()
	o.uuid("job", b.Job)
	o.optText("owner", b.Owner)
	o.optText("reason", b.Reason)
	o.optText("actor", b.Actor)
	return message(JobCancel, "", b.Job, 0, o.close())
}

// An AttemptAsk is a person's wish for another attempt: the fallback button.
type AttemptAsk struct {
	Job      uuid.UUID
	Owner    string // set where a producer speaks: the job must be its own
	Key      string // the wish's own idempotency key, per job
	Provider string // "": the provider of the latest attempt
	Force    bool   // start on an unverified or paused provider; operators only (no Owner)
	Actor    string
}

// Message implements Body.
func (b *AttemptAsk) Message() Message {
	o := envelope()
	o.uuid("job", b.Job)
	o.optText("owner", b.Owner)
	o.text("key", b.Key)
	o.optText("provider", b.Provider)
	o.optBool("force", b.Force)
	o.optText("actor", b.Actor)
	return message(AttemptRequest, "", b.Job, 0, o.close())
}

// A Start tells a provider's workers of an accepted attempt.
type Start struct {
	Job        uuid.UUID
	Attempt    int
	JobVersion int64
	Owner      string
	Kind       string
	KindSeq    uint64 // sequence of the kind's definition that holds for the job
	Provider   string
	Input      []byte // verbatim from the request
	TimeoutMS  int64  // how long the attempt may take after the claim
	Contract   string // the contract's digest, "" for none
	// ProviderDigest, in hex, is that of the provider's definition which the proof
	// is about that allowed this start; "" for a start that needed none. A worker
	// with another definition must not carry it out.
	ProviderDigest string
}

// Message implements Body.
func (b *Start) Message() Message {
	o := object(make([]byte, 0, len(b.Input)+len(b.Owner)+320))
	o.int("v", EntryVersion)
	o.uuid("job", b.Job)
	o.int("attempt", int64(b.Attempt))
	o.int("job_version", b.JobVersion)
	o.text("owner", b.Owner)
	o.text("kind", b.Kind)
	o.uint("kind_seq", b.KindSeq)
	o.raw("input", b.Input)
	o.int("timeout_ms", b.TimeoutMS)
	o.optText("contract", b.Contract)
	o.optText("provider_digest", b.ProviderDigest)
	return message(AttemptStart, b.Provider, b.Job, b.Attempt, o.close())
}

// A Claim says that a worker is about to call the provider: for the first time,
// or with Replay again, because nobody knows how the first time ended and the
// provider promises to recognise the repetition.
type Claim struct {
	Job        uuid.UUID
	Attempt    int
	JobVersion int64
	Provider   string
	Claim      string // random, new for each delivery of the start
	Worker     string
	StartSeq   uint64 // sequence of the start that was delivered
	Replay     bool
}

// Message implements Body.
func (b *Claim) Message() Message {
	o := envelope()
	o.uuid("job", b.Job)
	o.int("attempt", int64(b.Attempt))
	o.int("job_version", b.JobVersion)
	o.text("claim", b.Claim)
	o.optText("worker", b.Worker)
	o.uint("start_seq", b.StartSeq)
	o.optBool("replay", b.Replay)
	return plain(AttemptClaim, b.Provider, o.close())
}

// A Completion says how a claimed attempt ended.
type Completion struct {
	Job         uuid.UUID
	Attempt     int
	JobVersion  int64
	Provider    string
	Claim       string
	Outcome     Outcome // succeeded, failed, unsent or unknown
	Result      []byte  // one accepted JSON value; with succeeded only
	Failure     Failure // with every other outcome
	ProviderRef string  // the provider's own reference, for reconciling
	Usage       []byte  // JSON; what the attempt cost
	// Output is what the provider said where that is not a result: the text of a
	// model's answer that broke the contract, say. With failed and unknown only.
	// It stays in the entry, for people; the tables do not hold it.
	Output string

	// digest identifies the content, so that a repetition is recognised.
	digest Digest
	// saysExecuted: the failure says whether the provider did the work.
	saysExecuted bool
}

// Message implements Body.
func (b *Completion) Message() Message {
	o := object(make([]byte, 0, len(b.Result)+len(b.Usage)+len(b.Failure.Message)+len(b.Output)+384))
	o.int("v", EntryVersion)
	o.uuid("job", b.Job)
	o.int("attempt", int64(b.Attempt))
	o.int("job_version", b.JobVersion)
	o.text("claim", b.Claim)
	o.text("outcome", string(b.Outcome))
	o.optRaw("result", b.Result)
	b.Failure.appendMember(o)
	o.optText("provider_ref", b.ProviderRef)
	o.optRaw("usage", b.Usage)
	o.optText("output", b.Output)
	return plain(AttemptComplete, b.Provider, o.close())
}

// A Resolution is out-of-band truth about an attempt.
type Resolution struct {
	Job     uuid.UUID
	Attempt int
	As      Outcome // succeeded, failed or cancelled; unknown if the worker is lost
	Result  []byte  // one accepted JSON value; required with succeeded
	Failure Failure // optional with failed
	Worker  string  // with unknown only, and required there: who was lost
	// IfUnknown makes the resolution count only while the attempt is unknown:
	// what was found out about it may not hold for a replay that runs by now.
	IfUnknown bool
	Reason    string // required: why whoever resolves believes it
	Actor     string
}

// Message implements Body.
func (b *Resolution) Message() Message {
	o := envelope()
	o.uuid("job", b.Job)
	o.int("attempt", int64(b.Attempt))
	o.text("as", string(b.As))
	o.optRaw("result", b.Result)
	b.Failure.appendMember(o)
	o.optText("worker", b.Worker)
	if b.IfUnknown {
		o.text("if", string(AttemptUnknown))
	}
	o.text("reason", b.Reason)
	o.optText("actor", b.Actor)
	return message(AttemptResolve, "", b.Job, b.Attempt, o.close())
}

// A Due says that a due time has passed. It echoes the time that was seen; the
// fold decides whether it still holds.
type Due struct {
	Job     uuid.UUID
	Attempt int // 0: the job's own due time
	Due     time.Time
}

// Message implements Body. It carries no id: a due time may have to be said
// again, and saying it twice is harmless.
func (b *Due) Message() Message {
	o := envelope()
	o.uuid("job", b.Job)
	o.optInt("attempt", int64(b.Attempt))
	o.time("due", b.Due)
	return plain(ClockDue, "", o.close())
}

// envelope begins a body with its version.
func envelope() *builder {
	o := object(make([]byte, 0, 256))
	o.int("v", EntryVersion)
	return o
}

func (f Failure) appendMember(o *builder) {
	if f == (Failure{}) {
		return
	}
	o.member("failure")
	in := object(o.buf)
	in.text("class", f.Class)
	in.optText("message", f.Message)
	in.bool("executed", f.Executed)
	in.optText("reach", string(f.Reach))
	in.optInt("retry_after_ms", f.RetryAfterMS)
	o.buf = in.close()
}

// A Digest is a SHA-256. The zero value means that there is none.
type Digest [sha256.Size]byte

// IsZero reports whether there is no digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// String returns the digest in hex, or "" for none.
func (d Digest) String() string {
	if d.IsZero() {
		return ""
	}
	return hex.EncodeToString(d[:])
}
