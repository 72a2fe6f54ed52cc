package publisher

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// What is known of an entry that could not be appended: exactly one of
// ErrNotAppended and ErrUnconfirmed holds for every *AppendError.
var (
	// ErrNotAppended: the entry is provably not stored. It was never sent, or
	// the server refused it.
	ErrNotAppended = errors.New("not appended")
	// ErrUnconfirmed: the entry was sent and may be stored. Appending the same
	// message again tells.
	ErrUnconfirmed = errors.New("append unconfirmed")
	// ErrUnavailable: nobody serves the stream, or the server is not connected.
	// It comes with one of the two above.
	ErrUnavailable = errors.New("the ledger's stream is unavailable")
	// ErrClosed: the Appender or the Client was closed.
	ErrClosed = errors.New("closed")
)

// An AppendError says why an entry was not appended, as far as is known.
type AppendError struct {
	Subject string
	ID      string // the message id, "" for none
	Tries   int    // how often it was sent
	// Unconfirmed says that it may be stored nevertheless.
	Unconfirmed bool
	// Unavailable says that the last try met no stream.
	Unavailable bool
	// Cause is the last error: a context's, a *ServerError, a *TooLargeError, a
	// *FullError, ErrClosed, or the connection's.
	Cause error
}

func (e *AppendError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "append to %s", e.Subject)
	if e.ID != "" {
		fmt.Fprintf(&b, " with the id %s", e.ID)
	}
	if e.Unconfirmed {
		fmt.Fprintf(&b, ": it may be stored, no answer after %d tries; append it again under the same id to know", e.Tries)
	} else {
		b.WriteString(": it is not stored")
	}
	if e.Unavailable {
		b.WriteString(": ")
		b.WriteString(ErrUnavailable.Error())
	}
	return b.String() + ": " + e.Cause.Error()
}

// Is makes errors.Is answer for the kinds of errors above.
func (e *AppendError) Is(target error) bool {
	switch target {
	case ErrNotAppended:
		return !e.Unconfirmed
	case ErrUnconfirmed:
		return e.Unconfirmed
	case ErrUnavailable:
		return e.Unavailable
	}
	return false
}

// Unwrap returns the cause.
func (e *AppendError) Unwrap() error { return e.Cause }

// A TooLargeError is an entry that the server would not take, or a request whose
// start it would not take.
type TooLargeError struct {
	Bytes int64 // of headers and body; of a request's body alone if Reserve is set
	Limit int64 // the server's max_payload, less Reserve
	// Reserve is what is kept free of a request for what its start has besides
	// the input, in bytes; 0: the message itself is too large.
	Reserve int64
}

func (e *TooLargeError) Error() string {
	if e.Reserve > 0 {
		return fmt.Sprintf("the request has %d bytes; at most %d are taken (the server's max_payload less %d, which the attempt's start needs)",
			e.Bytes, e.Limit, e.Reserve)
	}
	return fmt.Sprintf("the message has %d bytes with its headers; the server takes at most %d (max_payload)", e.Bytes, e.Limit)
}

// Is makes the error one of the client library's for the same thing, so that
// whoever appends need not know who has looked at the size.
func (e *TooLargeError) Is(target error) bool { return target == nats.ErrMaxPayload }

// Error codes of the JetStream API that decide what is known of an entry.
const (
	codeAccountFull       = 10002
	codeNotAvailable      = 10008
	codeNoResources       = 10023 // of the server: its storage limit is reached
	codeStorageFull       = 10047
	codeNotEnabled        = 10076
	codeStoreFailed       = 10077 // the stream is full; other failed writes are not answered
	codeStreamOffline     = 10118
	codeDuplicateBusy     = 10158 // the same id is being stored
	codeBatchDisabled     = 10174
	codeBatchNoSequence   = 10175
	codeBatchIncomplete   = 10176
	codeBatchBadID        = 10179
	codeOfflineReason     = 10194
	codeBatchTooLarge     = 10199
	codeBatchBadCommit    = 10200
	codeBatchDuplicate    = 10201
	codeBatchTooManyOpen  = 10210
	codeBatchRequirements = 10185
)

// A ServerError is the server's refusal of a publish.
type ServerError struct {
	Code        int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *ServerError) Error() string {
	return fmt.Sprintf("the server refused it: %s (%d)", e.Description, e.Code)
}

// Is makes errors.Is answer for ErrFull.
func (e *ServerError) Is(target error) bool {
	if target != ErrFull {
		return false
	}
	switch e.Code {
	case codeStoreFailed, codeAccountFull, codeNoResources, codeStorageFull:
		return true
	}
	return false
}

// passing reports whether the same publish may be taken a little later.
func (e *ServerError) passing() bool {
	switch e.Code {
	case codeNotAvailable, codeNoResources, codeNotEnabled, codeStreamOffline, codeOfflineReason, codeDuplicateBusy:
		return true
	}
	return false
}

// leavesNothing reports whether the refusal of a batch proves that no member
// of it was stored. Other refusals may come from the middle of the commit.
func (e *ServerError) leavesNothing() bool {
	switch e.Code {
	case codeBatchDisabled, codeBatchNoSequence, codeBatchIncomplete, codeBatchBadID, codeBatchTooLarge,
		codeBatchBadCommit, codeBatchDuplicate, codeBatchTooManyOpen, codeBatchRequirements:
		return true
	}
	return e.passing()
}

// refusedWith returns the code of a refusal for good, 0 for any other error.
func refusedWith(err error) int {
	var refusal *ServerError
	if errors.As(err, &refusal) && !refusal.passing() {
		return refusal.Code
	}
	return 0
}
