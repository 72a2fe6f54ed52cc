package projector

import (
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"jobledger/ledger"
)

// A column says how one column of a table follows from the fold's state. The
// same list serves the writes, so that they name each column once, and verify,
// which compares what a column should hold with what it holds.
type column[T any] struct {
	name string
	typ  colType
	// put appends the value with its length.
	put func(b []byte, row *T) []byte
	// fixed columns are written by the INSERT only.
	fixed bool
}

// colType is a type that the tables use.
type colType struct {
	name  string // in SQL
	array uint32 // OID of its array
	elem  uint32
}

var (
	typUUID   = colType{"UUID", pgtype.UUIDArrayOID, pgtype.UUIDOID}
	typText   = colType{"TEXT", pgtype.TextArrayOID, pgtype.TextOID}
	typInt    = colType{"INT8", pgtype.Int8ArrayOID, pgtype.Int8OID}
	typBool   = colType{"BOOL", pgtype.BoolArrayOID, pgtype.BoolOID}
	typBytes  = colType{"BYTEA", pgtype.ByteaArrayOID, pgtype.ByteaOID}
	typTime   = colType{"TIMESTAMPTZ", pgtype.TimestamptzArrayOID, pgtype.TimestamptzOID}
	typJSON   = colType{"JSONB", pgtype.JSONBArrayOID, pgtype.JSONBOID}
	typSeqs   = colType{"INT8[]", 0, 0}
	noFailure = ledger.Failure{}
)

// A table is the columns of one of a generation's tables.
type table[T any] struct {
	name string
	cols []column[T]
}

func (t table[T]) columnList() string {
	names := make([]string, len(t.cols))
	for i, c := range t.cols {
		names[i] = c.name
	}
	return strings.Join(names, ", ")
}

var jobsTable = table[ledger.Job]{"jobs", []column[ledger.Job]{
	{"id", typUUID, func(b []byte, j *ledger.Job) []byte { return putUUID(b, j.ID) }, true},
	{"owner_id", typText, func(b []byte, j *ledger.Job) []byte { return putText(b, j.Owner) }, true},
	{"idempotency_key", typText, func(b []byte, j *ledger.Job) []byte { return putText(b, j.Key) }, true},
	{"kind", typText, func(b []byte, j *ledger.Job) []byte { return putText(b, j.Kind) }, true},
	{"kind_seq", typInt, func(b []byte, j *ledger.Job) []byte { return putInt(b, int64(j.KindSeq)) }, true},
	{"fingerprint", typBytes, func(b []byte, j *ledger.Job) []byte { return putDigest(b, j.Fingerprint) }, true},
	{"input", typJSON, func(b []byte, j *ledger.Job) []byte { return putJSON(b, j.Input) }, true},
	{"provider", typText, func(b []byte, j *ledger.Job) []byte { return putOptText(b, j.Provider) }, true},
	{"state", typText, func(b []byte, j *ledger.Job) []byte { return putText(b, string(j.State)) }, false},
	{"state_reason", typText, func(b []byte, j *ledger.Job) []byte { return putOptText(b, j.StateReason) }, false},
	{"version", typInt, func(b []byte, j *ledger.Job) []byte { return putInt(b, j.Version) }, false},
	{"completed_by", typInt, func(b []byte, j *ledger.Job) []byte { return putOptInt(b, int64(j.CompletedBy)) }, false},
	{"result", typJSON, func(b []byte, j *ledger.Job) []byte { return putJSON(b, j.Result) }, false},
	{"failure_class", typText, func(b []byte, j *ledger.Job) []byte { return putOptText(b, j.Failure.Class) }, false},
	{"failure_message", typText, func(b []byte, j *ledger.Job) []byte { return putOptText(b, j.Failure.Message) }, false},
	{"failure_executed", typBool, func(b []byte, j *ledger.Job) []byte { return putExecuted(b, j.Failure) }, false},
	{"attempt_count", typInt, func(b []byte, j *ledger.Job) []byte { return putInt(b, int64(len(j.Attempts))) }, false},
	{"run_at", typTime, func(b []byte, j *ledger.Job) []byte { return putOptTime(b, j.RunAt) }, true},
	{"created_at", typTime, func(b []byte, j *ledger.Job) []byte { return putTime(b, j.CreatedAt) }, true},
	{"updated_at", typTime, func(b []byte, j *ledger.Job) []byte { return putTime(b, j.UpdatedAt) }, false},
	{"completed_at", typTime, func(b []byte, j *ledger.Job) []byte { return putOptTime(b, j.CompletedAt) }, false},
	{"cancelled_at", typTime, func(b []byte, j *ledger.Job) []byte { return putOptTime(b, j.CancelledAt) }, false},
	{"cancelled_by", typText, func(b []byte, j *ledger.Job) []byte { return putOptText(b, j.CancelledBy) }, false},
	{"due_at", typTime, func(b []byte, j *ledger.Job) []byte { return putOptTime(b, j.DueAt) }, false},
	{"requested_seq", typInt, func(b []byte, j *ledger.Job) []byte { return putInt(b, int64(j.RequestedSeq)) }, true},
	{"completed_seq", typInt, func(b []byte, j *ledger.Job) []byte { return putOptInt(b, int64(j.CompletedSeq)) }, false},
	{"seqs", typSeqs, func(b []byte, j *ledger.Job) []byte { return putSeqs(b, j.Seqs) }, false},
}}

// putExecuted stores whether the work was done; NULL where nothing failed.
func putExecuted(b []byte, f ledger.Failure) []byte {
	if f == noFailure {
		return putNull(b)
	}
	return putBool(b, f.Executed)
}

var attemptsTable = table[ledger.Attempt]{"attempts", []column[ledger.Attempt]{
	{"job_id", typUUID, func(b []byte, a *ledger.Attempt) []byte { return putUUID(b, a.Job) }, true},
	{"number", typInt, func(b []byte, a *ledger.Attempt) []byte { return putInt(b, int64(a.Number)) }, true},
	{"provider", typText, func(b []byte, a *ledger.Attempt) []byte { return putText(b, a.Provider) }, true},
	{"state", typText, func(b []byte, a *ledger.Attempt) []byte { return putText(b, string(a.State)) }, false},
	{"reason", typText, func(b []byte, a *ledger.Attempt) []byte { return putText(b, string(a.Reason)) }, true},
	{"job_version", typInt, func(b []byte, a *ledger.Attempt) []byte { return putInt(b, a.JobVersion) }, true},
	{"idempotency_key", typText, func(b []byte, a *ledger.Attempt) []byte { return putOptText(b, a.Key) }, true},
	{"worker", typText, func(b []byte, a *ledger.Attempt) []byte { return putOptText(b, a.Worker) }, false},
	{"claim_hash", typBytes, func(b []byte, a *ledger.Attempt) []byte { return putDigest(b, a.ClaimHash) }, false},
	{"start_by", typTime, func(b []byte, a *ledger.Attempt) []byte { return putOptTime(b, a.StartBy) }, true},
	{"deadline", typTime, func(b []byte, a *ledger.Attempt) []byte { return putOptTime(b, a.Deadline) }, false},
	{"due_at", typTime, func(b []byte, a *ledger.Attempt) []byte { return putOptTime(b, a.DueAt) }, false},
	{"requested_at", typTime, func(b []byte, a *ledger.Attempt) []byte { return putTime(b, a.RequestedAt) }, true},
	{"started_at", typTime, func(b []byte, a *ledger.Attempt) []byte { return putOptTime(b, a.StartedAt) }, false},
	{"unknown_since", typTime, func(b []byte, a *ledger.Attempt) []byte { return putOptTime(b, a.UnknownSince) }, false},
	{"finished_at", typTime, func(b []byte, a *ledger.Attempt) []byte { return putOptTime(b, a.FinishedAt) }, false},
	{"failure_class", typText, func(b []byte, a *ledger.Attempt) []byte { return putOptText(b, a.Failure.Class) }, false},
	{"failure_message", typText, func(b []byte, a *ledger.Attempt) []byte { return putOptText(b, a.Failure.Message) }, false},
	{"failure_reach", typText, func(b []byte, a *ledger.Attempt) []byte { return putOptText(b, a.Failure.Reach) }, false},
	{"executed", typBool, func(b []byte, a *ledger.Attempt) []byte { return putExecuted(b, a.Failure) }, false},
	{"provider_ref", typText, func(b []byte, a *ledger.Attempt) []byte { return putOptText(b, a.ProviderRef) }, false},
	{"usage", typJSON, func(b []byte, a *ledger.Attempt) []byte { return putJSON(b, a.Usage) }, false},
	{"completion_digest", typBytes, func(b []byte, a *ledger.Attempt) []byte { return putDigest(b, a.Completion) }, false},
	{"resolved_at", typTime, func(b []byte, a *ledger.Attempt) []byte { return putOptTime(b, a.ResolvedAt) }, false},
	{"resolved_by", typText, func(b []byte, a *ledger.Attempt) []byte { return putOptText(b, a.ResolvedBy) }, false},
	{"resolution_reason", typText, func(b []byte, a *ledger.Attempt) []byte { return putOptText(b, a.ResolvedReason) }, false},
	{"start_seq", typInt, func(b []byte, a *ledger.Attempt) []byte { return putOptInt(b, int64(a.StartSeq)) }, false},
	{"seqs", typSeqs, func(b []byte, a *ledger.Attempt) []byte { return putSeqs(b, a.Seqs) }, false},
	{"replays", typInt, func(b []byte, a *ledger.Attempt) []byte { return putInt(b, int64(a.Replays)) }, false},
}}

var rejectionsTable = table[ledger.Rejection]{"rejections", []column[ledger.Rejection]{
	{"bucket", typInt, func(b []byte, r *ledger.Rejection) []byte { return putInt(b, int64(r.Seq%ledger.RejectionBuckets)) }, true},
	{"seq", typInt, func(b []byte, r *ledger.Rejection) []byte { return putInt(b, int64(r.Seq)) }, true},
	{"at", typTime, func(b []byte, r *ledger.Rejection) []byte { return putTime(b, r.At) }, true},
	{"entry", typText, func(b []byte, r *ledger.Rejection) []byte { return putText(b, r.Entry) }, true},
	{"actor", typText, func(b []byte, r *ledger.Rejection) []byte { return putOptText(b, r.Actor) }, true},
	{"owner_id", typText, func(b []byte, r *ledger.Rejection) []byte { return putOptText(b, r.Owner) }, true},
	{"idempotency_key", typText, func(b []byte, r *ledger.Rejection) []byte { return putOptText(b, r.Key) }, true},
	{"kind", typText, func(b []byte, r *ledger.Rejection) []byte { return putOptText(b, r.Kind) }, true},
	{"provider", typText, func(b []byte, r *ledger.Rejection) []byte { return putOptText(b, r.Provider) }, true},
	{"job_id", typUUID, func(b []byte, r *ledger.Rejection) []byte { return putOptUUID(b, r.Job) }, true},
	{"attempt", typInt, func(b []byte, r *ledger.Rejection) []byte { return putOptInt(b, int64(r.Attempt)) }, true},
	{"decision", typText, func(b []byte, r *ledger.Rejection) []byte { return putText(b, string(r.Decision)) }, true},
	{"reason", typText, func(b []byte, r *ledger.Rejection) []byte { return putText(b, string(r.Reason)) }, true},
	{"detail", typText, func(b []byte, r *ledger.Rejection) []byte { return putOptText(b, r.Detail) }, true},
	{"raw", typBytes, func(b []byte, r *ledger.Rejection) []byte { return putOptBytes(b, r.Raw) }, true},
}}

var kindsTable = table[ledger.KindRow]{"kinds", []column[ledger.KindRow]{
	{"name", typText, func(b []byte, r *ledger.KindRow) []byte { return putText(b, r.Kind.Name) }, true},
	{"seq", typInt, func(b []byte, r *ledger.KindRow) []byte { return putInt(b, int64(r.Seq)) }, true},
	{"definition", typJSON, func(b []byte, r *ledger.KindRow) []byte { return putJSON(b, r.Kind.AppendJSON(nil)) }, true},
	{"digest", typBytes, func(b []byte, r *ledger.KindRow) []byte { return putDigest(b, r.Digest) }, true},
	{"at", typTime, func(b []byte, r *ledger.KindRow) []byte { return putTime(b, r.At) }, true},
	{"actor", typText, func(b []byte, r *ledger.KindRow) []byte { return putOptText(b, r.Actor) }, true},
}}

var providersTable = table[ledger.ProviderRow]{"providers", []column[ledger.ProviderRow]{
	{"name", typText, func(b []byte, r *ledger.ProviderRow) []byte { return putText(b, r.Name) }, true},
	{"seq", typInt, func(b []byte, r *ledger.ProviderRow) []byte { return putInt(b, int64(r.Seq)) }, true},
	{"type", typText, func(b []byte, r *ledger.ProviderRow) []byte { return putText(b, r.Type) }, true},
	{"definition", typJSON, func(b []byte, r *ledger.ProviderRow) []byte { return putJSON(b, r.Definition) }, true},
	{"digest", typBytes, func(b []byte, r *ledger.ProviderRow) []byte { return putDigest(b, r.Digest) }, true},
	{"at", typTime, func(b []byte, r *ledger.ProviderRow) []byte { return putTime(b, r.At) }, true},
	{"actor", typText, func(b []byte, r *ledger.ProviderRow) []byte { return putOptText(b, r.Actor) }, true},
	{"paused", typBool, func(b []byte, r *ledger.ProviderRow) []byte { return putBool(b, r.Paused) }, true},
	{"pause_reason", typText, func(b []byte, r *ledger.ProviderRow) []byte { return putOptText(b, r.PauseReason) }, true},
}}

var verificationsTable = table[ledger.VerificationRow]{"provider_verifications", []column[ledger.VerificationRow]{
	{"name", typText, func(b []byte, r *ledger.VerificationRow) []byte { return putText(b, r.Provider) }, true},
	{"seq", typInt, func(b []byte, r *ledger.VerificationRow) []byte { return putInt(b, int64(r.Seq)) }, true},
	{"kind", typText, func(b []byte, r *ledger.VerificationRow) []byte { return putText(b, r.Kind) }, true},
	{"contract", typText, func(b []byte, r *ledger.VerificationRow) []byte { return putOptText(b, r.Contract) }, true},
	{"provider_digest", typBytes, func(b []byte, r *ledger.VerificationRow) []byte { return putBytes(b, decodeHex(r.ProviderDigest)) }, true},
	{"passed", typBool, func(b []byte, r *ledger.VerificationRow) []byte { return putBool(b, r.Passed) }, true},
	{"report", typJSON, func(b []byte, r *ledger.VerificationRow) []byte { return putJSON(b, r.Report) }, true},
	{"expires_at", typTime, func(b []byte, r *ledger.VerificationRow) []byte { return putTime(b, r.ExpiresAt) }, true},
	{"at", typTime, func(b []byte, r *ledger.VerificationRow) []byte { return putTime(b, r.At) }, true},
	{"actor", typText, func(b []byte, r *ledger.VerificationRow) []byte { return putOptText(b, r.Actor) }, true},
}}
