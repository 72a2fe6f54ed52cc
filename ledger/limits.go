package ledger

import "time"

// Bounds of the ledger. They are constants and not settings because the fold
// must decide alike everywhere and for ever; changing one is a change of rules.
const (
	// MaxPayloadBytes is the largest message, headers included, that a ledger
	// server must accept (the default of nats-server's max_payload).
	MaxPayloadBytes = 1 << 20
	// StartReserveBytes is kept free in a request so that the attempt start,
	// which repeats the input and adds members and headers, always fits.
	StartReserveBytes = 8 << 10
	// MaxRequestBytes bounds the body of an entry that producers append.
	MaxRequestBytes = MaxPayloadBytes - StartReserveBytes
	// MaxResultBytes bounds the result that a completion carries.
	MaxResultBytes = MaxPayloadBytes - StartReserveBytes
	// MaxExpandedBytes bounds a document whose numbers are written out, as
	// JSONB stores them: 1e1000 takes a thousand digits there.
	MaxExpandedBytes = 2 * MaxPayloadBytes

	// MaxDepth bounds the nesting of arrays and objects in a document.
	MaxDepth = 128
	// MaxExponent bounds the magnitude of a number's written exponent.
	MaxExponent = 1000
	// MaxNumberBytes bounds one number literal. PostgreSQL's NUMERIC holds
	// 16,383 digits after the point: this and MaxExponent stay below it.
	MaxNumberBytes = 10_000

	// MaxIdentBytes bounds an owner and an idempotency key, in UTF-8 bytes.
	MaxIdentBytes = 255
	// MaxNameBytes bounds the names of kinds, providers and producers.
	MaxNameBytes = 64
	// MaxTextBytes bounds free text in an entry (actor, reason, message).
	MaxTextBytes = 4 << 10
	// MaxContractBytes bounds the digest of a contract.
	MaxContractBytes = 128
	// MinClaimBytes and MaxClaimBytes bound the text of a claim id. Sixteen
	// characters of base64 or hex are the least that may hold 128 bits or near.
	MinClaimBytes = 16
	MaxClaimBytes = 128

	// MaxDelay bounds delay and the distance of run_at from the entry.
	MaxDelay = 366 * 24 * time.Hour
	// MaxTimeout bounds every duration in a kind's definition.
	MaxTimeout = 30 * 24 * time.Hour
	// MaxProviders bounds the providers of one kind.
	MaxProviders = 16
	// MaxAttemptsLimit bounds a kind's max_attempts.
	MaxAttemptsLimit = 100
	// MaxNeverRan bounds the attempts of a job that provably never ran; such a
	// job is then held for a person.
	MaxNeverRan = 20
	// MaxAttemptsPerJob bounds all attempts of a job, a person's included, so
	// that a job's rows cannot grow without end.
	MaxAttemptsPerJob = 1000

	// MaxReplays bounds how often one attempt is claimed again after it became
	// unknown.
	MaxReplays = 10

	// FailoverRecheck is how long a job that waits for a verification waits
	// before it looks again.
	FailoverRecheck = time.Minute

	// RejectionRawBytes is how much of a malformed entry a rejection keeps.
	RejectionRawBytes = 4 << 10
	// RejectionBuckets spreads rejections over the key space: bucket = seq mod
	// RejectionBuckets.
	RejectionBuckets = 16
)
